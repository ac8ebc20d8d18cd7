"""Queries of lists: which rows, in which order, and which page of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

ROWS_A_PAGE = 100  # what a person can look through, and a page of some 60 kB


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """A row's place in its order: its value by which the list is sorted, and its key. Pages begin
    after one, so that
    the hundredth page costs as much as the first, and rows that come or go move no other."""

    value: str
    key: str


@dataclasses.dataclass(frozen=True, slots=True)
class ListQuery:
    """Empty: any. `label` is `key` or `key=value`; `text` is looked for in names and reasons, in
    any case.

    `idle`: only nodes that are READY and have no job. `backwards`: the page that ends before
    `mark`.
    """

    sort: str
    state: str = ""
    zone: str = ""
    accelerator_type: str = ""
    label: str = ""
    text: str = ""
    idle: bool = False
    descending: bool = False
    mark: Mark | None = None
    backwards: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Facet:
    """The number of a project's rows of one state, zone and type."""

    state: str
    zone: str
    accelerator_type: str
    rows: int


@dataclasses.dataclass(frozen=True, slots=True)
class NodeKind:
    """The properties that nodes of one price share."""

    zone: str
    accelerator_type: str
    topology: str
    usage_class: str


@dataclasses.dataclass(frozen=True, slots=True)
class RowPage(Generic[T]):
    """`before` and `after`: marks of the pages next to it; None where there is none."""

    rows: Sequence[T]
    before: Mark | None
    after: Mark | None


@dataclasses.dataclass(frozen=True, slots=True)
class ListedRow:
    """A row that no database has. `place`: what the list goes by; `name`: unique, for those of one
    place. `texts`: what a text is looked for in."""

    place: str
    name: str
    facet: Facet
    texts: Sequence[str]


def page_of(query: ListQuery, rows: Sequence[tuple[ListedRow, T]]) -> RowPage[T]:
    """As the database cuts pages of tables."""
    asked = (query.state, query.zone, query.accelerator_type)
    found = [(listed, row) for listed, row in rows if _matches(listed, asked, query.text.lower())]
    down = query.descending != query.backwards
    found.sort(key=lambda pair: (pair[0].place, pair[0].name), reverse=down)
    if query.mark is not None:
        after = (query.mark.value, query.mark.key)
        places = [(listed.place, listed.name) for listed, _ in found]
        found = [
            pair
            for pair, place in zip(found, places, strict=True)
            if (place < after if down else place > after)
        ]
    found = found[: ROWS_A_PAGE + 1]
    marks = [Mark(listed.place, listed.name) for listed, _ in found]
    return cut_page(query, marks, {listed.name: row for listed, row in found})


def _matches(listed: ListedRow, asked: Sequence[str], text: str) -> bool:
    facet = listed.facet
    has = (facet.state, facet.zone, facet.accelerator_type)
    return all(not want or want == value for want, value in zip(asked, has, strict=True)) and (
        not text or any(text in known.lower() for known in listed.texts)
    )


def cut_page(query: ListQuery, marks: Sequence[Mark], by_key: Mapping[str, T]) -> RowPage[T]:
    """The page of the marks that were found in the direction of the query, up to one more than a
    page has."""
    more = len(marks) > ROWS_A_PAGE
    mine = list(marks[:ROWS_A_PAGE])
    if query.backwards:
        mine.reverse()
    has_before, has_after = (more, True) if query.backwards else (query.mark is not None, more)
    return RowPage(
        [by_key[mark.key] for mark in mine],
        mine[0] if mine and has_before else None,
        mine[-1] if mine and has_after else None,
    )
