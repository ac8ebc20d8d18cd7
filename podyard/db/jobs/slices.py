"""The nodes of jobs: `jobs.node_key` for the first slice, and a row for each slice after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, bindparam, delete, or_, select

from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes
from podyard.db.tables.jobs import job_slices, jobs
from podyard.domain.job import ACTIVE_JOB_STATES, Job
from podyard.domain.job_plan import JobSlice
from podyard.domain.node import NodeState

_KEYS = (
    select(job_slices.c.node_key)
    .where(job_slices.c.job_key == bindparam("key"))
    .order_by(job_slices.c.slice_index)
)
_REMOVE = delete(job_slices).where(job_slices.c.job_key == bindparam("key"))
_ALL = select(job_slices.c.job_key, job_slices.c.node_key).order_by(
    job_slices.c.job_key, job_slices.c.slice_index
)
_OF_ACTIVE = (
    select(
        job_slices.c.job_key,
        nodes.c.node_key,
        nodes.c.node_id,
        nodes.c.state,
        nodes.c.wait_reason,
        nodes.c.reclaim_at,
    )
    .join(nodes, nodes.c.node_key == job_slices.c.node_key)
    .join(jobs, jobs.c.job_key == job_slices.c.job_key)
    .where(jobs.c.state.in_(ACTIVE_JOB_STATES))
    .order_by(job_slices.c.job_key, job_slices.c.slice_index)
)


def has_slice_on(node_key: BindParameter[Any]) -> ColumnElement[bool]:
    """Of jobs: whether one of the job's slices is this node."""
    further = select(job_slices.c.job_key).where(job_slices.c.node_key == node_key)
    return or_(jobs.c.node_key == node_key, jobs.c.job_key.in_(further))


def is_any_on(*which: ColumnElement[bool]) -> ColumnElement[bool]:
    """Of nodes: whether a job of this kind has a slice on the node. Two questions, since each of
    them has an index."""
    first = select(jobs.c.job_key).where(jobs.c.node_key == nodes.c.node_key, *which)
    further = (
        select(jobs.c.job_key)
        .join(job_slices, job_slices.c.job_key == jobs.c.job_key)
        .where(job_slices.c.node_key == nodes.c.node_key, *which)
    )
    return or_(first.exists(), further.exists())


def node_keys_of(uow: UnitOfWork, job: Job) -> list[str]:
    """The keys of a job's nodes, in the order of its slices."""
    more = uow.execute(_KEYS, {"key": job.job_key}).scalars() if job.spec.num_nodes > 1 else ()
    return [job.node_key, *more]


def keys_after_first(uow: UnitOfWork) -> dict[str, list[str]]:
    """By job, the node keys of its slices after the first."""
    found: dict[str, list[str]] = {}
    for row in uow.execute(_ALL):
        found.setdefault(row.job_key, []).append(row.node_key)
    return found


def put(uow: UnitOfWork, job_key: str, node_keys: Sequence[str]) -> None:
    """Sets the nodes of a job's slices after the first, in order."""
    uow.execute(_REMOVE, {"key": job_key})
    for index, node_key in enumerate(node_keys, 1):
        uow.insert(job_slices, {"job_key": job_key, "slice_index": index, "node_key": node_key})


def of_active_jobs(uow: UnitOfWork) -> dict[str, list[JobSlice]]:
    """The slices after the first of each job that has not ended."""
    found: dict[str, list[JobSlice]] = {}
    for row in uow.execute(_OF_ACTIVE):
        one = JobSlice(
            row.node_key, row.node_id, NodeState(row.state), row.wait_reason, row.reclaim_at
        )
        found.setdefault(row.job_key, []).append(one)
    return found
