"""Resizing a job to another accelerator type: it saves a checkpoint and stops, its nodes are given
back, and it goes on on nodes of the new type that are made for it.

Until these nodes have their chips, the former type stays the job's fallback.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.control.access import identity
from podyard.control.compute import lookup, node_checks, ports, quota
from podyard.control.compute.quota import QuotaLeft
from podyard.control.compute.rooms import RoomView
from podyard.control.jobs import gangs, jobs, own_nodes
from podyard.db.jobs import attempts
from podyard.db.store.transition import store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.fleet import Fleet, quota_units, region_of
from podyard.domain.gang import allowed_sizes
from podyard.domain.job import Fallback, Job, JobSpec, JobState
from podyard.domain.job_request import check_on
from podyard.domain.node import NodeRecord, NodeSpec
from podyard.domain.principal import Principal
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.runtime_versions import job_versions_of
from podyard.scheduler.probe import ProbedRoom

TYPES_SHOWN_MAX = 12  # a choice to read: the nearest sizes below and above


@dataclasses.dataclass(frozen=True, slots=True)
class TypeOption:
    """A type that a job could go on on. `refusal`: why it cannot; empty: it can. `room` counts the
    job's own nodes as given back, and so does `quota`."""

    kind: AcceleratorType
    spec: NodeSpec
    room: ProbedRoom
    quota: QuotaLeft
    refusal: str


def resize(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    type_name: str,
) -> Job:
    """Ask a job to save a checkpoint and to go on on another type.

    Raises FAILED_PRECONDITION for a job that keeps its type, INVALID_ARGUMENT for a type that it
    cannot run on, RESOURCE_EXHAUSTED where quota or budget do not allow the new nodes.
    """
    job = lookup.job(uow, principal, "podyard.jobs.resize", project, zone, job_id)
    principal.require("tpu.nodes.create", project, f"projects/{project}/locations/{zone}")
    if (why := keeps_type(job)) is not None:
        raise failed_precondition(why)
    owner = identity.project_row(uow, project)
    slices = jobs.nodes_of(uow, job)
    spec = _check(uow, fleet, job, slices, type_name)
    wanted = [(node_id, spec) for node_id in job.spec.node_ids(job.job_id)]
    ports.spending.admit(uow, owner.project, job.created_by, wanted, of_job=True)
    text = f"{principal.email} resizes the job from {job.accelerator_type} to {type_name}"
    store(
        uow,
        job,
        dataclasses.replace(
            job, spec=dataclasses.replace(job.spec, next_type=type_name), state_reason=text
        ),
    )
    attempt = attempts.find_open(uow, job.job_key)
    if attempt is not None:
        _ask_to_leave(uow, attempt, text)
    return jobs.get(uow, principal, project, zone, job_id)


def keeps_type(job: Job) -> str | None:
    """Return why a job cannot be resized to another type now; None: it can."""
    name = f"job {job.job_id}"
    if job.has_ended or job.state is JobState.CANCELLING:
        return f"{name} is {job.state} and cannot be resized"
    if job.spec.next_type:
        return f"{name} is already being resized to {job.spec.next_type}: wait until it runs there"
    if job.spec.is_modelled:
        return f"{name} is simulated and keeps its type, since its steps are timed for it"
    if job.sweep_id:
        return f"{name} belongs to sweep {job.sweep_id}, whose jobs share their nodes"
    return None


def options(uow: UnitOfWork, fleet: Fleet, principal: Principal, job: Job) -> list[TypeOption]:
    """Return the job's type and those near it in size, smallest first, with quota and room of each
    in its zone."""
    slices = jobs.nodes_of(uow, job)
    keys = [node.node_key for node in slices] if job.owns_node else []
    view = RoomView(uow, fleet, principal, job.project, keys)
    first = slices[0]
    near = []
    for kind in _near(fleet, first.zone, job.kind):
        spec = _spec_of_type(fleet, first, kind.name)
        refusal = ""
        if kind.name != job.accelerator_type:
            try:
                _check(uow, fleet, job, slices, kind.name)
            except PodyardError as error:
                refusal = error.message
        room = view.room_in(first.zone, kind, spec.usage_class)
        left = _quota_left(uow, fleet, job, first, kind)
        near.append(TypeOption(kind, spec, room, left, refusal))
    return near


def go_on(uow: UnitOfWork, fleet: Fleet, job: Job, slices: Sequence[NodeRecord]) -> None:
    """Give the nodes of a job that waits back, and make those of its next type; where that fails,
    it goes on on its former type."""
    if attempts.find_open(uow, job.job_key) is not None:
        return
    if job.owns_node and not own_nodes.free_names(uow, fleet, slices):
        return
    first, next_type = slices[0], job.spec.next_type
    former = Fallback(first.zone, job.accelerator_type, str(first.usage_class))
    spec = dataclasses.replace(job.spec_with_former_type, next_type="", fallbacks=(former,))
    if spec.elastic is not None:
        spec = dataclasses.replace(
            spec, elastic=dataclasses.replace(spec.elastic, max_replicas=None)
        )
    try:
        text = f"resized to {next_type}"
        _make(uow, fleet, job, spec, first.zone, _spec_of_type(fleet, first, next_type), text)
    except PodyardError as error:
        _stay(uow, fleet, job, first, f"cannot be resized to {next_type}: {error.message}")


