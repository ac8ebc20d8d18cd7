"""Lists that the database cuts, for every API: which rows, after which one, and the token of the
next page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from starlette.requests import Request

from podyard.api import page_tokens
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import WHOLE_PROJECT, ComputePlace
from podyard.domain.lists import filters
from podyard.domain.lists.filters import Filter
from podyard.domain.lists.pages import Order, RowMark, RowQuery, cut_rows

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class RowList(Generic[T]):
    """A list. `rows`: by the query, in the unit. `fields`: the fields of rows by the paths of a
    filter that the database tests; `labels.` for labels. `default`: the order where none is asked
    for."""

    rows: Callable[[UnitOfWork, RowQuery], Sequence[T]]
    mark: Callable[[T, Order], RowMark]
    show: Callable[[T], dict[str, Any]]
    place: Callable[[T], ComputePlace] = lambda _row: WHOLE_PROJECT
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default: Order = Order.NAME


@dataclasses.dataclass(frozen=True, slots=True)
class ListRequest:
    """A request for a page. `listed`: which list it is, and how it was asked for: its tokens
    continue no other one."""

    listed: Sequence[str]
    tree: Filter
    order: Order
    size: int
    token: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class ShownPage(Generic[T]):
    """`token`: of the next page; None: this is the last one."""

    items: Sequence[tuple[T, dict[str, Any]]]
    token: str | None


def read_page(
    uow: UnitOfWork, request: Request, wanted: ListRequest, rows: RowList[T]
) -> ShownPage[T]:
    conditions, rest = filters.split(wanted.tree, rows.fields)
    after = _after(request, wanted)
    query = RowQuery(wanted.order, wanted.size, after, tuple(conditions))
    shown = dict[int, dict[str, Any]]()

    def passes(row: T) -> bool:
        shown[id(row)] = rows.show(row)
        return filters.matches(rest, shown[id(row)])

    cut = cut_rows(
        query,
        lambda part: rows.rows(uow, part),
        rows.mark,
        None if rest == filters.EVERYTHING else passes,
    )
    items = [(row, shown.get(id(row)) or rows.show(row)) for row in cut.rows]
    if cut.after is None:
        return ShownPage(items, None)
    text = f"{cut.after.value}\n{cut.after.key}"
    return ShownPage(items, page_tokens.page_token_of(request, wanted.listed, text))


def _after(request: Request, wanted: ListRequest) -> RowMark | None:
    text = page_tokens.read_page_token_of(request, wanted.listed, wanted.token)
    if text is None:
        return None
    value, _, key = text.partition("\n")
    return RowMark(value, key)
