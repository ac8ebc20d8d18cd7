"""Listings of the documents that this project was made for. They are others' words and code, so
they are read from a folder next to the checkout, and their tests skip where it is missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clients.listings.program import ROOT

SHARED_VARIABLE = "PODYARD_SHARED"  # a folder that has cases/documents
Indents = Sequence[tuple[int, int, int]]


def listing(file: str, begins: str, ends: str, below: str = "") -> list[str]:
    """Return the lines of a document between two lines, which are not among them; `below`: a line
    before the first of them."""
    lines = _lines(file)
    first = lines.index(begins, lines.index(below) if below else 0) + 1
    return lines[first : lines.index(ends, first)]


def line(file: str, begins: str) -> str:
    """Return the first line of a document that begins so."""
    return next(one for one in _lines(file) if one.startswith(begins))


def _lines(file: str) -> list[str]:
    shared = Path(os.environ.get(SHARED_VARIABLE) or ROOT.parent / "shared")
    folder = shared / "cases" / "documents"
    if not folder.is_dir():
        pytest.skip(f"{SHARED_VARIABLE} has no cases/documents")
    (path,) = folder.glob(f"{file}_*.txt")
    return path.read_text(encoding="utf-8").split("\n")


def split(text: str, starts: Sequence[str]) -> str:
    """Return text that print has put on one line, with a new line before each of `starts`, which
    follow one another and begin with the spaces that the line had."""
    lines, rest, spaces = list[str](), text, ""
    for start in starts:
        place = rest.find(start.strip(), 1)
        assert place > 0, f"{start!r} is not in {rest!r}"
        lines.append(spaces + rest[:place].strip())
        spaces, rest = start[: len(start) - len(start.lstrip())], rest[place:]
    return "\n".join([*lines, spaces + rest.strip()])


def indent(lines: Sequence[str], indents: Indents) -> list[str]:
    """Return the lines with the indentation that they have lost in print: (first, last, spaces),
    later ones win."""
    spaces = [0] * len(lines)
    for first, last, count in indents:
        spaces[first : last + 1] = [count] * len(spaces[first : last + 1])
    return [" " * count + line for count, line in zip(spaces, lines, strict=True)]


def edit(text: str, edits: Sequence[tuple[str, str]]) -> str:
    """Return the text with edits, each of which must apply."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text
