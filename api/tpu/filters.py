"""Filters and orders of lists, as AIP-160 and AIP-132 define them, over the JSON of the
resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from podyard.base.errors import invalid
from podyard.domain.lists.filters import Resource, matches, parse, values_at

Predicate = Callable[[Resource], bool]


def matcher(text: str) -> Predicate:
    """The filter as a predicate; raises INVALID_ARGUMENT that says where it cannot be read."""
    return partial(matches, parse(text))


def order(items: Sequence[Resource], text: str) -> list[Resource]:
    """`items` by the fields that `text` names (`name desc, type`); raises INVALID_ARGUMENT for a
    malformed order."""
    ordered = list(items)
    for part in reversed([part.strip() for part in text.split(",") if part.strip()]):
        words = part.split()
        if len(words) > 2 or (len(words) == 2 and words[1].lower() not in ("asc", "desc")):
            raise invalid(
                f"invalid orderBy {part!r}: use a field, optionally followed by asc or desc",
                "orderBy",
            )
        path = words[0]
        if ordered and not any(list(values_at(item, path)) for item in ordered):
            raise invalid(f"orderBy has the unknown field {path!r}", "orderBy")
        ordered.sort(key=partial(_sort_key, path), reverse=words[-1].lower() == "desc")
    return ordered


def _sort_key(path: str, item: Resource) -> str:
    return str(next(values_at(item, path), ""))
