"""What the console shows beyond what the API's use cases answer: histories and samples. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.control.compute import nodes
from podyard.control.jobs import jobs
from podyard.db import job_history, job_logs, state_changes
from podyard.db import jobs as job_rows
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.job_history import MetricPoint
from podyard.domain.principal import Principal
from podyard.domain.state_change import StateChange

HISTORY_ROWS_MAX = 200  # state changes of one resource on one page, the newest


@dataclasses.dataclass(frozen=True, slots=True)
class JobHistory:
    """`reached`: the last step that each attempt reported, committed or lost."""

    points: list[MetricPoint]
    reached: Mapping[int, int]
    replica_ranks: list[int]
    log_lines: int


def node_history(uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str) -> list[StateChange]:
    """The state changes of a node, the newest first."""
    node = nodes.get(uow, principal, project, zone, node_id)
    return state_changes.newest(uow, node.node_key, HISTORY_ROWS_MAX)


def jobs_on_node(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_key: str, limit: int
) -> list[Job]:
    """The jobs that ran or run on a node, the newest first."""
    principal.require("podyard.jobs.list", project, f"projects/{project}/locations/{zone}/jobs")
    return job_rows.on_node(uow, node_key, limit)


def history_of_job(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str, points_max: int, rank: int | None
) -> JobHistory:
    """The committed history thinned to about `points_max` points (first and last included), and what else a job's
    page counts. `rank`: count the log lines of this replica only."""
    job = jobs.get(uow, principal, project, zone, job_id)
    return JobHistory(
        points=job_history.thinned_points(uow, job.job_key, points_max),
        reached=job_history.last_steps(uow, job.job_key),
        replica_ranks=job_logs.ranks_of(uow, job.job_key),
        log_lines=job_logs.line_count(uow, job.job_key, rank),
    )
