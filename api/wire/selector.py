"""`fields`: the part of an answer that a client asks for
(cloud.google.com/compute/docs/api/how-tos/performance#partial-response)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from podyard.api.wire.vocabulary import Vocabulary
from podyard.base.errors import PodyardError, invalid

SELECTOR_CHARACTERS_MAX = 4096  # as of filters
SELECTOR_DEPTH_MAX = 20  # deeper than any message
ALL = "*"
_TOKEN = re.compile(r"[A-Za-z0-9_.*-]+|[(),/]|\S")

Selection = dict[str, Any]  # name -> what is chosen of it; nothing chosen: all of it


def parse(text: str) -> Selection:
    """`items(name,disks/source),kind` as a tree; raises INVALID_ARGUMENT for what cannot be
    read."""
    if len(text) > SELECTOR_CHARACTERS_MAX:
        raise _invalid_selection(text[:80])
    tokens = _TOKEN.findall(text)
    tree, at = _list(tokens, 0, 0, text)
    if at != len(tokens):
        raise _invalid_selection(text)
    return tree


def _list(tokens: list[str], at: int, depth: int, text: str) -> tuple[Selection, int]:
    tree: Selection = {}
    while True:
        at = _one(tokens, at, depth, text, tree)
        if at >= len(tokens) or tokens[at] != ",":
            return tree, at
        at += 1


def _one(tokens: list[str], at: int, depth: int, text: str, tree: Selection) -> int:
    if depth > SELECTOR_DEPTH_MAX or at >= len(tokens) or tokens[at] in "(),/":
        raise _invalid_selection(text)
    below: Selection = tree.setdefault(tokens[at], {})
    at += 1
    if at < len(tokens) and tokens[at] == "/":
        return _one(tokens, at + 1, depth + 1, text, below)
    if at < len(tokens) and tokens[at] == "(":
        inner, at = _list(tokens, at + 1, depth + 1, text)
        if at >= len(tokens) or tokens[at] != ")":
            raise _invalid_selection(text)
        below.update(inner)
        return at + 1
    return at


def check(words: Vocabulary, message: str, selection: Selection) -> None:
    """Raise INVALID_ARGUMENT for a field that the message has not."""
    fields = words.messages[message].fields
    for name, below in selection.items():
        if name == ALL:
            continue
        field = fields.get(name)
        if field is None:
            raise _invalid_selection(name)
        if below and field.type in words.messages:
            # The keys of a map are names of places, not fields.
            inner = [part for part in below.values() if part] if field.mapped else [below]
            for part in inner:
                check(words, field.type, part)


def select(value: Any, selection: Selection) -> Any:
    """The chosen part of an answer; all of it where nothing is chosen."""
    if not selection or (ALL in selection and not selection[ALL]):
        return value
    if isinstance(value, list):
        return [select(item, selection) for item in value]
    if not isinstance(value, Mapping):
        return value
    every: Selection | None = selection.get(ALL)
    below = {name: selection.get(name, every) for name in value}
    return {
        name: select(value[name], chosen) for name, chosen in below.items() if chosen is not None
    }


def _invalid_selection(text: str) -> PodyardError:
    return invalid(f"Invalid field selection {text}", "fields")
