"""Common parts of all pictures of a lesson: a title, HTML with SVG in it, and one style sheet."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

from podyard.engine import film

PACKAGE = "podyard.engine.lesson"
STYLE = "lesson.css"


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """`html` is safe to put into a page. `packages`: whose style sheets it needs."""

    title: str
    html: str
    packages: tuple[str, ...] = (PACKAGE,)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the picture with its styles."""
        names = [(PACKAGE, STYLE), (PACKAGE, film.STYLE)]
        names += [(package, film.OWN_STYLE) for package in self.packages if package != PACKAGE]
        styles = "".join(film.asset(package, name) for package, name in names)
        return f"<style>{styles}</style><h3>{html.escape(self.title)}</h3>{self.html}"


def svg(
    label: str, description: str, width: float, height: float, parts: Sequence[str], kind: str = ""
) -> str:
    """A picture that shrinks with the page. `description`: the same in words, for those who do not
    see it."""
    name, text = html.escape(label), html.escape(description)
    return (
        f'<svg class="lesson-svg {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" '
        f'role="img" aria-label="{name}. {text}">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" '
        f'text-anchor="{anchor}">{html.escape(content)}</text>'
    )


def rect(x: float, y: float, width: float, height: float, kind: str, radius: float = 4) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{max(width, 0):g}" '
        f'height="{height:g}" '
        f'rx="{radius:g}"/>'
    )


def figure(caption: str, body: str) -> str:
    return (
        f'<figure class="lesson-figure"><figcaption>{html.escape(caption)}</figcaption>'
        f"{body}</figure>"
    )


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first cell of each row is its heading. It scrolls in itself where the window is
    narrower."""
    name = html.escape(caption)
    columns = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        '<div class="lesson-table" tabindex="0" role="region" '
        f'aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{lines}</tbody></table></div>"
    )
