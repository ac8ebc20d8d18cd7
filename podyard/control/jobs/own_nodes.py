"""Nodes that are made for jobs: at the first place that takes them. The slices of a job are made,
and go, together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.compute import node_checks, nodes
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import jobs as rows
from podyard.db.jobs import slices as job_slices
from podyard.db.platform import state_changes
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.transition import store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.job import Fallback, Job, JobRequest
from podyard.domain.node import NODE, NodeRecord, NodeSpec, NodeState, UsageClass
from podyard.domain.principal import PLATFORM, Principal

FALLBACKS_MAX = 50  # a place more than Google has zones with TPUs


def with_places(
    uow: UnitOfWork, fleet: Fleet, request: JobRequest, zone: str, first: NodeSpec
) -> JobRequest:
    """The request with everything said of its fallbacks, the last of which is the first place
    again: there the job
    waits when no place has capacity. Raises INVALID_ARGUMENT for a place that could never have the
    job."""
    if len(request.fallbacks) > FALLBACKS_MAX:
        raise invalid(
            f"{len(request.fallbacks)} fallbacks: at most {FALLBACKS_MAX} are allowed", "fallbacks"
        )
    found = []
    for index, one in enumerate(request.fallbacks):
        field = f"fallbacks[{index}]"
        node_checks.zone_of(fleet, one.zone)
        usage = one.usage_class or str(first.usage_class)
        if usage not in tuple(UsageClass):
            raise invalid(
                f"{field}: unknown usage {usage!r}: use {', '.join(UsageClass)}", "fallbacks"
            )
        kind = one.accelerator_type or first.accelerator_type
        if request.execution == "simulated" and kind != first.accelerator_type:
            raise invalid(
                f"{field}: a simulated job keeps its type, since its steps are timed for it",
                "fallbacks",
            )
        place = Fallback(one.zone, fleet.type_named(one.zone, kind).name, usage)
        node_checks.check_spec(uow, fleet, one.zone, at_place(fleet, first, place), of_job=True)
        found.append(place)
    again = [Fallback(zone, first.accelerator_type, str(first.usage_class))] if found else []
    return dataclasses.replace(request, fallbacks=(*found, *again))


def make_first(  # noqa: PLR0913
    uow: UnitOfWork, fleet: Fleet, caller: Principal, project: str, zone: str, name: str,
    spec: NodeSpec,
    request: JobRequest, job_key: str,
) -> tuple[list[NodeRecord], int]:  # fmt: skip
    """The nodes of a new job, and how many fallbacks had their turn. Raises what the first place
    raises if none takes them."""
    refused: PodyardError | None = None
    for used in range(len(request.fallbacks) + 1):
        at, asked = zone, spec
        if used:
            at, asked = (
                request.fallbacks[used - 1].zone,
                at_place(fleet, spec, request.fallbacks[used - 1]),
            )
        try:
            begun = nodes.create_all(
                uow, fleet, caller, project, at, request.node_ids(name), asked, job_key=job_key
            )
        except PodyardError as error:
            # a quota that is used up; a stockout is known later
            if error.code is not Code.RESOURCE_EXHAUSTED:
                raise
            refused = refused or error
            continue
        return [node_rows.get_by_key(uow, operation.target_key) for operation in begun], used
    assert refused is not None
    raise refused


def had_no_capacity(uow: UnitOfWork, node: NodeRecord) -> str:
    """Why the platform could not make a node; empty if that is not why it is gone."""
    last = state_changes.newest(uow, node.node_key, 1)
    return (
        last[0].reason if node.state is NodeState.GONE and last and last[0].event == "fail" else ""
    )


def make_again(uow: UnitOfWork, fleet: Fleet, job: Job, zone: str, spec: NodeSpec) -> NodeRecord:
    """Makes the job's nodes again, under their names; returns the first. Raises what their creation
    raises."""
    whose = {"job_key": job.job_key, "created_by": job.created_by}
    begun = nodes.create_all(uow, fleet, PLATFORM, job.project, zone, job.node_ids, spec, **whose)
    if len(begun) > 1:
        job_slices.put(uow, job.job_key, [operation.target_key for operation in begun[1:]])
    return node_rows.get_by_key(uow, begun[0].target_key)


def free_names(uow: UnitOfWork, fleet: Fleet, slices: Sequence[NodeRecord]) -> bool:
    """Delete those of these nodes that live. Return True once all their names are free: until then
    the next round looks again."""
    for node in slices:
        if NODE.allows(node.state, "delete"):
            nodes.delete_as_platform(uow, fleet, node)
    return all(node.live_name is None for node in slices)


def make_next(
    uow: UnitOfWork, fleet: Fleet, job: Job, node: NodeRecord, why: str
) -> PodyardError | None:
    """The job's nodes at the next place; what to say if no place takes them. `node`: the first of
    those before."""
    refused = f"no capacity for {node.accelerator_type} in {node.zone}: {why}"
    for used, place in enumerate(job.spec.fallbacks[job.fallbacks_used :], job.fallbacks_used + 1):
        spec = at_place(fleet, node.spec, place)
        try:
            made = make_again(uow, fleet, job, place.zone, spec)
        except PodyardError as error:
            refused = f"{spec.accelerator_type} in {place.zone}: {error.message}"
            continue
        is_last = used == len(job.spec.fallbacks)
        then = "no place has capacity: waits for" if is_last else "tries"
        changed = dataclasses.replace(
            job,
            node_key=made.node_key,
            node_zone="" if made.zone == job.zone else made.zone,
            accelerator_type=made.accelerator_type,
            topology=made.topology,
            spec=job.spec_with_former_type,
            fallbacks_used=used,
            state_reason=f"{why}; {then} {made.accelerator_type} in {made.zone}",
        )
        store(uow, job, changed)
        return None
    return PodyardError(Code.RESOURCE_EXHAUSTED, refused)


def check_autostop(request: JobRequest, node: object) -> None:
    """Raises INVALID_ARGUMENT for a time without jobs that ends nothing."""
    if request.autostop_seconds and isinstance(node, str):
        raise invalid(
            "autostopSeconds is for a node that is created: set acceleratorType", "autostop_seconds"
        )
    if request.autostop_seconds and request.keep_node:
        raise invalid(
            "autostopSeconds and keepNode contradict each other: set one of them",
            "autostop_seconds",
        )


def on_autostop(uow: UnitOfWork, fleet: Fleet, timer: Timer) -> None:
    """Deletes the nodes that were made for a job, if none has run on them for as long as that job
    says; else looks
    again when that may be so."""
    job = rows.get(uow, timer.resource_key)
    live = [
        one
        for one in node_rows.of_job(uow, job.job_key)
        if one.state not in (NodeState.DELETING, NodeState.GONE)
    ]
    if not live:
        return
    period = job.spec.autostop_seconds
    ends = [other.ended for node in live for other in rows.on_node(uow, node.node_key)]
    due = max(uow.now if ended is None else ended for ended in ends).plus_seconds(period)
    if due <= uow.now:
        if all(NODE.allows(node.state, "delete") for node in live):
            for node in live:
                nodes.delete_as_platform(uow, fleet, node)
            return
        due = uow.now.plus_seconds(period)
    timers.put(uow, timer.kind, job.job_key, 0, due)


def at_place(fleet: Fleet, spec: NodeSpec, place: Fallback) -> NodeSpec:
    """Return what the node is at a place. A node of another type has its usual topology."""
    usage = UsageClass(place.usage_class)
    if place.accelerator_type == spec.accelerator_type:
        return dataclasses.replace(spec, usage_class=usage)
    kind = fleet.type_named(place.zone, place.accelerator_type)
    return dataclasses.replace(
        spec, accelerator_type=kind.name, topology=kind.topology.text, usage_class=usage
    )
