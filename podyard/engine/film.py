"""Common parts of pages that explain step by step: one self-contained file with controls, script
and style.

A figure shows one frame as plain HTML and SVG, so that it says something without a script. SCRIPT
steps through all frames: it sets the two lines of `head` and `said`, and tells the element of the
class `film` by an event `frame`; the script of the figure's own package draws the rest.
"""

from __future__ import annotations

import html
import importlib.resources
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

SCRIPT, STYLE = "film.js", "film.css"
OWN_SCRIPT, OWN_STYLE = "explain.js", "explain.css"  # of the package that draws
STYLES = (STYLE, OWN_STYLE)
SCRIPTS = (OWN_SCRIPT, SCRIPT)  # who draws listens before the first frame is shown
_BUTTONS = (
    ("first", "First"),
    ("back", "Back"),
    ("play", "Play"),
    ("on", "Forward"),
    ("last", "Last"),
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'">
<title>{title}</title>
<style>
{styles}</style>
</head>
<body class="film-page">
<main>
<h1>{heading}</h1>
<p>{title}</p>
{figure}
</main>
{scripts}
</body>
</html>
"""


@cache
def asset(package: str, name: str) -> str:
    """The text of one of STYLES or SCRIPTS, for the figures of `package`."""
    owner = "podyard.engine" if name in (SCRIPT, STYLE) else package
    return importlib.resources.files(owner).joinpath(name).read_text(encoding="utf-8")


def page(package: str, heading: str, title: str, figure: str) -> str:
    """One HTML file that asks for nothing else; `figure` is HTML, the others are text."""
    return _PAGE.format(
        title=html.escape(title),
        heading=html.escape(heading),
        styles="".join(asset(package, name) for name in STYLES),
        figure=figure,
        scripts="\n".join(
            f'<script type="module">\n{asset(package, name)}</script>' for name in SCRIPTS
        ),
    )


def opening(kind: str, frames: Sequence[Mapping[str, Any]], at: int = 0, **more: Any) -> str:
    """The tag that opens a figure of the class `kind` and carries its frames, each with its texts
    `now` and `said`. The film begins at frame `at`."""
    # In single quotes, because JSON is full of double ones.
    data = json.dumps({**more, "frames": frames}, separators=(",", ":"))
    data = html.escape(data, quote=False).replace("'", "&#39;")
    begin = f' data-at="{at}"' if at else ""
    return f"<div class=\"film {kind}\"{begin} data-film='{data}'>\n"


def head(
    unit: str, now: str, number: int, last: int, url_of: Callable[[int], str] | None = None
) -> str:
    """Buttons and slider, which only a script makes visible, and the line that says which frame it
    is. `url_of`: the address of a frame, for those who step without a script."""
    buttons = "".join(
        f'<button type="button" data-go="{key}">{name}</button>' for key, name in _BUTTONS
    )
    return (
        f'<div class="film-controls" hidden><div class="film-buttons">{buttons}</div>'
        f'<label>{unit} <input type="range" min="0" max="{last}" value="{number}"></label></div>\n'
        f"{'' if url_of is None else _links(unit, number, last, url_of)}"
        f'<p class="film-now" aria-live="polite">{html.escape(now)}</p>\n'
    )


def _links(unit: str, number: int, last: int, url_of: Callable[[int], str]) -> str:
    targets = {"First": 0, "Back": number - 1, "Forward": number + 1, "Last": last}
    links = "".join(
        f'<a href="{html.escape(url_of(target))}">{name}</a>'
        for name, target in targets.items()
        if 0 <= target <= last and target != number
    )
    return f'<nav class="film-links" aria-label="{unit}">{links}</nav>\n'


def picture(label: str, svg: str) -> str:
    """A picture that scrolls in itself where the window is narrower."""
    return (
        '<div class="film-picture" tabindex="0" role="region" '
        f'aria-label="{html.escape(label)}">{svg}</div>\n'
    )


def caption(text: str) -> str:
    return f'<p class="film-said">{html.escape(text)}</p>\n'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """(class of the colour, what it stands for)."""
    items = "".join(
        f'<li><span class="key {key}"></span>{html.escape(text)}</li>' for key, text in entries
    )
    return f'<ul class="film-legend">{items}</ul>'
