"""Pages of lists that the database cuts: each begins after the last row of the one before, and
reads no more rows than it answers, but for what only a filter can leave out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from podyard.base.clock import PlatformTime
from podyard.domain.lists.filters import Condition

T = TypeVar("T")

SCANNED_ROWS_MAX = 1000  # of one page: a filter that nothing passes must not read a whole table


class Order(StrEnum):
    """The orders that a list has. `PLACE`: by place, then by name."""

    NAME = "name"
    NEWEST = "creationTimestamp desc"
    PLACE = "place"


@dataclasses.dataclass(frozen=True, slots=True)
class RowMark:
    """A row's place in its order. `value`: the name, the time of creation in nanoseconds, or the
    place; `key`: what tells rows of one value apart."""

    value: str
    key: str


@dataclasses.dataclass(frozen=True, slots=True)
class RowQuery:
    """The rows that a page asks the database for: `limit` of them, behind `after`."""

    order: Order
    limit: int
    after: RowMark | None = None
    conditions: Sequence[Condition] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CutPage(Generic[T]):
    """`after`: where the next page begins; None: this is the last one. A page may be short, or
    empty, and still have a next one."""

    rows: Sequence[T]
    after: RowMark | None


def cut_rows(
    query: RowQuery,
    read: Callable[[RowQuery], Sequence[T]],
    mark: Callable[[T, Order], RowMark],
    passes: Callable[[T], bool] | None = None,
) -> CutPage[T]:
    """A page of `query.limit` rows. `passes`: the part of the filter that the database does not do;
    with it at most `SCANNED_ROWS_MAX` rows are read."""
    size = query.limit
    if passes is None:
        rows = read(dataclasses.replace(query, limit=size + 1))
        more = len(rows) > size
        return CutPage(rows[:size], mark(rows[size - 1], query.order) if more else None)
    rows = read(dataclasses.replace(query, limit=SCANNED_ROWS_MAX + 1))
    passing = list[T]()
    for at, row in enumerate(rows[:SCANNED_ROWS_MAX]):
        if passes(row):
            passing.append(row)
        if len(passing) == size or at == SCANNED_ROWS_MAX - 1:
            more = at + 1 < len(rows)
            return CutPage(passing, mark(row, query.order) if more else None)
    return CutPage(passing, None)


def cut_listed(query: RowQuery, rows: Sequence[T], mark: Callable[[T, Order], RowMark]) -> list[T]:
    """The rows of a query out of a list that no database has. Its conditions are left to the
    caller."""
    down = query.order is Order.NEWEST
    ordered = sorted((_key(mark(row, query.order)), at) for at, row in enumerate(rows))
    if down:
        ordered.reverse()
    if query.after is not None:
        last = _key(query.after)
        ordered = [pair for pair in ordered if (pair[0] < last if down else pair[0] > last)]
    return [rows[at] for _, at in ordered[: query.limit]]


def time_mark(created: PlatformTime, key: str) -> RowMark:
    """The mark of a row in the order of time; texts of one length sort as their numbers."""
    return RowMark(f"{created.nanos:020}", key)


def _key(mark: RowMark) -> tuple[str, str]:
    return mark.value, mark.key
