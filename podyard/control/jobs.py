"""Jobs: what users submit, see and cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid, not_found
from podyard.base.ids import check_resource_id, row_id
from podyard.control import access, gangs, nodes
from podyard.db import jobs as rows
from podyard.db import nodes as node_rows
from podyard.db.tables_jobs import job_logs, jobs, replicas
from podyard.db.transition import JOBS, born, move
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.job import JOB, JOB_EXECUTIONS, JOB_MODES, Job, JobSpec, MetricPoint, job_name
from podyard.domain.node import NodeSpec, kind_of
from podyard.domain.principal import Principal
from podyard.domain.recipes import check_arguments, check_batch
from podyard.hardware.accelerator_types import AcceleratorType

STEPS_MAX = 10_000_000  # a metric row per step: beyond this a job is a mistake in a unit


def create(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str | None,
    spec: JobSpec,
    node: str | NodeSpec,
) -> Job:
    """Accepts a job on a node that is READY (`node`: its id), or on one that is made for the job (a spec)."""
    principal.require("podyard.jobs.create", project, f"projects/{project}/locations/{zone}/jobs")
    nodes.zone_of(fleet, zone)
    access.project_row(uow, project)
    job_key = row_id(uow.streams.stream("jobs"), "job")
    job_id = job_key[:20] if job_id is None else check_resource_id(job_id, "jobId")
    if rows.row_of(uow, project, zone, job_id) is not None:
        raise PodyardError(Code.ALREADY_EXISTS, f"Resource '{job_name(project, zone, job_id)}' already exists")
    if isinstance(node, str):
        target = _ready_node(uow, principal, project, zone, node)
    else:
        operation = nodes.create(uow, fleet, principal, project, zone, job_id, node, job_key=job_key)
        target = node_rows.row_by_key(uow, operation.target_key)
    spec = _checked(spec, kind_of(target["accelerator_type"], target["topology"]))
    row = {
        "job_key": job_key,
        "project": project,
        "zone": zone,
        "job_id": job_id,
        "state_reason": "",
        "spec": rows.from_spec(spec),
        "node_key": target["node_key"],
        "node_id": target["node_id"],
        "accelerator_type": target["accelerator_type"],
        "topology": target["topology"],
        "owns_node": not isinstance(node, str),
        "attempt": 0,
        "failures": 0,
        "preemptions": 0,
        "steps_done": 0,
        "latest": {},
        "wall_seconds": 0.0,
        "modelled_seconds": 0.0,
        "estimate_model": "tpu-model",
        "created": uow.now,
        "started": None,
        "ended": None,
        "error_code": None,
        "error_message": None,
    }
    _check_room(uow, gangs.process_count(row))
    born(uow, JOBS, row, reason="submitted")
    return get(uow, principal, project, zone, job_id)


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str) -> Job:
    return rows.to_job(_row(uow, principal, "podyard.jobs.get", project, zone, job_id))


def list_jobs(uow: UnitOfWork, principal: Principal, project: str, zone: str | None) -> list[Job]:
    """The newest first."""
    principal.require("podyard.jobs.list", project, f"projects/{project}/locations/{zone or '-'}/jobs")
    query = select(jobs).where(jobs.c.project == project)
    if zone is not None:
        query = query.where(jobs.c.zone == zone)
    return [rows.to_job(row) for row in uow.all(query.order_by(jobs.c.created.desc(), jobs.c.job_key))]


def cancel(uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str) -> Job:
    """Asks a job to stop; it is CANCELLED once its last process is gone. A job that has ended stays as it is."""
    row = _row(uow, principal, "podyard.jobs.cancel", project, zone, job_id)
    if JOB.is_final(row["state"]):
        raise failed_precondition(f"job {job_id} is {row['state']}: there is nothing to cancel")
    if row["state"] == "QUEUED":
        gangs.finish_job(uow, row, "cancel", None, f"cancelled by {principal.email}")
    elif row["state"] != "CANCELLING":
        moved = move(uow, JOBS, row, "cancel", reason=f"cancelled by {principal.email}", state_reason="cancelling")
        attempt = rows.open_attempt(uow, row["job_key"])
        if attempt is None:
            gangs.finish_job(uow, moved, "cancelled", None, f"cancelled by {principal.email}")
        else:
            gangs.end(uow, attempt, "CANCELLED", f"cancelled by {principal.email}")
            gangs.settle(uow, attempt["attempt_id"])
    return get(uow, principal, project, zone, job_id)


def metrics(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str, after_step: int, limit: int
) -> list[MetricPoint]:
    """The committed step history after `after_step`, at most `limit` points."""
    row = _row(uow, principal, "podyard.jobs.get", project, zone, job_id)
    return rows.committed_points(uow, row["job_key"], after_step, limit)


def checkpoints(uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str) -> list[Mapping[str, Any]]:
    row = _row(uow, principal, "podyard.jobs.get", project, zone, job_id)
    return rows.committed_checkpoints(uow, row["job_key"])


def attempts(uow: UnitOfWork, principal: Principal, project: str, zone: str, job_id: str) -> list[Mapping[str, Any]]:
    row = _row(uow, principal, "podyard.jobs.get", project, zone, job_id)
    return rows.attempt_rows(uow, row["job_key"])


def logs(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    *,
    worker: int | None,
    after: int,
    limit: int,
) -> list[Mapping[str, Any]]:
    """Lines in the order of their time, `after` many left out: at, worker (rank), attempt's replica, seq, line."""
    row = _row(uow, principal, "podyard.jobs.get", project, zone, job_id)
    query = (
        select(job_logs.c.at, replicas.c.rank, replicas.c.fence.label("attempt"), job_logs.c.seq, job_logs.c.line)
        .join(replicas, replicas.c.replica_id == job_logs.c.replica_id)
        .where(job_logs.c.job_key == row["job_key"])
    )
    if worker is not None:
        query = query.where(replicas.c.rank == worker)
    return uow.all(query.order_by(job_logs.c.at, replicas.c.rank, job_logs.c.seq).offset(after).limit(limit))


