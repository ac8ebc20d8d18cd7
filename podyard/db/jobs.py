"""Rows of jobs, attempts and replicas to records, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, false, func, or_, select

from podyard.base.errors import Code
from podyard.db import attempts, replicas
from podyard.db.tables_jobs import checkpoints, job_evaluations, job_metrics, jobs
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt, committed_ranges
from podyard.domain.job import (
    JOB,
    Elastic,
    Job,
    JobSpec,
    MetricPoint,
    StartFrom,
)
from podyard.domain.node import kind_of
from podyard.domain.replica import ReplicaOutcome
from podyard.domain.training import training_of

ACTIVE_JOB_STATES = tuple(sorted(state for state in JOB.states() if not JOB.is_final(state)))


def row_of(uow: UnitOfWork, project: str, zone: str, job_id: str) -> Mapping[str, Any] | None:
    query = select(jobs).where(jobs.c.project == project, jobs.c.zone == zone, jobs.c.job_id == job_id)
    return uow.first(query)


def zones_of(uow: UnitOfWork, project: str, job_id: str) -> list[str]:
    """The zones that have a job of this id."""
    query = select(jobs.c.zone).where(jobs.c.project == project, jobs.c.job_id == job_id).order_by(jobs.c.zone)
    return [row["zone"] for row in uow.all(query)]


def row_by_key(uow: UnitOfWork, job_key: str) -> Mapping[str, Any]:
    row = uow.first(_BY_KEY, {"key": job_key})
    assert row is not None, job_key
    return row


_BY_KEY = select(jobs).where(jobs.c.job_key == bindparam("key"))


def active_on_node(uow: UnitOfWork, node_key: str) -> list[Mapping[str, Any]]:
    return uow.all(_ACTIVE_ON, {"key": node_key})


_ACTIVE_ON = (
    select(jobs)
    .where(jobs.c.node_key == bindparam("key"), jobs.c.state.in_(ACTIVE_JOB_STATES))
    .order_by(jobs.c.created, jobs.c.job_key)
)


def to_job(row: Mapping[str, Any]) -> Job:
    fields = {name: row[name] for name in Job.__dataclass_fields__ if name != "spec"}
    return Job(**fields, spec=to_spec(row["spec"]))


def from_spec(spec: JobSpec) -> dict[str, Any]:
    return dataclasses.asdict(spec)


def to_spec(stored: Mapping[str, Any]) -> JobSpec:
    """The spec of a row; one that an older Podyard wrote has the usual values for what is new."""
    elastic, start_from = stored.get("elastic"), stored.get("start_from")
    nested = {
        "training": training_of(stored.get("training", {})),
        "elastic": elastic and Elastic(**elastic),
        "start_from": start_from and StartFrom(**start_from),
    }
    return JobSpec(**{**stored, **nested})


def size_of(attempt: Attempt, job: Mapping[str, Any]) -> tuple[int, int]:
    """(hosts, global batch) of an attempt of `job`."""
    hosts, batch = attempt.host_count, attempt.global_batch
    whole = kind_of(job["accelerator_type"], job["topology"]).host_count
    return whole if hosts is None else hosts, job["spec"]["global_batch"] if batch is None else batch


def refusal_of(uow: UnitOfWork, attempt_id: str) -> tuple[Code, str] | None:
    """Code and message of what no other attempt would find otherwise, if a replica has said so ("CODE: message")."""
    gang = replicas.of_attempt(uow, attempt_id)
    reason = next((replica.reason for replica in gang if replica.outcome is ReplicaOutcome.REFUSED), None)
    if reason is None:
        return None
    name, _, message = reason.partition(": ")
    return (Code[name], message) if name in Code.__members__ else (Code.INVALID_ARGUMENT, reason)


def committed(uow: UnitOfWork, job_key: str) -> ColumnElement[bool]:
    """The condition on `job_metrics` (or, by the same columns, `checkpoints`) that keeps the committed history."""
    return _committed(uow, job_key, job_metrics)


def committed_points(uow: UnitOfWork, job_key: str, after_step: int, limit: int) -> list[MetricPoint]:
    query = select(job_metrics).where(committed(uow, job_key), job_metrics.c.step > after_step)
    found = uow.all(query.order_by(job_metrics.c.step).limit(limit))
    return [MetricPoint(**{name: row[name] for name in MetricPoint.__dataclass_fields__}) for row in found]


def committed_checkpoints(uow: UnitOfWork, job_key: str) -> list[Mapping[str, Any]]:
    """The checkpoints of the committed history, the newest step first."""
    query = select(checkpoints).where(_committed(uow, job_key, checkpoints))
    return uow.all(query.order_by(checkpoints.c.step.desc()))


def committed_evaluations(uow: UnitOfWork, job_key: str) -> list[Mapping[str, Any]]:
    """The evaluations of the committed history, by step.

    The step that an attempt resumed from may have been evaluated before it or by it: the newer one counts.
    """
    query = select(job_evaluations).where(_committed(uow, job_key, job_evaluations, before_first=1))
    found = uow.all(query.order_by(job_evaluations.c.step, job_evaluations.c.attempt))
    return list({row["step"]: row for row in found}.values())


def modelled_seconds_until(uow: UnitOfWork, job_key: str, last_step: int) -> float:
    query = select(func.sum(job_metrics.c.modelled_seconds)).where(
        committed(uow, job_key), job_metrics.c.step <= last_step
    )
    return float(uow.execute(query).scalar() or 0.0)


def _committed(uow: UnitOfWork, job_key: str, table: Any, before_first: int = 0) -> ColumnElement[bool]:
    """`before_first`: how many steps before an attempt's first one count as well."""
    pieces = []
    for attempt, first, last in committed_ranges(attempts.of_job(uow, job_key)):
        piece = and_(table.c.attempt == attempt, table.c.step >= first - before_first)
        pieces.append(piece if last is None else and_(piece, table.c.step <= last))
    return and_(table.c.job_key == job_key, or_(false(), *pieces))
