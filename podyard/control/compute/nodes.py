"""Nodes: what users ask for, and what follows from it in platform time.

A use case that takes time begins an operation and sets the node into a passing state; the loop
places the slice and fires the timers that end it. Each change of state goes through `move`, so that
the meter hears of it in the same unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, ErrorInfo, failed_precondition
from podyard.base.ids import check_resource_id, row_id
from podyard.control.access import identity
from podyard.control.compute import (
    admission,
    disks,
    lookup,
    node_checks,
    ports,
    queue_states,
    quota,
)
from podyard.control.platform import operations
from podyard.db.compute import hosts, slices
from podyard.db.compute import nodes as rows
from podyard.db.jobs import replicas
from podyard.db.platform import faults as fault_rows
from podyard.db.platform import state_changes
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.transition import create_record, move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.instances import instance
from podyard.domain.node import (
    HEALTHY,
    INTERRUPTIBLE,
    NODE,
    Node,
    NodeRecord,
    NodeSpec,
    NodeState,
    Road,
    UsageClass,
    changed_spec,
    node_name,
)
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.plan import Place, Wait
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import NodeRequest, QueuedResourceRecord
from podyard.domain.reservation import check_asked
from podyard.domain.slice import PREEMPTIBLE_LIFE_SECONDS, PlacedSlice
from podyard.hardware import runtime_versions
from podyard.hardware.accelerator_types import kind_of

LABELS_NAMED_MAX = 5  # of those that were changed, in the reason of the event
# how soon a node looks again whether the last process on its chips is gone
QUIET_RETRY_SECONDS = 0.25
NEVER_PLACED = "no chips became free while the request was valid"
_END_TIMERS = {OperationVerb.STOP: "node.stopped", OperationVerb.DELETE: "node.deleted"}
_BACK_TO_READY = (
    "node.created",
    "node.started",
    "node.restarted",
    "node.reimaged",
    "node.repaired",
)


def create(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    spec: NodeSpec,
) -> Operation:
    """Accepts a node: row, operation and first event, in one unit. The loop places it."""
    (operation,) = create_all(uow, fleet, principal, project, zone, [node_id], spec)
    return operation


def create_all(  # noqa: PLR0913
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    node_ids: Sequence[str],
    spec: NodeSpec,
    *,
    job_key: str | None = None,
    created_by: str | None = None,
) -> list[Operation]:
    """As `create`, for the slices of one job, in order: all are accepted or none, and the loop
    places them at once. `created_by` None: the caller has created them."""
    principal.require("tpu.nodes.create", project, f"projects/{project}/locations/{zone}")
    for node_id in node_ids:
        check_resource_id(node_id, "node_id")
    kind = node_checks.check_spec(uow, fleet, zone, spec, of_job=True)
    check_asked(spec.reservation_name, project, zone)
    owner = identity.project_row(uow, project)
    admission.check_node(uow, principal, owner, zone, spec)
    for node_id in node_ids:
        node_checks.check_free(uow, project, zone, node_id, spec)
    quota.check_all(uow, fleet, owner, zone, [kind] * len(node_ids), spec.usage_class)
    creator = principal.email if created_by is None else created_by
    wanted = [(node_id, spec) for node_id in node_ids]
    ports.spending.admit(uow, project, creator, wanted, of_job=job_key is not None)
    detail = ports.spending.price_warning(uow, zone, spec)
    begun = []
    for index, node_id in enumerate(node_ids):
        node = new_record(uow, project, zone, node_id, spec, creator)
        if job_key is not None:
            node = replace(node, job_key=job_key, slice_index=index, slice_count=len(node_ids))
        begun.append(operations.begin(uow, operations.of_node(node), OperationVerb.CREATE, detail))
        create_record(
            uow, replace(node, pending_operation=begun[-1].operation_id), reason="requested"
        )
    return begun


def make(uow: UnitOfWork, queued: QueuedResourceRecord, request: NodeRequest) -> NodeRecord:
    """The node that a queued resource gets: CREATING, without a separate operation. The caller has
    checked that the
    name is free, and holds the project's row."""
    creator = state_changes.creator(uow, queued.queued_resource_key)
    made = replace(
        new_record(uow, queued.project, queued.zone, request.node_id, request.spec, creator),
        queued_resource_key=queued.queued_resource_key,
        queued_resource=queued.name,
        slice_index=request.slice_index,
        slice_count=request.slice_count,
    )
    create_record(uow, made, reason="made for its queued resource")
    return made


