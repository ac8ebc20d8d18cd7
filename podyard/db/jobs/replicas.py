"""Replicas, as records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, func, select, update

from podyard.db.jobs.slices import has_slice_on
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.jobs import attempts, jobs, replicas
from podyard.domain.replica import (
    LIVE_REPLICA_STATES,
    AttemptUse,
    Desired,
    Replica,
    ReplicaOutcome,
    ReplicaState,
)

_IS_LIVE = replicas.c.state.in_(LIVE_REPLICA_STATES)
_BY_ID = select(replicas).where(replicas.c.replica_id == bindparam("id"))
_OF_ATTEMPT = (
    select(replicas).where(replicas.c.attempt_id == bindparam("id")).order_by(replicas.c.rank)
)
_OF_JOB = select(replicas).where(replicas.c.job_key == bindparam("key")).order_by(replicas.c.rank)
_LIVE = select(replicas).where(_IS_LIVE).order_by(replicas.c.replica_id)
_LIVE_ON = _LIVE.where(replicas.c.agent_id == bindparam("id"))
_COUNTS = (
    select(replicas.c.agent_id, func.count().label("replicas"))
    .where(_IS_LIVE)
    .group_by(replicas.c.agent_id)
)
_ON_NODE = (
    select(replicas.c.replica_id)
    .join(jobs, jobs.c.job_key == replicas.c.job_key)
    .where(has_slice_on(bindparam("key")), _IS_LIVE)
    .limit(1)
)
_TO_ATTEMPT = update(replicas).where(replicas.c.attempt_id == bindparam("id"))
_SET_DESIRED = _TO_ATTEMPT.values(desired=bindparam("to"))
_REMOVE_TOKENS = _TO_ATTEMPT.values(token="")
KEYS_AT_ONCE = 500  # jobs in one query: below every database's limit of parameters
_R = replicas.c
_MACHINE_USE = (
    select(_R.job_key, attempts.c.started, func.sum(_R.cpu_micros), func.sum(_R.memory_kib_seconds))
    .join(attempts, attempts.c.attempt_id == _R.attempt_id)
    .where(_R.cpu_micros.is_not(None))
    .group_by(_R.job_key, attempts.c.attempt_id, attempts.c.started)
    .order_by(_R.job_key, attempts.c.started)
)
_TO_STOP = (
    select(replicas.c.agent_id)
    .where(replicas.c.desired == Desired.STOP, _IS_LIVE)
    .distinct()
    .order_by(replicas.c.agent_id)
)


def find(uow: UnitOfWork, replica_id: str) -> Replica | None:
    row = uow.first(_BY_ID, {"id": replica_id})
    return None if row is None else to_replica(row)


def of_attempt(uow: UnitOfWork, attempt_id: str) -> list[Replica]:
    """The gang, by rank."""
    return [to_replica(row) for row in uow.all(_OF_ATTEMPT, {"id": attempt_id})]


def of_job(uow: UnitOfWork, job_key: str) -> list[Replica]:
    """Those of all attempts, by rank."""
    return [to_replica(row) for row in uow.all(_OF_JOB, {"key": job_key})]


def list_live(uow: UnitOfWork, agent_id: str | None = None) -> list[Replica]:
    """Those whose processes may be on their chips, of one agent or (None) of all, by id."""
    rows = uow.all(_LIVE) if agent_id is None else uow.all(_LIVE_ON, {"id": agent_id})
    return [to_replica(row) for row in rows]


def live_counts(uow: UnitOfWork) -> dict[str, int]:
    """The number of live replicas by agent."""
    return {row["agent_id"]: row["replicas"] for row in uow.all(_COUNTS)}


def is_any_on(uow: UnitOfWork, node_key: str) -> bool:
    """Return whether a replica on the node is live."""
    return uow.execute(_ON_NODE, {"key": node_key}).first() is not None


def agents_to_stop(uow: UnitOfWork) -> list[str]:
    """The agents with live replicas that are to stop, by id."""
    return [row["agent_id"] for row in uow.all(_TO_STOP)]


def set_desired(uow: UnitOfWork, attempt_id: str, desired: Desired) -> None:
    uow.execute(_SET_DESIRED, {"id": attempt_id, "to": desired})


def remove_tokens(uow: UnitOfWork, attempt_id: str) -> None:
    uow.execute(_REMOVE_TOKENS, {"id": attempt_id})


def renew_lease(uow: UnitOfWork, replica_id: str, used: tuple[int, int] | None = None) -> None:
    """`used`: what it has taken of its machine so far, CPU microseconds and KiB-seconds."""
    values: dict[str, Any] = {"lease_until": uow.real_now.plus_seconds(uow.leases.replica_seconds)}
    if used is not None:
        values["cpu_micros"], values["memory_kib_seconds"] = used
    uow.update(replicas, {"replica_id": replica_id}, values)


def machine_use(uow: UnitOfWork, job_keys: Sequence[str]) -> list[AttemptUse]:
    """Of the attempts at these jobs whose replicas have said what they take."""
    found = []
    for place in range(0, len(job_keys), KEYS_AT_ONCE):
        rows: Iterable[Any] = uow.execute(
            _MACHINE_USE.where(_R.job_key.in_(job_keys[place : place + KEYS_AT_ONCE]))
        )
        found += [AttemptUse(row[0], row[1], int(row[2]), int(row[3])) for row in rows]
    return found


def to_replica(row: Mapping[str, Any]) -> Replica:
    outcome = row["outcome"]
    parsed = {
        "state": ReplicaState(row["state"]),
        "desired": Desired(row["desired"]),
        "outcome": None if outcome is None else ReplicaOutcome(outcome),
    }
    return Replica(**{**row, **parsed})