def counts(uow: UnitOfWork, project: str) -> dict[str, int]:
    """How many jobs of the project are in each state."""
    query = select(jobs.c.state, func.count().label("jobs")).where(jobs.c.project == project).group_by(jobs.c.state)
    return {row["state"]: row["jobs"] for row in uow.all(query)}


def _checked(spec: JobSpec, kind: AcceleratorType) -> JobSpec:
    if spec.mode not in JOB_MODES:
        raise invalid(f"mode {spec.mode!r} is none of {', '.join(JOB_MODES)}", "mode")
    if spec.execution not in JOB_EXECUTIONS:
        raise invalid(f"execution {spec.execution!r} is none of {', '.join(JOB_EXECUTIONS)}", "execution")
    if spec.execution == "simulated":
        raise PodyardError(Code.UNIMPLEMENTED, "execution 'simulated' is not there yet: use 'real'")
    if not 1 <= spec.steps <= STEPS_MAX:
        raise invalid(f"steps is {spec.steps}: it must be from 1 to {STEPS_MAX}", "steps")
    limits = {
        "checkpointEverySteps": spec.checkpoint_every_steps,
        "maxFailures": spec.max_failures,
        "maxPreemptions": spec.max_preemptions,
        "seed": spec.seed,
    }
    for name, value in limits.items():
        if not 0 <= value < 2**31:
            raise invalid(f"{name} is {value}: it must be from 0 to {2**31 - 1}", name)
    check_batch(spec.global_batch, kind.core_count)
    if spec.replica_processes is not None and not 1 <= spec.replica_processes <= kind.host_count:
        text = f"replicaProcesses is {spec.replica_processes}: {kind.name} has {kind.host_count} hosts"
        raise invalid(text, "replicaProcesses")
    arguments = check_arguments(spec.recipe, spec.arguments)
    return JobSpec(**{**rows.from_spec(spec), "arguments": arguments})


def _ready_node(uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str) -> Mapping[str, Any]:
    principal.require("tpu.nodes.get", project, f"projects/{project}/locations/{zone}/nodes/{node_id}")
    row = node_rows.row_of(uow, project, zone, node_id)
    if row is None:
        raise not_found(f"projects/{project}/locations/{zone}/nodes/{node_id}")
    if row["state"] != "READY":
        raise failed_precondition(f"node {node_id} is {row['state']}: a job needs a node that is READY")
    return row


def _check_room(uow: UnitOfWork, needed: int) -> None:
    """Refuses a gang that could never be placed, with the numbers."""
    used = rows.live_replicas_by_agent(uow)
    room = {agent: free + used.get(agent, 0) for agent, free in gangs.free_replicas(uow).items()}
    if needed > sum(room.values()):
        raise failed_precondition(
            f"the job needs {needed} replicas at once, one per host, and the {len(room)} living agents hold "
            f"{sum(room.values())}: start more agents, take a smaller slice, or set replicaProcesses"
        )


def _row(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, job_id: str
) -> Mapping[str, Any]:
    name = job_name(project, zone, job_id)
    principal.require(permission, project, name)
    row = rows.row_of(uow, project, zone, job_id)
    if row is None:
        raise not_found(name)
    return row