def new_record(
    uow: UnitOfWork, project: str, zone: str, node_id: str, spec: NodeSpec, created_by: str
) -> NodeRecord:
    kind = kind_of(spec.accelerator_type, spec.topology)
    stream = uow.streams.stream("nodes")
    return NodeRecord(
        node_key=row_id(stream, "node"),
        number=stream.getrandbits(63),
        project=project,
        zone=zone,
        node_id=node_id,
        live_name=node_name(project, zone, node_id),
        state=NodeState.CREATING,
        version=1,
        accelerator_type=kind.name,
        topology=kind.topology.text,
        usage_class=spec.usage_class,
        runtime_version=spec.runtime_version,
        spec=spec,
        created=uow.now,
        ready_since=None,
        state_reason="",
        wait_reason="",
        pending_operation=None,
        host_count=kind.host_count,
        first_address=0,
        job_key=None,
        created_by=created_by,
    )


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str) -> Node:
    return rows.to_node(uow, lookup.node(uow, principal, "tpu.nodes.get", project, zone, node_id))


def patch(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    changes: Mapping[str, Any],
) -> Operation:
    """Sets fields of the spec: names of `NodeSpec`, or paths of `extras` by their wire names; None
    clears. Other labels than before are an event of the node: its use counts under them from then
    on."""
    principal.require("tpu.nodes.update", project, node_name(project, zone, node_id))
    # of two updates at once, the second sees what the first has set
    identity.project_row(uow, project)
    node = lookup.node(uow, principal, "tpu.nodes.update", project, zone, node_id)
    if node.state not in (NodeState.READY, NodeState.STOPPED):
        raise node_checks.bad_state(OperationVerb.UPDATE, node)
    spec = changed_spec(node.spec, changes)
    admission.check_moved(uow, node, spec)
    disks.check(uow, project, node.node_key, spec)
    changed = replace(node, spec=spec)
    if spec.labels == node.spec.labels:
        rows.set_spec(uow, node, spec)
    else:
        changed = move(
            uow,
            node,
            "relabel",
            reason=label_changes(node.spec.labels, spec.labels),
            changed=changed,
        )
        ports.spending.on_relabel(uow, project)
    operation_id = operations.begin(
        uow, operations.of_node(node), OperationVerb.UPDATE
    ).operation_id
    operations.succeed(uow, operation_id, rows.freeze(uow, changed))
    return operations.get(uow, principal, project, zone, operation_id)


def label_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return what has become of the labels, for who reads the node's history."""
    keys = sorted(key for key in {**before, **after} if before.get(key) != after.get(key))
    said = [
        f"{key}={after[key]}" if key in after else f"{key} removed"
        for key in keys[:LABELS_NAMED_MAX]
    ]
    more = len(keys) - LABELS_NAMED_MAX
    return f"labels: {', '.join(said)}{f' and {more} more' if more > 0 else ''}"


def stop(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str
) -> Operation:
    node = lookup.node(uow, principal, "tpu.nodes.stop", project, zone, node_id)
    if node.host_count > 1:
        raise node_checks.bad_request(
            f"stop is only supported for nodes with one host; this one has {node.host_count}", node
        )
    if node.state is not NodeState.READY:
        raise node_checks.bad_state(OperationVerb.STOP, node)
    return begin(uow, node, OperationVerb.STOP, fleet.timings.stop_seconds)


def start(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str
) -> Operation:
    node_checks.zone_of(fleet, zone)
    node = lookup.node(uow, principal, "tpu.nodes.start", project, zone, node_id)
    if node.state is not NodeState.STOPPED:
        raise node_checks.bad_state(OperationVerb.START, node)
    return begin(uow, node, OperationVerb.START, None)


def reimage(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    version: str,
) -> Operation:
    """Gives the node another runtime version (v1: TensorFlow version); empty: the same one again.
    Its jobs end."""
    node = lookup.node(uow, principal, "tpu.nodes.reimage", project, zone, node_id)
    if node.state is not NodeState.READY:
        raise node_checks.bad_state(OperationVerb.REIMAGE, node)
    chosen, allowed = version or node.runtime_version, fleet.unknown_runtime_versions
    if version:
        generation = node.kind.generation
        runtime_versions.check_version(version, generation, True, unknown_allowed=allowed)
    operation = operations.begin(uow, operations.of_node(node), OperationVerb.REIMAGE)
    changed = replace(
        node,
        runtime_version=chosen,
        spec=replace(node.spec, runtime_version=chosen),
        pending_operation=operation.operation_id,
    )
    reason, seconds = f"reimage to {chosen} requested", fleet.timings.reimage_seconds
    pass_into(uow, node, "reimage", "reimaged", seconds, reason, changed)
    return operation


