"""Lists of nodes and jobs as pages show them: filtered, sorted and cut by the database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Table

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
from podyard.db.views.list_queries import ListedTable, by_price, facets, kinds, page, page_by_cost
from podyard.domain.agent import AgentRecord, AgentState
from podyard.domain.job import ACTIVE_JOB_STATES, Job
from podyard.domain.listing import Facet, ListQuery, NodeKind, RowPage
from podyard.domain.node import NodeRecord, NodeState, Road
from podyard.domain.queued_resource import QueuedResourceRecord
from podyard.domain.reservation import Reservation


def _facets_of(table: Table) -> dict[str, ColumnElement[str]]:
    return {
        "state": table.c.state,
        "zone": table.c.zone,
        "accelerator_type": table.c.accelerator_type,
    }


# Orders are columns by which a list can be sorted, by the names that addresses use.
_NODES = ListedTable(
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
    labels=nodes.c.spec["labels"],
)
_JOBS = ListedTable(
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
    labels=jobs.c.spec["labels"],
)
_WANTED_TYPE = queued_resources.c.spec[("nodes", 0, "spec", "accelerator_type")].as_string()
_QUEUED = ListedTable(
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
_RESERVATIONS = ListedTable(
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
_AGENTS = ListedTable(
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
    order = by_price(nanos_per_hour) if query.sort == "price" else None
    return page(uow, _NODES, query, which, to_record, order)


def node_page_by_cost(
    uow: UnitOfWork, project: str, query: ListQuery, costs: Mapping[str, int]
) -> RowPage[NodeRecord]:
    """The live nodes of a page by cost so far. `costs`: by key, in any unit."""
    return page_by_cost(uow, _NODES, query, _live_nodes(project, query), costs, to_record)


def _live_nodes(project: str, query: ListQuery) -> list[ColumnElement[bool]]:
    which = [nodes.c.project == project, _NODES_LIVE, _ON_TPU_ROAD]
    if query.idle:
        which += [nodes.c.state == NodeState.READY, ~is_any_on(jobs.c.state.in_(ACTIVE_JOB_STATES))]
    return which


def job_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[Job]:
    return page(uow, _JOBS, query, [jobs.c.project == project], to_job)


def queued_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[QueuedResourceRecord]:
    """The live ones."""
    return page(
        uow, _QUEUED, query, [queued_resources.c.project == project, _QUEUED_LIVE], to_queued_record
    )


def reservation_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[Reservation]:
    """The live ones."""
    which = [reservations.c.project == project, _RESERVATIONS_LIVE]
    return page(uow, _RESERVATIONS, query, which, to_reservation)


def agent_page(uow: UnitOfWork, query: ListQuery) -> RowPage[AgentRecord]:
    """Those that are not removed."""
    return page(uow, _AGENTS, query, [_AGENTS_THERE], to_agent)


def node_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    """Of the live nodes of a project."""
    return facets(uow, _NODES, nodes.c.project == project, _NODES_LIVE, _ON_TPU_ROAD)


def job_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    return facets(uow, _JOBS, jobs.c.project == project)


def queued_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    return facets(uow, _QUEUED, queued_resources.c.project == project, _QUEUED_LIVE)


def reservation_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    """Their generations stand for types."""
    return facets(uow, _RESERVATIONS, reservations.c.project == project, _RESERVATIONS_LIVE)


def agent_facets(uow: UnitOfWork) -> list[Facet]:
    """One that counts them all."""
    return facets(uow, _AGENTS, _AGENTS_THERE)


def node_kinds(uow: UnitOfWork, project: str) -> list[NodeKind]:
    """Return what kinds of nodes there are among the live ones of a project."""
    return kinds(uow, nodes.c.project == project, _NODES_LIVE, _ON_TPU_ROAD)
