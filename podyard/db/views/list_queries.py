"""Machinery of lists that the database filters, sorts and cuts.

The keys of a page are found first, over indices where there is one for the order; whole rows are
read for these only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Integer,
    Select,
    String,
    Table,
    Unicode,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from podyard.base.clock import PlatformTime, RealTime
from podyard.base.errors import PodyardError, invalid
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes
from podyard.db.tables.types import PlatformTimeColumn, RealTimeColumn
from podyard.domain.listing import ROWS_A_PAGE, Facet, ListQuery, Mark, NodeKind, RowPage, cut_page

T = TypeVar("T")
NO_PRICE = -1  # of a node without a price: it comes last among the dearest
_WHOLE_NODE = literal(1)


@dataclasses.dataclass(frozen=True, slots=True)
class ListedTable:
    """A table that lists are made of. `key`: its primary key, which is drawn at random. `name`:
    unique among the rows that are listed; rows that are alike in the order of the list go by it, so
    that every order is total and the same for every yard. `facets`: by the names that `ListQuery`
    has; `texts`: what a text is looked for in. `whole`: what whole rows are read from, with
    `key` under its own name; None: the table. `parts`: the number of rows that share the price and
    the cost of a node."""

    table: Table
    key: Column[str]
    name: ColumnElement[str]
    orders: Mapping[str, ColumnElement[Any]]
    facets: Mapping[str, ColumnElement[str]]
    texts: Sequence[ColumnElement[str]]
    labels: Any = None
    whole: Select[Any] | None = None
    parts: ColumnElement[int] = _WHOLE_NODE

    def whole_rows(self, uow: UnitOfWork, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """By key."""
        rows = select(self.table) if self.whole is None else self.whole
        return {row[self.key.name]: row for row in uow.all(rows.where(self.key.in_(keys)))}


def facets(uow: UnitOfWork, listed: ListedTable, *which: ColumnElement[bool]) -> list[Facet]:
    columns = [
        listed.facets.get(name, literal("")).label(name)
        for name in ("state", "zone", "accelerator_type")
    ]
    # of a query: PostgreSQL does not see that two paths into JSON are one
    rows = select(*columns).where(*which).subquery()
    query = select(*rows.c, func.count().label("rows")).group_by(*rows.c).order_by(*rows.c)
    return [Facet(**row) for row in uow.all(query)]


def kinds(uow: UnitOfWork, *which: ColumnElement[bool]) -> list[NodeKind]:
    """Return what kinds of nodes there are among those."""
    columns = (nodes.c.zone, nodes.c.accelerator_type, nodes.c.topology, nodes.c.usage_class)
    return [NodeKind(**row) for row in uow.all(select(*columns).where(*which).distinct())]


def page(
    uow: UnitOfWork,
    listed: ListedTable,
    query: ListQuery,
    which: Sequence[ColumnElement[bool]],
    read: Callable[[Mapping[str, Any]], T],
    order: ColumnElement[Any] | None = None,
) -> RowPage[T]:
    """`order`: what the list goes by, if it is not one of its table's. Raises INVALID_ARGUMENT for
    an unknown one."""
    if order is None:
        if query.sort not in listed.orders:
            raise invalid(f"unknown order {query.sort!r}: use {', '.join(listed.orders)}", "sort")
        order = listed.orders[query.sort]
    name = listed.name
    down = query.descending != query.backwards
    found = [*which, *_conditions(listed, query)]
    if query.mark is not None:
        place, after = (
            tuple_(order, name),
            tuple_(_bound(order, query.mark.value), literal(query.mark.key)),
        )
        found.append(place < after if down else place > after)
    chosen = select(order.label("place"), name.label("name"), listed.key.label("key")).where(*found)
    ordered = chosen.order_by(order.desc(), name.desc()) if down else chosen.order_by(order, name)
    rows = list(uow.all(ordered.limit(ROWS_A_PAGE + 1)))
    by_key = listed.whole_rows(uow, [row["key"] for row in rows])
    marks = [Mark(_text(row["place"]), row["name"]) for row in rows]
    return cut_page(query, marks, {row["name"]: read(by_key[row["key"]]) for row in rows})


def page_by_cost(
    uow: UnitOfWork,
    listed: ListedTable,
    query: ListQuery,
    which: Sequence[ColumnElement[bool]],
    costs: Mapping[str, int],
    read: Callable[[Mapping[str, Any]], T],
) -> RowPage[T]:
    """`costs`: by the key of nodes, in any unit; 0 for those that it leaves out. Costs are no
    column of the database, so the order is made here."""
    chosen = select(
        nodes.c.node_key.label("of"),
        listed.parts.label("parts"),
        listed.name.label("name"),
        listed.key.label("key"),
    ).where(*which, *_conditions(listed, query))
    down = query.descending != query.backwards
    ordered = sorted(
        ((costs.get(row.of, 0) // row.parts, row.name, row.key) for row in uow.execute(chosen)),
        reverse=down,
    )
    if query.mark is not None:
        place = (_whole_cost(query.mark.value), query.mark.key)
        ordered = [row for row in ordered if (row[:2] < place if down else row[:2] > place)]
    ordered = ordered[: ROWS_A_PAGE + 1]
    by_key = listed.whole_rows(uow, [key for _, _, key in ordered])
    by_name = {name: read(by_key[key]) for _, name, key in ordered}
    return cut_page(query, [Mark(str(cost), name) for cost, name, _ in ordered], by_name)


def _whole_cost(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _not_a_place(text) from None


def _conditions(listed: ListedTable, query: ListQuery) -> list[ColumnElement[bool]]:
    wanted = {"state": query.state, "zone": query.zone, "accelerator_type": query.accelerator_type}
    found = [column == wanted[name] for name, column in listed.facets.items() if wanted[name]]
    if query.label and listed.labels is not None:
        name, equals, value = query.label.partition("=")
        stored = listed.labels[name].as_string()
        found.append(stored == value if equals else stored.is_not(None))
    if query.text:
        pattern = f"%{_escape(query.text.lower())}%"
        found.append(
            or_(*(func.lower(column).like(pattern, escape="\\") for column in listed.texts))
        )
    return found


def _text(value: Any) -> str:
    if isinstance(value, PlatformTime | RealTime):
        return str(value.nanos)
    return repr(value) if isinstance(value, float) else str(value)


def _bound(order: ColumnElement[Any], text: str) -> ColumnElement[Any]:
    """The value of a mark, as the column has it; raises INVALID_ARGUMENT for what is none."""
    try:
        value = _READERS[type(order.type)](text)
    except ValueError:
        raise _not_a_place(text) from None
    return literal(value, order.type)


def _not_a_place(text: str) -> PodyardError:
    why = f"this page of the list begins nowhere: {text!r} is not a value of its order"
    return invalid(why, "after")


_READERS: Mapping[type[Any], Callable[[str], Any]] = {
    String: str,
    Unicode: str,  # of a path into JSON
    Integer: int,
    BigInteger: int,
    Float: float,
    PlatformTimeColumn: lambda text: PlatformTime(int(text)),
    RealTimeColumn: lambda text: RealTime(int(text)),
}


def by_price(nanos_per_hour: Mapping[NodeKind, int]) -> ColumnElement[int]:
    """A node's price per hour; of a kind without one it is lower than any."""
    if not nanos_per_hour:
        return literal(NO_PRICE, BigInteger)
    kind = (nodes.c.zone, nodes.c.accelerator_type, nodes.c.topology, nodes.c.usage_class)
    prices = [
        (
            and_(
                *(
                    column == value
                    for column, value in zip(kind, dataclasses.astuple(one), strict=True)
                )
            ),
            nanos,
        )
        for one, nanos in nanos_per_hour.items()
    ]
    return case(*prices, else_=literal(NO_PRICE, BigInteger))


def _escape(text: str) -> str:
    """For LIKE: the signs that stand for others stand for themselves."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