def delete(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str
) -> Operation:
    node = lookup.node(uow, principal, "tpu.nodes.delete", project, zone, node_id)
    if node.state is NodeState.DELETING:
        raise node_checks.bad_state(OperationVerb.DELETE, node)
    if rule := fault_rows.lost_while_deleted(uow, node):
        operation_id = operations.begin(
            uow, operations.of_node(node), OperationVerb.DELETE
        ).operation_id
        with fault_rows.acting(uow):
            take_back(uow, replace(node, pending_operation=operation_id), "preempt", rule.reason)
        return operations.find(uow, project, zone, operation_id)
    return begin(uow, node, OperationVerb.DELETE, fleet.timings.delete_seconds)


def delete_as_platform(uow: UnitOfWork, fleet: Fleet, node: NodeRecord) -> None:
    """Deletes a node that the platform made, for a job or a queued resource."""
    if NODE.allows(node.state, "delete"):
        begin(uow, node, OperationVerb.DELETE, fleet.timings.delete_seconds)


def preempt(uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str) -> Node:
    """Take a preemptible or spot node back. It is listed, and holds quota, until it is deleted."""
    node = lookup.node(uow, principal, "podyard.nodes.preempt", project, zone, node_id)
    if node.usage_class not in INTERRUPTIBLE:
        raise failed_precondition(
            f"node {node_id} is {node.usage_class}: only preemptible and spot nodes can "
            "be preempted"
        )
    return rows.to_node(uow, take_back(uow, node, "preempt", "preempted on request"))


def apply_place(uow: UnitOfWork, fleet: Fleet, action: Place) -> None:
    """Gives the node its slice and hosts. A node that has changed since the plan was made is left
    alone."""
    node = rows.find_as_planned(uow, action.node_key, action.version)
    if node is not None:
        place(uow, fleet, node, action)


def place(uow: UnitOfWork, fleet: Fleet, node: NodeRecord, action: Place) -> None:
    """Gives the node the chips of `action`, and hosts if it has none yet. A timer ends its creation
    or start; what
    takes no time has ended at once."""
    made = PlacedSlice(
        slice_id=row_id(uow.streams.stream("slices"), "slice"),
        node_key=node.node_key,
        zone=node.zone,
        pod_id=action.pod_id,
        origin=tuple(action.origin),
        shape=tuple(action.shape),
        chips=action.chips,
        created=uow.now,
    )
    slices.add(uow, made)
    give_hosts(uow, fleet, node, action.reservation_key)


def give_hosts(
    uow: UnitOfWork, fleet: Fleet, node: NodeRecord, reservation_key: str | None = None
) -> None:
    """The rest of `place`: all of it for a machine without chips, which waits for nothing."""
    first_address = node.first_address or rows.next_address(uow)
    if node.first_address == 0:
        rows.add_hosts(uow, node.node_key, first_address, node.host_count)
    placed = replace(
        node,
        wait_reason="",
        reservation_key=reservation_key,
        reclaim_at=None,
        first_address=first_address,
    )
    event = {NodeState.STARTING: "started", NodeState.REPAIRING: "repaired"}.get(
        node.state, "created"
    )
    seconds = (
        fleet.timings.start_seconds
        if event == "started"
        else fleet.timings.creation_seconds(node.host_count)
    )
    lost = event == "created" and fault_rows.lost_while_created(
        uow, node, uow.now.plus_seconds(seconds / 2)
    )
    if seconds == 0 and not lost:
        _ready(uow, node, event, placed)
        return
    store(uow, node, placed)
    timers.put(uow, f"node.{event}", node.node_key, node.version, uow.now.plus_seconds(seconds))


def apply_wait(uow: UnitOfWork, action: Wait) -> None:
    """Note that the fleet cannot place it: with `stockout` its operation fails, and it vanishes."""
    node = rows.find_as_planned(uow, action.node_key, action.version)
    if node is None or (
        action.stockout and action.fault and not fault_rows.count(uow, action.fault)
    ):
        return
    if not action.stockout:
        store(uow, node, replace(node, wait_reason=action.reason))
        return
    give_up(uow, node, action.reason, action.code, action.message)


def give_up(uow: UnitOfWork, node: NodeRecord, reason: str, code: Code, message: str) -> None:
    """Ends the creation or the start of a node that gets no chips. On Compute Engine's road the
    operation says so in that API's words."""
    words = message, ErrorInfo(code.name, "podyard", {"why": reason})
    message, why = instance.stockout_words(node, reason) if node.road is Road.COMPUTE else words
    operations.fail(uow, node.pending_operation, code, message, [why])
    changed = replace(node, pending_operation=None)
    if node.state is NodeState.CREATING:
        changed = replace(changed, live_name=None)
    moved = move(uow, node, "fail", reason=reason, changed=changed)
    ports.follow_node(uow, moved)


