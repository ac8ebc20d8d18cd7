"""Lists of nodes and jobs as pages show them: filtered, sorted and cut by the database.

The keys of a page are found first, over indices where there is one for the order; whole rows are read for these only.
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
    String,
    Table,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.db.jobs import to_job
from podyard.db.nodes import to_record
from podyard.db.tables_compute import nodes
from podyard.db.tables_jobs import jobs
from podyard.db.types import PlatformTimeColumn
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.job import ACTIVE_JOB_STATES, Job
from podyard.domain.listing import ROWS_A_PAGE, Facet, ListQuery, Mark, NodeKind, RowPage, cut_page
from podyard.domain.node import NodeRecord, NodeState

T = TypeVar("T")
NO_PRICE = -1  # of a node without a price: it comes last among the dearest

# Columns by which a list can be sorted, by the names that addresses use.
NODE_ORDERS: Mapping[str, ColumnElement[Any]] = {
    "name": nodes.c.node_id,
    "state": nodes.c.state,
    "zone": nodes.c.zone,
    "type": nodes.c.accelerator_type,
    "hosts": nodes.c.host_count,
    "usage": nodes.c.usage_class,
    "created": nodes.c.created,
    "by": nodes.c.created_by,
}
JOB_ORDERS: Mapping[str, ColumnElement[Any]] = {
    "name": jobs.c.job_id,
    "state": jobs.c.state,
    "zone": jobs.c.zone,
    "node": jobs.c.node_id,
    "type": jobs.c.accelerator_type,
    "steps": jobs.c.steps_done,
    "time": jobs.c.wall_seconds,
    "attempt": jobs.c.attempt,
    "created": jobs.c.created,
    "by": jobs.c.created_by,
}
_LIVE_STATES = sorted(set(NodeState) - {NodeState.GONE})  # by these an index has all that is counted
_NODE_TEXTS = (nodes.c.node_id, nodes.c.accelerator_type, nodes.c.state_reason, nodes.c.wait_reason, nodes.c.created_by)
_JOB_TEXTS = (
    jobs.c.job_id,
    jobs.c.node_id,
    jobs.c.accelerator_type,
    jobs.c.state_reason,
    jobs.c.created_by,
    jobs.c.sweep_id,
)


def node_page(
    uow: UnitOfWork, project: str, query: ListQuery, nanos_per_hour: Mapping[NodeKind, int]
) -> RowPage[NodeRecord]:
    """The live nodes of a page. `nanos_per_hour`: the prices by which the order `price` goes; of a kind without one the
    price is lower than any."""
    order = _by_price(nanos_per_hour) if query.sort == "price" else NODE_ORDERS[query.sort]
    which = [nodes.c.project == project, nodes.c.live_name.is_not(None)]
    if query.idle:
        on_it = select(jobs.c.job_key).where(jobs.c.node_key == nodes.c.node_key, jobs.c.state.in_(ACTIVE_JOB_STATES))
        which += [nodes.c.state == NodeState.READY, ~on_it.exists()]
    marks = _marks(uow, nodes, nodes.c.node_key, order, query, _NODE_TEXTS, which)
    return cut_page(query, marks, _rows(uow, nodes, nodes.c.node_key, marks, to_record))


def job_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[Job]:
    order, which = JOB_ORDERS[query.sort], [jobs.c.project == project]
    marks = _marks(uow, jobs, jobs.c.job_key, order, query, _JOB_TEXTS, which)
    return cut_page(query, marks, _rows(uow, jobs, jobs.c.job_key, marks, to_job))


def node_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    """Of the live nodes of a project."""
    return _facets(uow, nodes, nodes.c.project == project, nodes.c.state.in_(_LIVE_STATES))


def job_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    return _facets(uow, jobs, jobs.c.project == project)


def node_kinds(uow: UnitOfWork, project: str) -> list[NodeKind]:
    """What kinds of nodes there are among the live ones of a project."""
    columns = (nodes.c.zone, nodes.c.accelerator_type, nodes.c.topology, nodes.c.usage_class)
    of_project = select(*columns).where(nodes.c.project == project, nodes.c.state.in_(_LIVE_STATES))
    return [NodeKind(**row) for row in uow.all(of_project.distinct())]


def _facets(uow: UnitOfWork, table: Table, *which: ColumnElement[bool]) -> list[Facet]:
    columns = (table.c.state, table.c.zone, table.c.accelerator_type)
    query = select(*columns, func.count().label("rows")).where(*which).group_by(*columns).order_by(*columns)
    return [Facet(**row) for row in uow.all(query)]


def _marks(
    uow: UnitOfWork,
    table: Table,
    key: ColumnElement[str],
    order: ColumnElement[Any],
    query: ListQuery,
    texts: Sequence[ColumnElement[str]],
    which: Sequence[ColumnElement[bool]],
) -> list[Mark]:
    wanted = {"state": query.state, "zone": query.zone, "accelerator_type": query.accelerator_type}
    found = [*which, *(table.c[name] == value for name, value in wanted.items() if value)]
    if query.label:
        name, equals, value = query.label.partition("=")
        stored = table.c.spec["labels"][name].as_string()
        found.append(stored == value if equals else stored.is_not(None))
    if query.text:
        pattern = f"%{_escape(query.text.lower())}%"
        found.append(or_(*(func.lower(column).like(pattern, escape="\\") for column in texts)))
    down = query.descending != query.backwards
    if query.mark is not None:
        place, after = tuple_(order, key), tuple_(_bound(order, query.mark.value), literal(query.mark.key))
        found.append(place < after if down else place > after)
    chosen = select(order.label("place"), key.label("key")).where(*found)
    ordered = chosen.order_by(order.desc(), key.desc()) if down else chosen.order_by(order, key)
    return [Mark(_text(row["place"]), row["key"]) for row in uow.all(ordered.limit(ROWS_A_PAGE + 1))]


def _text(value: Any) -> str:
    return (
        str(value.nanos) if isinstance(value, PlatformTime) else repr(value) if isinstance(value, float) else str(value)
    )


def _bound(order: ColumnElement[Any], text: str) -> ColumnElement[Any]:
    """The value of a mark, as the column has it; raises INVALID_ARGUMENT for what is none."""
    try:
        value = _READERS[type(order.type)](text)
    except ValueError:
        raise invalid(f"this page of the list begins nowhere: {text!r} is not a value of its order", "after") from None
    return literal(value, order.type)


_READERS: Mapping[type[Any], Callable[[str], Any]] = {
    String: str,
    Integer: int,
    BigInteger: int,
    Float: float,
    PlatformTimeColumn: lambda text: PlatformTime(int(text)),
}


def _rows(
    uow: UnitOfWork, table: Table, key: Column[str], marks: Sequence[Mark], read: Callable[[Mapping[str, Any]], T]
) -> dict[str, T]:
    """By their keys."""
    return {row[key.name]: read(row) for row in uow.all(select(table).where(key.in_([mark.key for mark in marks])))}


def _by_price(nanos_per_hour: Mapping[NodeKind, int]) -> ColumnElement[int]:
    """A node's price per hour."""
    if not nanos_per_hour:
        return literal(NO_PRICE, BigInteger)
    kind = (nodes.c.zone, nodes.c.accelerator_type, nodes.c.topology, nodes.c.usage_class)
    prices = [
        (and_(*(column == value for column, value in zip(kind, dataclasses.astuple(one), strict=True))), nanos)
        for one, nanos in nanos_per_hour.items()
    ]
    return case(*prices, else_=literal(NO_PRICE, BigInteger))


def _escape(text: str) -> str:
    """For LIKE: the signs that stand for others stand for themselves."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
