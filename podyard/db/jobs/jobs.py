"""Jobs, as records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, case, exists, func, or_, select

from podyard.base.clock import PlatformTime
from podyard.db.jobs.slices import has_slice_on
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes
from podyard.db.tables.jobs import attempts, jobs
from podyard.domain.job import (
    ACTIVE_JOB_STATES,
    ENDED_JOB_STATES,
    WAITING_JOB_STATES,
    Job,
    JobSpec,
    JobState,
    job_name,
    slice_node_ids,
)
from podyard.domain.lists.pages import RowQuery
from podyard.domain.node import node_name

_ALL = select(jobs).order_by(jobs.c.job_key)
_BY_KEY = select(jobs).where(jobs.c.job_key == bindparam("key"))
_BY_NAME = select(jobs).where(
    jobs.c.project == bindparam("project"),
    jobs.c.zone == bindparam("zone"),
    jobs.c.job_id == bindparam("id"),
)
_PINNED = select(jobs.c.pinned_steps).where(jobs.c.job_key == bindparam("key"))
_ON_NODE = select(jobs).where(has_slice_on(bindparam("key"))).order_by(jobs.c.created.desc())
_WAITING = _ALL.where(jobs.c.state.in_(WAITING_JOB_STATES))
_IS_ANY_WAITING = select(jobs.c.job_key).where(jobs.c.state.in_(WAITING_JOB_STATES)).limit(1)
_WAITING_WITH_NODE = _WAITING.where(
    jobs.c.project == bindparam("project"),
    exists().where(nodes.c.node_key == jobs.c.node_key, nodes.c.ready_since.is_not(None)),
)
_NAMES_WITH_OWN_NODE = select(jobs.c.job_key, jobs.c.node_key, jobs.c.zone, jobs.c.job_id).where(
    jobs.c.project == bindparam("project"), jobs.c.owns_node, jobs.c.state.in_(ACTIVE_JOB_STATES)
)
_RUNNING = select(
    jobs.c.job_id, jobs.c.node_id, jobs.c.spec["num_nodes"].as_integer().label("num_nodes")
).where(
    jobs.c.project == bindparam("project"),
    func.coalesce(func.nullif(jobs.c.node_zone, ""), jobs.c.zone) == bindparam("zone"),
    jobs.c.state.in_(
        [
            state
            for state in JobState
            if state not in ENDED_JOB_STATES and state not in WAITING_JOB_STATES
        ]
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class NamedJob:
    """A job by its full name. `node_key`: of its first node."""

    job_key: str
    node_key: str
    name: str


def find(uow: UnitOfWork, project: str, zone: str, job_id: str) -> Job | None:
    row = uow.first(_BY_NAME, {"project": project, "zone": zone, "id": job_id})
    return None if row is None else to_job(row)


def get(uow: UnitOfWork, job_key: str) -> Job:
    row = uow.first(_BY_KEY, {"key": job_key})
    assert row is not None, job_key
    return to_job(row)


def zones_of(uow: UnitOfWork, project: str, job_id: str) -> list[str]:
    """The zones that have a job of this id."""
    query = (
        select(jobs.c.zone)
        .where(jobs.c.project == project, jobs.c.job_id == job_id)
        .order_by(jobs.c.zone)
    )
    return [row["zone"] for row in uow.all(query)]


def page(uow: UnitOfWork, project: str, zone: str | None, query: RowQuery) -> list[Job]:
    """Those of one zone, or (None) of all."""
    rows = select(jobs).where(jobs.c.project == project)
    if zone is not None:
        rows = rows.where(jobs.c.zone == zone)
    return [to_job(row) for row in uow.all(select_page(rows, _COLUMNS, query))]


_COLUMNS = RowColumns(
    name=jobs.c.job_id,
    place=jobs.c.zone,
    created=jobs.c.created,
    key=jobs.c.job_key,
    fields={},
)


def newest(uow: UnitOfWork, project: str, most: int) -> list[Job]:
    """Of all zones, the newest first."""
    query = select(jobs).where(jobs.c.project == project)
    newest_first = query.order_by(jobs.c.created.desc(), jobs.c.job_key)
    return [to_job(row) for row in uow.all(newest_first.limit(most))]


def of_keys(uow: UnitOfWork, project: str, keys: Sequence[str]) -> list[Job]:
    """Those of a project among the jobs of some keys."""
    query = select(jobs).where(jobs.c.project == project, jobs.c.job_key.in_(keys))
    return [to_job(row) for row in uow.all(query.order_by(jobs.c.job_key))]


def tried_since(uow: UnitOfWork, project: str, start: PlatformTime) -> list[Job]:
    """Those with an attempt that had not ended by `start`, the oldest first."""
    lasted = (
        attempts.c.job_key == jobs.c.job_key,
        or_(attempts.c.ended.is_(None), attempts.c.ended >= start),
    )
    query = select(jobs).where(
        jobs.c.project == project, select(attempts.c.attempt_id).where(*lasted).exists()
    )
    return [to_job(row) for row in uow.all(query.order_by(jobs.c.created, jobs.c.job_key))]


def active(uow: UnitOfWork, project: str, most: int) -> list[Job]:
    """Those of a project that have not ended, the newest first."""
    query = select(jobs).where(jobs.c.project == project, jobs.c.state.in_(ACTIVE_JOB_STATES))
    return [
        to_job(row)
        for row in uow.all(query.order_by(jobs.c.created.desc(), jobs.c.job_key).limit(most))
    ]


def on_node(uow: UnitOfWork, node_key: str, limit: int | None = None) -> list[Job]:
    """Those that ran or run on a node, the newest first."""
    return [to_job(row) for row in uow.all(_ON_NODE.limit(limit), {"key": node_key})]


def of_sweep(uow: UnitOfWork, project: str, zone: str, sweep_id: str) -> list[Job]:
    """By their numbers."""
    query = select(jobs).where(
        jobs.c.project == project, jobs.c.zone == zone, jobs.c.sweep_id == sweep_id
    )
    return [to_job(row) for row in uow.all(query.order_by(jobs.c.sweep_index))]


def list_sweeps(uow: UnitOfWork, project: str, zone: str | None) -> list[tuple[str, str, int, int]]:
    """(zone, id, number of jobs, how many of them have ended), the newest first."""
    ended = func.sum(case((jobs.c.state.in_(ENDED_JOB_STATES), 1), else_=0))
    columns = (jobs.c.zone, jobs.c.sweep_id, func.count().label("jobs"), ended.label("ended"))
    query = select(*columns).where(jobs.c.project == project, jobs.c.sweep_id != "")
    if zone is not None:
        query = query.where(jobs.c.zone == zone)
    ordered = query.group_by(jobs.c.zone, jobs.c.sweep_id).order_by(
        func.max(jobs.c.created).desc(), jobs.c.sweep_id
    )
    return [
        (row["zone"], row["sweep_id"], int(row["jobs"]), int(row["ended"]))
        for row in uow.all(ordered)
    ]


def list_waiting(uow: UnitOfWork) -> list[Job]:
    return [to_job(row) for row in uow.all(_WAITING)]


def is_any_waiting(uow: UnitOfWork) -> bool:
    return uow.execute(_IS_ANY_WAITING).first() is not None


def is_any_modelled_waiting(uow: UnitOfWork) -> bool:
    """Return whether a job waits whose steps pass by the platform clock."""
    return is_any_waiting(uow) and any(job.spec.is_modelled for job in list_waiting(uow))


def list_waiting_with_node(uow: UnitOfWork, project: str) -> list[Job]:
    """Those that wait on a node that has been READY."""
    return [to_job(row) for row in uow.all(_WAITING_WITH_NODE, {"project": project})]


def names_with_own_node(uow: UnitOfWork, project: str) -> list[NamedJob]:
    """Of each job that has not ended and whose nodes the platform made for it."""
    found = uow.all(_NAMES_WITH_OWN_NODE, {"project": project})
    return [
        NamedJob(row["job_key"], row["node_key"], job_name(project, row["zone"], row["job_id"]))
        for row in found
    ]


def running_by_node(uow: UnitOfWork, project: str, zone: str) -> dict[str, str]:
    """The id of the job that runs on each node of the project in a zone, by the node's full name. A
    project may run thousands, so that records of jobs are not made."""
    found = {}
    for row in uow.execute(_RUNNING, {"project": project, "zone": zone}):
        for node_id in slice_node_ids(row.node_id, row.num_nodes or 1):
            found[node_name(project, zone, node_id)] = row.job_id
    return found


def state_counts(uow: UnitOfWork, project: str) -> dict[str, int]:
    """Return how many jobs of the project are in each state."""
    query = (
        select(jobs.c.state, func.count().label("jobs"))
        .where(jobs.c.project == project)
        .group_by(jobs.c.state)
    )
    return {row["state"]: row["jobs"] for row in uow.all(query)}


def pinned_step(uow: UnitOfWork, job_key: str) -> int | None:
    """The oldest of a job's checkpoints that another job starts from."""
    row = uow.first(_PINNED, {"key": job_key})
    return min(row["pinned_steps"], default=None) if row is not None else None


def set_reason(uow: UnitOfWork, job_key: str, reason: str) -> None:
    uow.update(jobs, {"job_key": job_key}, {"state_reason": reason})


def to_job(row: Mapping[str, Any]) -> Job:
    return Job(**{**row, "state": JobState(row["state"]), "spec": JobSpec.of_stored(row["spec"])})