def on_timer(uow: UnitOfWork, timer: Timer) -> bool:
    """Return what a node's timer does. A timer of a node that has moved on since does nothing.
    Returns whether it was put off because processes are on the chips: they end in real time."""
    node = rows.find_by_key(uow, timer.resource_key)
    if node is None or (timer.version != 0 and timer.version != node.version):
        return False
    kind = timer.kind
    if kind in ("node.stopped", "node.deleted", "node.release") and _busy(uow, node.node_key):
        # Chips are given back only when the last process on them is gone.
        again = uow.now.plus_seconds(QUIET_RETRY_SECONDS)
        timers.put(uow, kind, node.node_key, timer.version, again)
        return True
    if kind in _BACK_TO_READY:
        _ready(uow, node, kind.removeprefix("node."), node)
    elif kind == "node.stopped":
        slices.release(uow, node.node_key)
        moved = move(
            uow, node, "stopped", reason="stopped", changed=replace(node, pending_operation=None)
        )
        operations.succeed(uow, node.pending_operation, rows.freeze(uow, moved))
    elif kind == "node.deleted":
        slices.release(uow, node.node_key)
        rows.remove_hosts(uow, node.node_key)
        timers.drop(uow, node.node_key)
        gone = replace(node, pending_operation=None, live_name=None)
        moved = move(uow, node, "deleted", reason="deleted", changed=gone)
        # v1's delete answers with the node, later versions with nothing.
        operations.succeed(uow, node.pending_operation, rows.freeze(uow, moved))
        _tell_queue(uow, node)
        ports.follow_node(uow, moved)
    elif kind == "node.giveUp":
        if node.state is NodeState.CREATING and node.first_address == 0:
            give_up(uow, node, NEVER_PLACED, Code.RESOURCE_EXHAUSTED, NEVER_PLACED)
    elif kind == "node.release":
        slices.release(uow, node.node_key)
        _tell_queue(uow, node)
    elif kind == "node.expire":
        _expire(uow, node)
    elif kind == "node.reclaim" and _under_notice(uow, node):
        take_back(uow, node, "preempt", "preempted: its chips are needed for another request")
    return False


def _ready(uow: UnitOfWork, node: NodeRecord, event: str, changed: NodeRecord) -> None:
    """`changed`: the node with what else changes."""
    if event == "repaired":
        changed = replace(_healthy(changed), last_pod=None)
    begins = event == "created" or (event == "started" and node.road is Road.COMPUTE)
    termination = _end_of_life(uow, node) if begins else node.termination
    changed = replace(
        changed,
        ready_since=uow.now,
        pending_operation=None,
        wait_reason="",
        termination=termination,
    )
    moved = move(uow, node, event, reason="ready", changed=changed)
    operations.succeed(uow, node.pending_operation, rows.freeze(uow, moved))
    if begins and moved.termination is not None:
        timers.put(uow, "node.expire", node.node_key, 0, max(uow.now, moved.termination))
    _tell_queue(uow, node)
    ports.follow_node(uow, moved)


def _healthy(node: NodeRecord) -> NodeRecord:
    return replace(
        node,
        health=HEALTHY,
        health_description="",
        maintenance_workers=(),
        upcoming_maintenance=None,
        symptoms=(),
    )


def _end_of_life(uow: UnitOfWork, node: NodeRecord) -> PlatformTime | None:
    """When a node that is READY for the first time will be TERMINATED: the first of the limits that
    it has."""
    spec = node.spec
    ends = []
    if node.usage_class is UsageClass.PREEMPTIBLE:
        since = uow.now if node.road is Road.COMPUTE else node.created
        ends.append(since.plus_seconds(PREEMPTIBLE_LIFE_SECONDS))
    if spec.max_run_seconds is not None:
        ends.append(uow.now.plus_seconds(spec.max_run_seconds))
    if spec.termination_time is not None:
        ends.append(PlatformTime(spec.termination_time))
    return min(ends, default=None)


