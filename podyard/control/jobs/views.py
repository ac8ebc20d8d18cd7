"""Views of the console, beyond what the API's use cases answer: histories and samples. Reads
only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.log_files import LogFiles
from podyard.control.compute import nodes
from podyard.control.jobs import jobs, log_reader
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.jobs import history as job_history
from podyard.db.jobs import jobs as job_rows
from podyard.db.jobs import logs as job_logs
from podyard.db.platform import state_changes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.job_history import MetricPoint
from podyard.domain.log import LogLine
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
    last_lines: list[LogLine]


@dataclasses.dataclass(frozen=True, slots=True)
class JobCurve:
    """As in `JobHistory`."""

    points: list[MetricPoint]
    reached: Mapping[int, int]


def node_history(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str
) -> list[StateChange]:
    """The state changes of a node, the newest first."""
    node = nodes.get(uow, principal, project, zone, node_id)
    return state_changes.newest(uow, node.node_key, HISTORY_ROWS_MAX)


def jobs_on_node(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_key: str, limit: int
) -> list[Job]:
    """The jobs that ran or run on a node, the newest first."""
    principal.require("podyard.jobs.list", project, f"projects/{project}/locations/{zone}/jobs")
    return job_rows.on_node(uow, node_key, limit)


def active_jobs(uow: UnitOfWork, principal: Principal, project: str, limit: int) -> list[Job]:
    """The jobs that have not ended, the newest first."""
    principal.require("podyard.jobs.list", project, f"projects/{project}/locations/-/jobs")
    return job_rows.active(uow, project, limit)


def newest_changes(
    uow: UnitOfWork, principal: Principal, project: str, limit: int
) -> list[StateChange]:
    """The newest state changes in a project, the newest first."""
    principal.require("tpu.nodes.list", project, f"projects/{project}/locations/-/nodes")
    return state_changes.newest_of_project(uow, project, limit)


def curve_of_job(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str, points_max: int
) -> JobCurve:
    """The committed history, thinned to about `points_max` points (first and last included)."""
    key = jobs.get(uow, principal, project, zone, job_id).job_key
    return JobCurve(
        job_history.thinned_points(uow, key, points_max), job_history.last_steps(uow, key)
    )


def history_of_job(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    files: LogFiles,
    chosen: LineFilter,
    points_max: int,
    lines_max: int,
) -> JobHistory:
    """The committed history thinned to about `points_max` points (first and last included), and
    what else a job's
    page counts. `chosen`: the log lines that are shown; those of its worker are counted."""
    job = jobs.get(uow, principal, project, zone, job_id)
    return JobHistory(
        points=job_history.thinned_points(uow, job.job_key, points_max),
        reached=job_history.last_steps(uow, job.job_key),
        replica_ranks=job_logs.ranks_of(uow, job.job_key),
        log_lines=job_logs.line_count(uow, job.job_key, chosen.worker),
        last_lines=log_reader.tail(uow, files, job.job_key, chosen, lines_max),
    )
