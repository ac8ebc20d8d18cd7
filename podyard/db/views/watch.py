"""Reads of a simulation's watch after each step: a few columns, and only of what has changed."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from podyard.base.clock import PlatformTime
from podyard.db.jobs.slices import has_slice_on
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes, slices
from podyard.db.tables.jobs import attempts, jobs
from podyard.db.tables.queue import queued_resources
from podyard.domain.attempt import AttemptState
from podyard.domain.job import WAITING_JOB_STATES
from podyard.domain.node import NodeState, UsageClass
from podyard.domain.queued_resource import QueuedResourceState
from podyard.domain.slice import chips_from_text

_NEW_SLICES = select(slices.c.slice_id, slices.c.pod_id, slices.c.chips).where(
    slices.c.created >= bindparam("since", type_=slices.c.created.type)
)
_SLICE = select(slices.c.slice_id).where(slices.c.node_key == nodes.c.node_key)
_NODE = select(nodes.c.state, nodes.c.usage_class, _SLICE.exists().label("placed")).where(
    nodes.c.node_key == bindparam("key")
)
_GANG = (
    select(attempts.c.state)
    .join(jobs, jobs.c.job_key == attempts.c.job_key)
    .where(has_slice_on(bindparam("key")), attempts.c.state != AttemptState.ENDED)
)
_SILENT = (
    select(queued_resources.c.queued_resource_key).where(
        queued_resources.c.state == QueuedResourceState.WAITING_FOR_RESOURCES,
        queued_resources.c.wait_reason == "",
        queued_resources.c.created < bindparam("before", type_=queued_resources.c.created.type),
    ),
    select(jobs.c.job_key).where(
        jobs.c.state.in_(WAITING_JOB_STATES),
        jobs.c.state_reason == "",
        jobs.c.created < bindparam("before", type_=jobs.c.created.type),
    ),
)


def new_slices(uow: UnitOfWork, since: PlatformTime) -> list[tuple[str, str, int]]:
    """(id, pod, bit set of chips) of each slice that was made since then."""
    rows = uow.execute(_NEW_SLICES, {"since": since})
    return [(row.slice_id, row.pod_id, chips_from_text(row.chips)) for row in rows]


def node(uow: UnitOfWork, node_key: str) -> tuple[NodeState, UsageClass, bool] | None:
    """(state, usage class, whether it has a slice)"""
    row = uow.execute(_NODE, {"key": node_key}).first()
    return (
        None
        if row is None
        else (NodeState(row.state), UsageClass(row.usage_class), bool(row.placed))
    )


def attempts_on(uow: UnitOfWork, node_key: str) -> set[AttemptState]:
    """The states of the attempts on a node that have not ended."""
    return {AttemptState(state) for state in uow.execute(_GANG, {"key": node_key}).scalars()}


def silent(uow: UnitOfWork, before: PlatformTime) -> list[str]:
    """Keys of queued resources and jobs that have waited since before that moment and do not say
    why."""
    return [key for query in _SILENT for key in uow.execute(query, {"before": before}).scalars()]