def _expire(uow: UnitOfWork, node: NodeRecord) -> None:
    if node.road is Road.COMPUTE and (node.termination is None or uow.now < node.termination):
        return  # it has been stopped, and perhaps started again, since
    if NODE.allows(node.state, "terminate"):
        limited = node.termination == node.created.plus_seconds(PREEMPTIBLE_LIFE_SECONDS)
        preemptible = limited and node.usage_class is UsageClass.PREEMPTIBLE
        reason = (
            "a preemptible node lives for 24 hours at most"
            if preemptible
            else "the end of its run time"
        )
        take_back(uow, node, "terminate", reason)
    elif node.state is NodeState.STOPPING:
        timers.put(uow, "node.expire", node.node_key, 0, uow.now.plus_seconds(QUIET_RETRY_SECONDS))


def pass_into(
    uow: UnitOfWork,
    node: NodeRecord,
    event: str,
    end: str,
    seconds: float | None,
    reason: str,
    changed: NodeRecord | None = None,
) -> NodeRecord:
    """Moves a READY node into the passing state of `event`, which ends its jobs; the event `end`
    makes it READY again after `seconds` of platform time (None: the caller sets the timer).
    `changed`: as of `move`."""
    moved = move(uow, node, event, reason=reason, changed=changed)
    ports.end_gangs(uow, node.node_key, f"node {node.node_id}: {reason}")
    if seconds is not None:
        timers.put(uow, f"node.{end}", node.node_key, moved.version, uow.now.plus_seconds(seconds))
    return moved


def begin(
    uow: UnitOfWork, node: NodeRecord, verb: OperationVerb, seconds: float | None = None
) -> Operation:
    """Move the node into the passing state of `verb`, which ends after `seconds`."""
    if node.pending_operation is not None:
        text = f"The operation was cancelled: {verb} of the node was requested"
        operations.fail(uow, node.pending_operation, Code.CANCELLED, text)
    operation = operations.begin(uow, operations.of_node(node), verb)
    changed = replace(node, pending_operation=operation.operation_id)
    moved = move(uow, node, verb.value, reason=f"{verb} requested", changed=changed)
    if verb is not OperationVerb.START:
        ports.end_gangs(uow, node.node_key, f"node {node.node_id}: {verb} requested")
    if seconds is not None:
        timers.put(
            uow, _END_TIMERS[verb], node.node_key, moved.version, uow.now.plus_seconds(seconds)
        )
    _tell_queue(uow, node)
    return operation


def take_back(uow: UnitOfWork, node: NodeRecord, event: str, reason: str) -> NodeRecord:
    if node.road is Road.COMPUTE:
        return _end_instances(uow, node, event, reason)
    if node.pending_operation is not None:
        operations.fail(
            uow, node.pending_operation, Code.CANCELLED, f"The node was taken back: {reason}"
        )
    changed = replace(_healthy(node), pending_operation=None, state_reason=reason)
    moved = move(uow, node, event, reason=reason, changed=changed)
    ports.end_gangs(uow, node.node_key, f"node {node.node_id}: {reason}")
    timers.put(uow, "node.release", node.node_key, moved.version, uow.now)
    _tell_queue(uow, node)
    return moved


def _end_instances(uow: UnitOfWork, node: NodeRecord, event: str, reason: str) -> NodeRecord:
    """As `take_back`, on Compute Engine's road: instances are stopped or deleted, as they say, and
    an operation of the platform's tells of it."""
    cancelled = f"The operation was cancelled: {reason}"
    operations.fail(uow, node.pending_operation, Code.CANCELLED, cancelled)
    stops = node.spec.stops_when_taken and NODE.allows(node.state, "stop")
    verb = OperationVerb.STOP if stops else OperationVerb.DELETE
    said = OperationVerb.PREEMPT if event == "preempt" else verb
    operations.complete(uow, operations.of_node(node), said)
    changed = replace(_healthy(node), pending_operation=None, state_reason=reason, reclaim_at=None)
    moved = move(uow, node, verb.value, reason=reason, changed=replace(changed, termination=None))
    ports.end_gangs(uow, node.node_key, f"instance {node.node_id}: {reason}")
    timers.put(uow, _END_TIMERS[verb], node.node_key, moved.version, uow.now)
    return moved


def _under_notice(uow: UnitOfWork, node: NodeRecord) -> bool:
    """Return whether a node's notice is over and it can be taken back; it may have been stopped,
    and started on other chips, since it was given."""
    return (
        node.reclaim_at is not None
        and node.reclaim_at <= uow.now
        and NODE.allows(node.state, "preempt")
    )


def _tell_queue(uow: UnitOfWork, node: NodeRecord) -> None:
    if node.queued_resource_key is not None:
        queue_states.settle(uow, node.queued_resource_key)


def _busy(uow: UnitOfWork, node_key: str) -> bool:
    return replicas.is_any_on(uow, node_key) or hosts.is_busy(uow, node_key)
