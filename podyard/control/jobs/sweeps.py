"""Sweeps: jobs that are submitted together, one for each row of values."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.errors import (
    Code,
    PodyardError,
    failed_precondition,
    invalid,
    invalid_field,
    not_found,
)
from podyard.base.ids import check_resource_id
from podyard.control.jobs import jobs
from podyard.db.jobs import jobs as rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.job import Job, JobRequest
from podyard.domain.node import NodeRecord, NodeSpec
from podyard.domain.principal import Principal
from podyard.domain.sweep import PARALLEL_MAX, sweep_name


def create(  # noqa: PLR0913
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    sweep_id: str,
    requests: Sequence[JobRequest],
    node: str | NodeSpec,
    parallel: int,
) -> list[Job]:
    """Accepts a job for each request: on one node (`node`: its id), or on `parallel` nodes that are
    made for them (a spec) and that they use in turn. All of them or none."""
    principal.require("podyard.jobs.create", project, f"projects/{project}/locations/{zone}/jobs")
    check_resource_id(sweep_id, "sweep_id")
    if not 1 <= parallel <= PARALLEL_MAX:
        raise invalid(f"parallel is {parallel}: it must be from 1 to {PARALLEL_MAX}", "parallel")
    if any(request.fallbacks for request in requests):
        raise invalid("the nodes of a sweep have no fallbacks", "fallbacks")
    if any(request.num_nodes > 1 for request in requests):
        raise invalid_field(
            "the jobs of a sweep run on one slice each: remove numNodes", "num_nodes"
        )
    if parallel > 1 and isinstance(node, str):
        raise invalid(
            "parallel requires acceleratorType: the jobs of one node take turns", "parallel"
        )
    if rows.of_sweep(uow, project, zone, sweep_id):
        raise PodyardError(
            Code.ALREADY_EXISTS, f"Resource '{sweep_name(project, zone, sweep_id)}' already exists"
        )
    made: list[NodeRecord] = []
    found: list[Job] = []
    for index, request in enumerate(requests):
        target = node if isinstance(node, str) or len(made) < parallel else made[index % parallel]
        job = jobs.create(
            uow,
            fleet,
            principal,
            project,
            zone,
            f"{sweep_id}-{index}",
            request,
            target,
            sweep=(sweep_id, index),
        )
        if isinstance(target, NodeSpec):
            made.append(jobs.node_of(uow, job))
        found.append(job)
    return found


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, sweep_id: str) -> list[Job]:
    """Its jobs, by their numbers."""
    name = sweep_name(project, zone, sweep_id)
    principal.require("podyard.jobs.get", project, name)
    found = rows.of_sweep(uow, project, zone, sweep_id)
    if not found:
        raise not_found(name)
    return found


def list_sweeps(
    uow: UnitOfWork, principal: Principal, project: str, zone: str | None
) -> list[tuple[str, str, int, int]]:
    """(zone, id, number of jobs, how many of them have ended) of each, the newest first."""
    principal.require(
        "podyard.jobs.list", project, f"projects/{project}/locations/{zone or '-'}/sweeps"
    )
    return rows.list_sweeps(uow, project, zone)


def cancel(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, sweep_id: str
) -> list[Job]:
    """Cancels what has not ended; the last job first, so that none takes the turn of another
    meanwhile."""
    left = [job for job in get(uow, principal, project, zone, sweep_id) if not job.has_ended]
    if not left:
        raise failed_precondition(f"every job of sweep {sweep_id} has ended")
    for job in reversed(left):
        jobs.cancel(uow, principal, project, zone, job.job_id)
    return get(uow, principal, project, zone, sweep_id)
