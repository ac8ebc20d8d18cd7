"""The snapshot for decisions about jobs, read in at most four statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, func, select

from podyard.base.clock import PlatformTime
from podyard.db.jobs import slices as job_slices
from podyard.db.jobs.attempts import to_attempt
from podyard.db.jobs.jobs import to_job
from podyard.db.platform import agents
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes
from podyard.db.tables.jobs import attempts, jobs, replicas
from podyard.domain.attempt import Attempt, AttemptState
from podyard.domain.job import ACTIVE_JOB_STATES, WAITING_JOB_STATES
from podyard.domain.job_plan import ActiveJob, JobSlice, JobSnapshot
from podyard.domain.node import NodeState
from podyard.domain.replica import LIVE_REPLICA_STATES

_JOB_COLUMNS = tuple(column.name for column in jobs.c)
_ATTEMPT_COLUMNS = tuple(column.name for column in attempts.c)
_ACTIVE = (
    select(
        jobs,
        *(column.label(f"attempt_{column.name}") for column in attempts.c),
        nodes.c.state.label("node_state"),
        nodes.c.wait_reason.label("node_wait_reason"),
        nodes.c.reclaim_at.label("node_reclaim"),
    )
    .join(nodes, nodes.c.node_key == jobs.c.node_key)
    .outerjoin(
        attempts, and_(attempts.c.job_key == jobs.c.job_key, attempts.c.state != AttemptState.ENDED)
    )
    .where(jobs.c.state.in_(ACTIVE_JOB_STATES))
    .order_by(jobs.c.job_key)
)
_PLACES = (
    select(replicas.c.attempt_id, replicas.c.agent_id, func.count().label("replicas"))
    .where(replicas.c.state.in_(LIVE_REPLICA_STATES))
    .group_by(replicas.c.attempt_id, replicas.c.agent_id)
)


def load(uow: UnitOfWork, shares: Mapping[str, float]) -> JobSnapshot:
    """Places are read only if a decision goes by them: a job waits for nothing else, or one may
    change its size.
    Further slices are read only if a job has some."""
    rows = uow.all(_ACTIVE)
    several = any(row["spec"].get("num_nodes", 1) > 1 for row in rows)
    more = job_slices.of_active_jobs(uow) if several else {}
    if not any(map(_needs_places, rows)):
        return JobSnapshot(tuple(_active(row, more, {}, uow.now) for row in rows), shares=shares)
    places: dict[str, dict[str, int]] = {}
    used: dict[str, int] = {}
    for row in uow.all(_PLACES):
        places.setdefault(row["attempt_id"], {})[row["agent_id"]] = row["replicas"]
        used[row["agent_id"]] = used.get(row["agent_id"], 0) + row["replicas"]
    living = agents.list_living(uow)
    free = {agent.agent_id: agent.replicas_max - used.get(agent.agent_id, 0) for agent in living}
    draining = frozenset(agent.agent_id for agent in living if not agent.takes_work)
    return JobSnapshot(
        jobs=tuple(_active(row, more, places, uow.now) for row in rows),
        free={
            agent_id: min(0, count) if agent_id in draining else count
            for agent_id, count in free.items()
        },
        companies={agent.agent_id: agent.company for agent in living},
        draining=draining,
        shares=shares,
    )


def _needs_places(row: Mapping[str, Any]) -> bool:
    if row["attempt_attempt_id"] is not None:
        return row["spec"].get("elastic") is not None
    return row["state"] in WAITING_JOB_STATES and row["node_state"] == NodeState.READY


def _active(
    row: Mapping[str, Any],
    more: Mapping[str, Sequence[JobSlice]],
    places: Mapping[str, Mapping[str, int]],
    now: PlatformTime,
) -> ActiveJob:
    attempt: Attempt | None = None
    if row["attempt_attempt_id"] is not None:
        attempt = to_attempt({name: row[f"attempt_{name}"] for name in _ATTEMPT_COLUMNS})
    state, wait_reason, reclaim = (
        row[f"node_{name}"] for name in ("state", "wait_reason", "reclaim")
    )
    first = JobSlice(row["node_key"], row["node_id"], NodeState(state), wait_reason, reclaim)
    return ActiveJob(
        job=to_job({name: row[name] for name in _JOB_COLUMNS}),
        attempt=attempt,
        places={} if attempt is None else places.get(attempt.attempt_id, {}),
        slices=(first, *more.get(row["job_key"], ())),
        retry_at=retry_at if (retry_at := row["retry_at"]) is not None and retry_at > now else None,
    )
