"""The documents of `docs/`, in the console: they are of the version that runs, and need no
network."""

from __future__ import annotations

import dataclasses
import importlib.resources
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Request
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from starlette.responses import Response

import podyard
from podyard.base.errors import not_found
from podyard.web.kit.render import ConsoleRoute, page, project_url

START = "index.md"
_SLUG = re.compile(r"[^a-z0-9]+")

router = APIRouter(prefix="/console/{project}/docs", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """`path`: below `docs/`. `lower`: its text in small letters, for the search."""

    path: str
    title: str
    text: str
    lower: str


@router.get("")
def show_start(request: Request, project: str) -> Response:
    return show(request, project, START)


@router.get("/{path:path}")
def show(request: Request, project: str, path: str) -> Response:
    known = documents()
    if path in known:
        document = known[path]
        body = _render(document, project_url(project, "docs"))
        return page(
            request,
            "docs.html",
            section="docs",
            title=document.title,
            body=body,
            listed=[],
            doc_path=path,
        )
    folder = path.rstrip("/") + "/"
    listed = [found for found in known.values() if found.path.startswith(folder)]
    if not listed:
        raise not_found(f"docs/{path}")
    return page(
        request, "docs.html", section="docs", title=folder, body="", listed=listed, doc_path=folder
    )


@cache
def documents() -> Mapping[str, Document]:
    """By path: in a checkout the folder at its root, in an installation what the wheel brought."""
    root = Path(podyard.__file__).parents[1]
    folder = (
        root / "docs"
        if podyard.is_checkout(root)
        else Path(str(importlib.resources.files("podyard"))) / "docs"
    )
    found = {}
    for file in sorted(folder.rglob("*.md")):
        path, text = file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8")
        title = next(
            (line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("# ")), path
        )
        found[path] = Document(path, title.replace("`", ""), text, text.lower())
    return found


def _render(document: Document, url: str) -> Markup:
    """HTML in a document's text stays text. Links lead within the console where they can."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(document.text)
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _SLUG.sub("-", tokens[at + 1].content.lower()).strip("-"))
        elif token.type == "inline":
            token.children = [
                _lead(child, document, url)
                for child in token.children or []
                if child.type != "image"
            ]
        elif token.type == "table_open":
            token.attrSet("tabindex", "0")
    found = parser.renderer.render(tokens, parser.options, {})
    # What is wider than the page is scrolled by keyboard, too. In text a tag is written in
    # entities.
    return Markup(found.replace("<pre>", '<pre tabindex="0">'))


def _lead(token: Token, document: Document, url: str) -> Token:
    if token.type != "link_open":
        return token
    target = urlsplit(str(token.attrs.get("href", "")))
    if target.scheme or target.netloc or not target.path:
        return token
    path = posixpath.normpath(posixpath.join(posixpath.dirname(document.path), target.path))
    folders = {posixpath.dirname(known) for known in documents()}
    if path in documents() or path in folders:
        fragment = f"#{target.fragment}" if target.fragment else ""
        token.attrSet("href", f"{url}/{quote(path)}{fragment}")
    else:
        # no link: the console does not have it
        token.attrs = {"title": f"{target.path} is in the source tree"}
    return token
