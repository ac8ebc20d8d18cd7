"""Attempts at jobs, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, or_, select

from podyard.db.jobs.slices import has_slice_on
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.jobs import attempts, jobs, replicas
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.replica import ReplicaState

_BY_ID = select(attempts).where(attempts.c.attempt_id == bindparam("id"))
_BY_ID_LOCKED = _BY_ID.with_for_update()
_OF_JOB = (
    select(attempts).where(attempts.c.job_key == bindparam("key")).order_by(attempts.c.attempt)
)
_OF_PROJECT = (
    select(attempts)
    .join(jobs, jobs.c.job_key == attempts.c.job_key)
    .where(jobs.c.project == bindparam("project"))
    .order_by(attempts.c.job_key, attempts.c.attempt)
)
_IS_OPEN = attempts.c.state != AttemptState.ENDED
_IS_ANY_OPEN = select(attempts.c.attempt_id).where(_IS_OPEN).limit(1)
_OPEN = select(attempts).where(attempts.c.job_key == bindparam("key"), _IS_OPEN)
_OPEN_ON_NODE = (
    select(attempts)
    .join(jobs, jobs.c.job_key == attempts.c.job_key)
    .where(has_slice_on(bindparam("node")), _IS_OPEN)
    .order_by(jobs.c.created, jobs.c.job_key)
)
_SAYS_MORE = (
    select(replicas.c.replica_id)
    .where(
        replicas.c.attempt_id == attempts.c.attempt_id,
        or_(replicas.c.outcome.is_not(None), replicas.c.state == ReplicaState.EXITED),
    )
    .exists()
)
_TO_SETTLE = (
    select(attempts.c.attempt_id)
    .where(_IS_OPEN, or_(attempts.c.state != AttemptState.RUNNING, _SAYS_MORE))
    .order_by(attempts.c.attempt_id)
)


def get(uow: UnitOfWork, attempt_id: str) -> Attempt:
    """The attempt, locked on PostgreSQL when the unit may write: the reports of a gang take
    turns."""
    row = uow.first(_BY_ID_LOCKED if uow.writable else _BY_ID, {"id": attempt_id})
    assert row is not None, attempt_id
    return to_attempt(row)


def of_job(uow: UnitOfWork, job_key: str) -> list[Attempt]:
    """By number."""
    return [to_attempt(row) for row in uow.all(_OF_JOB, {"key": job_key})]


def of_project(uow: UnitOfWork, project: str) -> dict[str, list[Attempt]]:
    """By job, then by number."""
    found: dict[str, list[Attempt]] = {}
    for row in uow.all(_OF_PROJECT, {"project": project}):
        found.setdefault(row["job_key"], []).append(to_attempt(row))
    return found


def find_open(uow: UnitOfWork, job_key: str) -> Attempt | None:
    """The attempt that has not ended, if there is one: there is never more than one."""
    row = uow.first(_OPEN, {"key": job_key})
    return None if row is None else to_attempt(row)


def list_open_on_node(uow: UnitOfWork, node_key: str) -> list[Attempt]:
    """Those of jobs on a node that have not ended, by the age of their jobs."""
    return [to_attempt(row) for row in uow.all(_OPEN_ON_NODE, {"node": node_key})]


def list_to_settle(uow: UnitOfWork) -> list[str]:
    """The ids of those that have not ended and of which more may follow than that they run."""
    return [row["attempt_id"] for row in uow.all(_TO_SETTLE)]


def is_any_open(uow: UnitOfWork) -> bool:
    return uow.first(_IS_ANY_OPEN) is not None


def to_attempt(row: Mapping[str, Any]) -> Attempt:
    parsed = {
        "state": AttemptState(row["state"]),
        "outcome": _outcome(row["outcome"]),
        "yield_outcome": _outcome(row["yield_outcome"]),
    }
    return Attempt(**{**row, **parsed})


def _outcome(text: str | None) -> AttemptOutcome | None:
    return None if text is None else AttemptOutcome(text)
