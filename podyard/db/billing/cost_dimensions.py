"""By what costs are shown: whose the seconds of nodes were, and the jobs and reservations of
nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    and_,
    bindparam,
    func,
    select,
    union_all,
)

from podyard.db.jobs.replicas import KEYS_AT_ONCE
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes
from podyard.db.tables.jobs import attempts, jobs
from podyard.db.tables.queue import reservations
from podyard.domain.invoice import JobSpan
from podyard.domain.job import Job, job_name
from podyard.domain.reservation import reservation_name

_OF_PROJECT = nodes.c.project == bindparam("project")
_COUNT = select(func.count()).where(_OF_PROJECT)
_ONE_MORE = select(nodes.c.node_key).where(_OF_PROJECT).limit(1).offset(bindparam("most"))
_FIRST_SPANS = select(
    attempts.c.attempt_id, attempts.c.started, attempts.c.ended, jobs.c.job_key, jobs.c.node_key
).join(jobs, jobs.c.job_key == attempts.c.job_key)
# Its further slices, and the nodes that it had before. They are of all of its attempts: none of
# them was READY while an attempt ran on others.
_FURTHER_SPANS = (
    select(
        attempts.c.attempt_id,
        attempts.c.started,
        attempts.c.ended,
        jobs.c.job_key,
        nodes.c.node_key,
    )
    .join(jobs, jobs.c.job_key == attempts.c.job_key)
    .join(nodes, and_(nodes.c.job_key == jobs.c.job_key, nodes.c.node_key != jobs.c.node_key))
)
_MADE_FOR = select(nodes.c.job_key, nodes.c.node_key).order_by(
    nodes.c.slice_index, nodes.c.node_key
)
_ON: BindParameter[Any] = bindparam("nodes", expanding=True)


def _in_order(first: ColumnElement[bool], further: ColumnElement[bool]) -> Select[Any]:
    spans = union_all(_FIRST_SPANS.where(first), _FURTHER_SPANS.where(further)).subquery()
    return select(spans).order_by(spans.c.started, spans.c.attempt_id)


_SPANS_OF = _in_order(
    jobs.c.project == bindparam("project"), jobs.c.project == bindparam("project")
)
_SPANS_ON = _in_order(jobs.c.node_key.in_(_ON), nodes.c.node_key.in_(_ON))
_JOBS = select(jobs.c.job_key, jobs.c.zone, jobs.c.job_id).where(
    jobs.c.project == bindparam("project")
)
_EXPORTED = (
    select(nodes.c.node_key, nodes.c.number, reservations.c.reservation_id, reservations.c.zone)
    .outerjoin(reservations, reservations.c.reservation_key == nodes.c.reservation_key)
    .where(_OF_PROJECT)
    .order_by(nodes.c.node_key)
)


@dataclasses.dataclass(frozen=True, slots=True)
class ExportedNode:
    """A node in an export, besides its usage; `reservation` is a name."""

    number: int
    reservation: str | None


def job_spans(uow: UnitOfWork, project: str, *, by_attempt: bool = False) -> list[JobSpan]:
    """When which job had which node: a span for each attempt and node. `by_attempt`: they are named
    by the attempts'
    ids instead of the jobs' keys."""
    return [
        JobSpan(row.attempt_id if by_attempt else row.job_key, row.node_key, row.started, row.ended)
        for row in uow.execute(_SPANS_OF, {"project": project})
    ]


def job_spans_on(uow: UnitOfWork, node_keys: Sequence[str]) -> list[JobSpan]:
    """As `job_spans`, of these nodes only."""
    rows = uow.execute(_SPANS_ON, {"nodes": list(node_keys)})
    return [JobSpan(row.job_key, row.node_key, row.started, row.ended) for row in rows]


def node_keys(uow: UnitOfWork, jobs: Sequence[Job]) -> dict[str, list[str]]:
    """By job, the nodes that it has and had: first that of its first slice, then the others that
    were made for it."""
    found = {job.job_key: [job.node_key] for job in jobs}
    keys = list(found)
    for place in range(0, len(keys), KEYS_AT_ONCE):
        for row in uow.execute(
            _MADE_FOR.where(nodes.c.job_key.in_(keys[place : place + KEYS_AT_ONCE]))
        ):
            if row.node_key not in found[row.job_key]:
                found[row.job_key].append(row.node_key)
    return found


def job_names(uow: UnitOfWork, project: str) -> dict[str, str]:
    """The full name of each job, by key."""
    rows = uow.execute(_JOBS, {"project": project})
    return {row.job_key: job_name(project, row.zone, row.job_id) for row in rows}


def job_labels(uow: UnitOfWork, project: str) -> dict[str, str]:
    """`ZONE/ID` of each job, by key."""
    return {
        row.job_key: f"{row.zone}/{row.job_id}" for row in uow.execute(_JOBS, {"project": project})
    }


def node_count(uow: UnitOfWork, project: str) -> int:
    """Return how many nodes the project has and has had."""
    return int(uow.execute(_COUNT, {"project": project}).scalar() or 0)


def has_more_nodes(uow: UnitOfWork, project: str, most: int) -> bool:
    """Return whether the project has had more than `most` nodes: quicker than to count them."""
    return uow.execute(_ONE_MORE, {"project": project, "most": most}).first() is not None


def exported_nodes(uow: UnitOfWork, project: str) -> dict[str, ExportedNode]:
    """By key."""
    found = {}
    for row in uow.execute(_EXPORTED, {"project": project}):
        named = (
            None
            if row.reservation_id is None
            else reservation_name(project, row.zone, row.reservation_id)
        )
        found[row.node_key] = ExportedNode(row.number, named)
    return found
