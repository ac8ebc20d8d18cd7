"""Lists of nodes and jobs as pages show them: filtered, sorted and cut by the database.

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
from podyard.db.compute.nodes import to_record
from podyard.db.compute.queued_resources import to_record as to_queued_record
from podyard.db.compute.reservations import to_reservation
from podyard.db.jobs.jobs import to_job
from podyard.db.jobs.slices import is_any_on
from podyard.db.platform.agents import to_agent
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import agents, nodes
from podyard.db.tables.jobs import jobs
from podyard.db.tables.queue import queued_resources, reservations
from podyard.db.tables.types import PlatformTimeColumn, RealTimeColumn
from podyard.domain.agent import AgentRecord, AgentState
from podyard.domain.job import ACTIVE_JOB_STATES, Job
from podyard.domain.listing import ROWS_A_PAGE, Facet, ListQuery, Mark, NodeKind, RowPage, cut_page
from podyard.domain.node import NodeRecord, NodeState, Road
from podyard.domain.queued_resource import QueuedResourceRecord
from podyard.domain.reservation import Reservation

T = TypeVar("T")
NO_PRICE = -1  # of a node without a price: it comes last among the dearest


@dataclasses.dataclass(frozen=True, slots=True)
class _Listed:
    """A table that lists are made of. `key`: its primary key, which is drawn at random. `name`:
    unique among the rows that are listed; rows that are alike in the order of the list go by it, so
    that every order is total and the same for every yard. `facets`: by the names that `ListQuery`
    has; `texts`: what a text is looked for in."""

    table: Table
    key: Column[str]
    name: ColumnElement[str]
    orders: Mapping[str, ColumnElement[Any]]
    facets: Mapping[str, ColumnElement[str]]
    texts: Sequence[ColumnElement[str]]
    has_labels: bool = False


def _facets_of(table: Table) -> dict[str, ColumnElement[str]]:
    return {
        "state": table.c.state,
        "zone": table.c.zone,
        "accelerator_type": table.c.accelerator_type,
    }


# Orders are columns by which a list can be sorted, by the names that addresses use.
_NODES = _Listed(
    nodes,
    nodes.c.node_key,
    nodes.c.live_name,
    {
        "name": nodes.c.node_id,
        "state": nodes.c.state,
        "zone": nodes.c.zone,
        "type": nodes.c.accelerator_type,
        "hosts": nodes.c.host_count,
        "usage": nodes.c.usage_class,
        "created": nodes.c.created,
        "by": nodes.c.created_by,
    },
    _facets_of(nodes),
    (
        nodes.c.node_id,
        nodes.c.accelerator_type,
        nodes.c.state_reason,
        nodes.c.wait_reason,
        nodes.c.created_by,
    ),
    has_labels=True,
)
_JOBS = _Listed(
    jobs,
    jobs.c.job_key,
    jobs.c.job_id.concat("/").concat(jobs.c.zone),
    {
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
    },
    _facets_of(jobs),
    (
        jobs.c.job_id,
        jobs.c.node_id,
        jobs.c.accelerator_type,
        jobs.c.state_reason,
        jobs.c.created_by,
        jobs.c.sweep_id,
    ),
    has_labels=True,
)
_WANTED_TYPE = queued_resources.c.spec[("nodes", 0, "spec", "accelerator_type")].as_string()
_QUEUED = _Listed(
    queued_resources,
    queued_resources.c.queued_resource_key,
    queued_resources.c.live_name,
    {
        "name": queued_resources.c.queued_resource_id,
        "state": queued_resources.c.state,
        "zone": queued_resources.c.zone,
        "type": _WANTED_TYPE,
        "usage": queued_resources.c.usage_class,
        "created": queued_resources.c.created,
    },
    {
        "state": queued_resources.c.state,
        "zone": queued_resources.c.zone,
        "accelerator_type": _WANTED_TYPE,
    },
    (
        queued_resources.c.queued_resource_id,
        queued_resources.c.wait_reason,
        queued_resources.c.error_message,
    ),
)
_RESERVATIONS = _Listed(
    reservations,
    reservations.c.reservation_key,
    reservations.c.live_name,
    {
        "name": reservations.c.reservation_id,
        "state": reservations.c.state,
        "zone": reservations.c.zone,
        "generation": reservations.c.generation,
        "size": reservations.c.size,
        "created": reservations.c.created,
    },
    {
        "state": reservations.c.state,
        "zone": reservations.c.zone,
        "accelerator_type": reservations.c.generation,
    },
    (reservations.c.reservation_id, reservations.c.generation),
)
_AGENTS = _Listed(
    agents,
    agents.c.agent_id,
    agents.c.agent_id,
    {
        "name": agents.c.agent_id,
        "address": agents.c.bind_address,
        "cores": agents.c.cores,
        "memory": agents.c.memory_bytes,
        "seen": agents.c.seen,
    },
    {},  # whether one is gone depends on the time
    (agents.c.agent_id, agents.c.host_name, agents.c.bind_address, agents.c.problem),
)
_NODES_LIVE = nodes.c.live_name.is_not(None)  # an index has all that is counted of these
_ON_TPU_ROAD = nodes.c.road == Road.TPU  # instances have other pages
_QUEUED_LIVE = queued_resources.c.live_name.is_not(None)
_RESERVATIONS_LIVE = reservations.c.live_name.is_not(None)
_AGENTS_THERE = agents.c.state != AgentState.REMOVED.value


def node_page(
    uow: UnitOfWork, project: str, query: ListQuery, nanos_per_hour: Mapping[NodeKind, int]
) -> RowPage[NodeRecord]:
    """The live nodes of a page. `nanos_per_hour`: the prices by which the order `price` goes; of a
    kind without one the price is lower than any."""
    which = _live_nodes(project, query)
    order = _by_price(nanos_per_hour) if query.sort == "price" else None
    return _page(uow, _NODES, query, which, to_record, order)


def node_page_by_cost(
    uow: UnitOfWork, project: str, query: ListQuery, costs: Mapping[str, int]
) -> RowPage[NodeRecord]:
    """The live nodes of a page by cost so far. `costs`: by key, in any unit; 0 for those that it
    leaves out. Costs are no column of the database, so the order is made here."""
    keys = select(nodes.c.node_key, nodes.c.live_name).where(
        *_live_nodes(project, query), *_conditions(_NODES, query)
    )
    down = query.descending != query.backwards
    ordered = sorted(
        ((costs.get(row.node_key, 0), row.live_name, row.node_key) for row in uow.execute(keys)),
        reverse=down,
    )
    if query.mark is not None:
        place = (_whole_cost(query.mark.value), query.mark.key)
        ordered = [row for row in ordered if (row[:2] < place if down else row[:2] > place)]
    ordered = ordered[: ROWS_A_PAGE + 1]
    whole = select(nodes).where(nodes.c.node_key.in_([key for _, _, key in ordered]))
    by_name = {row["live_name"]: to_record(row) for row in uow.all(whole)}
    return cut_page(query, [Mark(str(cost), name) for cost, name, _ in ordered], by_name)


def _live_nodes(project: str, query: ListQuery) -> list[ColumnElement[bool]]:
    which = [nodes.c.project == project, _NODES_LIVE, _ON_TPU_ROAD]
    if query.idle:
        which += [nodes.c.state == NodeState.READY, ~is_any_on(jobs.c.state.in_(ACTIVE_JOB_STATES))]
    return which


def _whole_cost(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _not_a_place(text) from None


def job_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[Job]:
    return _page(uow, _JOBS, query, [jobs.c.project == project], to_job)


def queued_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[QueuedResourceRecord]:
    """The live ones."""
    return _page(
        uow, _QUEUED, query, [queued_resources.c.project == project, _QUEUED_LIVE], to_queued_record
    )


def reservation_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[Reservation]:
    """The live ones."""
    which = [reservations.c.project == project, _RESERVATIONS_LIVE]
    return _page(uow, _RESERVATIONS, query, which, to_reservation)


def agent_page(uow: UnitOfWork, query: ListQuery) -> RowPage[AgentRecord]:
    """Those that are not removed."""
    return _page(uow, _AGENTS, query, [_AGENTS_THERE], to_agent)


def node_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    """Of the live nodes of a project."""
    return _facets(uow, _NODES, nodes.c.project == project, _NODES_LIVE, _ON_TPU_ROAD)


def job_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    return _facets(uow, _JOBS, jobs.c.project == project)


def queued_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    return _facets(uow, _QUEUED, queued_resources.c.project == project, _QUEUED_LIVE)


def reservation_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    """Their generations stand for types."""
    return _facets(uow, _RESERVATIONS, reservations.c.project == project, _RESERVATIONS_LIVE)


def agent_facets(uow: UnitOfWork) -> list[Facet]:
    """One that counts them all."""
    return _facets(uow, _AGENTS, _AGENTS_THERE)


def node_kinds(uow: UnitOfWork, project: str) -> list[NodeKind]:
    """Return what kinds of nodes there are among the live ones of a project."""
    columns = (nodes.c.zone, nodes.c.accelerator_type, nodes.c.topology, nodes.c.usage_class)
    of_project = select(*columns).where(nodes.c.project == project, _NODES_LIVE, _ON_TPU_ROAD)
    return [NodeKind(**row) for row in uow.all(of_project.distinct())]


def _facets(uow: UnitOfWork, listed: _Listed, *which: ColumnElement[bool]) -> list[Facet]:
    columns = [
        listed.facets.get(name, literal("")).label(name)
        for name in ("state", "zone", "accelerator_type")
    ]
    # by their labels: PostgreSQL does not see that two paths into JSON are one
    grouped = list(listed.facets)
    query = (
        select(*columns, func.count().label("rows"))
        .where(*which)
        .group_by(*grouped)
        .order_by(*grouped)
    )
    return [Facet(**row) for row in uow.all(query)]


def _page(
    uow: UnitOfWork,
    listed: _Listed,
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
    whole = select(listed.table).where(listed.key.in_([row["key"] for row in rows]))
    by_key = {row[listed.key.name]: row for row in uow.all(whole)}
    marks = [Mark(_text(row["place"]), row["name"]) for row in rows]
    return cut_page(query, marks, {row["name"]: read(by_key[row["key"]]) for row in rows})


def _conditions(listed: _Listed, query: ListQuery) -> list[ColumnElement[bool]]:
    wanted = {"state": query.state, "zone": query.zone, "accelerator_type": query.accelerator_type}
    found = [column == wanted[name] for name, column in listed.facets.items() if wanted[name]]
    if query.label and listed.has_labels:
        name, equals, value = query.label.partition("=")
        stored = listed.table.c.spec["labels"][name].as_string()
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


def _by_price(nanos_per_hour: Mapping[NodeKind, int]) -> ColumnElement[int]:
    """A node's price per hour."""
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
