"""What the console shows beyond what the API's use cases answer: histories and samples. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, or_, select

from podyard.control import jobs, nodes
from podyard.db import jobs as job_rows
from podyard.db.tables import state_changes
from podyard.db.tables_jobs import job_logs, job_metrics, replicas
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.job import Job, MetricPoint
from podyard.domain.principal import Principal

HISTORY_ROWS_MAX = 200  # state changes of one resource on one page, the newest


@dataclasses.dataclass(frozen=True, slots=True)
class JobHistory:
    """`reached`: the last step that each attempt reported, committed or lost."""

    points: list[MetricPoint]
    reached: Mapping[int, int]
    replica_ranks: list[int]
    log_lines: int


def node_history(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str
) -> list[Mapping[str, Any]]:
    """The state changes of a node, the newest first."""
    node = nodes.get(uow, principal, project, zone, node_id)
    query = select(state_changes).where(state_changes.c.resource_key == node.node_key)
    return uow.all(query.order_by(state_changes.c.seq.desc()).limit(HISTORY_ROWS_MAX))


def jobs_on_node(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_key: str, limit: int
) -> list[Job]:
    """The jobs that ran or run on a node, the newest first."""
    principal.require("podyard.jobs.list", project, f"projects/{project}/locations/{zone}/jobs")
    return job_rows.on_node(uow, node_key, limit)


def job_history(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str, points_max: int, rank: int | None
) -> JobHistory:
    """The committed history thinned to about `points_max` points (first and last included), and what else a job's
    page counts. `rank`: count the log lines of this replica only."""
    job = jobs.get(uow, principal, project, zone, job_id)
    stride = max(1, -(-job.steps_done // points_max))
    kept = or_(job_metrics.c.step % stride == 0, job_metrics.c.step.in_((1, job.steps_done)))
    query = select(job_metrics).where(job_rows.committed(uow, job.job_key), kept).order_by(job_metrics.c.step)
    points = [
        MetricPoint(**{name: row[name] for name in MetricPoint.__dataclass_fields__})
        for row in uow.all(query.limit(points_max + 2))
    ]
    last = select(job_metrics.c.attempt, func.max(job_metrics.c.step).label("step"))
    reached = uow.all(last.where(job_metrics.c.job_key == job.job_key).group_by(job_metrics.c.attempt))
    ranks = select(replicas.c.rank).where(replicas.c.job_key == job.job_key).distinct().order_by(replicas.c.rank)
    lines = select(func.count()).select_from(job_logs.join(replicas, replicas.c.replica_id == job_logs.c.replica_id))
    lines = lines.where(job_logs.c.job_key == job.job_key)
    if rank is not None:
        lines = lines.where(replicas.c.rank == rank)
    return JobHistory(
        points=points,
        reached={row["attempt"]: row["step"] for row in reached},
        replica_ranks=[row["rank"] for row in uow.all(ranks)],
        log_lines=int(uow.execute(lines).scalar() or 0),
    )