def _stay(uow: UnitOfWork, fleet: Fleet, job: Job, first: NodeRecord, why: str) -> None:
    """The job goes on as before: on its node if that is there, else on such a node made again."""
    spec = dataclasses.replace(job.spec, next_type="")
    if not job.owns_node:
        store(uow, job, dataclasses.replace(job, spec=spec, state_reason=why))
        return
    try:
        _make(uow, fleet, job, spec, first.zone, first.spec, why)
    except PodyardError as error:
        gangs.finish_job(uow, job, "fail", error.code, f"{why}; nor can its former nodes: {error}")


def _make(
    uow: UnitOfWork,
    fleet: Fleet,
    job: Job,
    spec: JobSpec,
    zone: str,
    node: NodeSpec,
    text: str,
) -> None:
    named = dataclasses.replace(job, node_id=spec.node_ids(job.job_id)[0])
    first = own_nodes.make_again(uow, fleet, named, zone, node)
    moved = dataclasses.replace(
        job,
        spec=spec,
        node_key=first.node_key,
        node_id=first.node_id,
        accelerator_type=first.accelerator_type,
        topology=first.topology,
        owns_node=True,
        fallbacks_used=0,
        state_reason=text,
    )
    store(uow, job, moved)


def _ask_to_leave(uow: UnitOfWork, attempt: Attempt, text: str) -> None:
    """A gang that runs saves first; one that has not started has nothing to save."""
    if attempt.state is AttemptState.RUNNING:
        gangs.ask_to_yield(uow, attempt, AttemptOutcome.RESIZED, text)
    else:
        gangs.end(uow, attempt, AttemptOutcome.RESIZED, text)
        gangs.settle(uow, attempt.attempt_id)


def _check(
    uow: UnitOfWork, fleet: Fleet, job: Job, slices: Sequence[NodeRecord], type_name: str
) -> NodeSpec:
    """Return the nodes to make; raises what `resize` raises of them."""
    first = slices[0]
    spec = _spec_of_type(fleet, first, type_name)
    if spec.accelerator_type == job.accelerator_type:
        raise failed_precondition(f"job {job.job_id} already runs on {job.accelerator_type}")
    kind = node_checks.check_spec(uow, fleet, first.zone, spec, of_job=True)
    if job.spec.run is None:
        check_on(job.spec, kind)
    jobs.check_room(uow, job.spec, allowed_sizes(job.spec, kind)[-1].process_count)
    if not job.owns_node:
        for node_id in job.spec.node_ids(job.job_id):
            node_checks.check_free(uow, job.project, first.zone, node_id, spec)
    left = _quota_left(uow, fleet, job, first, kind)
    if not left.allows(kind, job.spec.num_nodes):
        raise PodyardError(Code.RESOURCE_EXHAUSTED, quota_note(left, kind, first.zone))
    return spec


def quota_note(left: QuotaLeft, kind: AcceleratorType, zone: str) -> str:
    """Return why a node of `kind` goes beyond a quota."""
    if left.limit is not None and quota_units(kind) > left.left:
        return (
            f"The quota in {region_of(zone)} has {left.left} of {left.limit} {left.unit} left, and "
            f"{kind.name} takes {quota_units(kind)}."
        )
    return f"The project may hold {left.chips} more chips, and {kind.name} has {kind.chip_count}."


def _quota_left(
    uow: UnitOfWork, fleet: Fleet, job: Job, first: NodeRecord, kind: AcceleratorType
) -> QuotaLeft:
    """Return what nodes of `kind` may take, the job's own nodes given back."""
    usage = first.usage_class
    left = quota.read_left(uow, fleet, job.project, [first.zone], kind, usage)[first.zone]
    return left.with_returned(kind, job.kind, job.spec.num_nodes) if job.owns_node else left


def _spec_of_type(fleet: Fleet, first: NodeRecord, type_name: str) -> NodeSpec:
    """Return the node as its first slice was asked for, of another type. A generation that does not
    know the runtime version has its usual one."""
    place = Fallback(first.zone, type_name, str(first.usage_class))
    spec = own_nodes.at_place(fleet, first.spec, place)
    generation = fleet.type_named(first.zone, spec.accelerator_type).generation
    is_there = spec.runtime_version in job_versions_of(generation)
    if is_there or generation is first.kind.generation:
        return spec
    return dataclasses.replace(spec, runtime_version=generation.runtime_version_default)


def _near(fleet: Fleet, zone: str, present: AcceleratorType) -> list[AcceleratorType]:
    """Return types of one generation with a power of two of chips, and the present one."""
    offered = [
        kind
        for kind in fleet.offered_types(zone)
        if kind.generation is present.generation
        and (kind.chip_count & (kind.chip_count - 1) == 0 or kind.name == present.name)
    ]
    at = next((n for n, kind in enumerate(offered) if kind.name == present.name), 0)
    start = max(0, min(at - TYPES_SHOWN_MAX // 2, len(offered) - TYPES_SHOWN_MAX))
    return offered[start : start + TYPES_SHOWN_MAX]
