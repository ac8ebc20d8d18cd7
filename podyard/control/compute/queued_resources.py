"""Queued resources: requests that wait until all of their nodes can be placed, and the life of
those nodes together.

The operation of a creation or reset ends at once: what takes long is the queue, and the queued
resource shows that. Its nodes do not exist before they are placed; then all of them are made in one
unit of work.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TypeVar

from podyard.base import error_details, ids
from podyard.base.clock import PlatformTime, seconds_to_nanos
from podyard.base.durations import duration_text
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid_field
from podyard.base.ids import RESOURCE_ID_LENGTH_MAX, check_resource_id, row_id
from podyard.base.spelling import camel_case
from podyard.control.access import identity
from podyard.control.compute import admission, lookup, node_checks, nodes, ports, quota
from podyard.control.compute.queue_states import remind, settle
from podyard.control.platform import operations
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import queued_resources as rows
from podyard.db.compute import slices
from podyard.db.platform import faults
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.transition import create_record, move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.node import NODE_STATES_LOST, NodeState
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.plan import PlaceGroup, WaitGroup
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import (
    QUEUED_RESOURCE,
    QUEUED_RESOURCE_NODES_MAX,
    STATES_DELETED_WITHOUT_FORCE,
    NodeRequest,
    QueuedResource,
    QueuedResourceRecord,
    QueuedResourceSpec,
    QueuedResourceState,
    queued_resource_name,
)
from podyard.domain.reservation import check_asked
from podyard.hardware.accelerator_types import kind_of

T = TypeVar("T")
# The oldest refusal of a project gives way to a newer one: scripts that try again fill no table.
REFUSED_KEPT_MAX = 50
_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")  # the API's pattern, wider than that of node ids


def create(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    queued_resource_id: str,
    spec: QueuedResourceSpec,
) -> Operation:
    """Accepts a queued resource. Its operation ends with it as it stands in the queue.

    Raises INVALID_ARGUMENT, ALREADY_EXISTS for its id or a node's, and RESOURCE_EXHAUSTED: quota
    counts from here on. One of this id that was refused gives way.
    """
    principal.require("tpu.queuedresources.create", project, f"projects/{project}/locations/{zone}")
    if (
        len(queued_resource_id) > RESOURCE_ID_LENGTH_MAX
        or _ID.fullmatch(queued_resource_id) is None
    ):
        raise invalid_field(
            f"queuedResourceId {queued_resource_id!r} is not a valid id", "queued_resource_id"
        )
    resolved = _resolve(spec, uow.now)
    _check_nodes(uow, fleet, zone, resolved)
    for node in resolved.nodes:
        check_asked(node.spec.reservation_name, project, zone)
    owner = identity.project_row(uow, project)
    for node in resolved.nodes:
        admission.check_node(uow, principal, owner, zone, node.spec)
    name = queued_resource_name(project, zone, queued_resource_id)
    if (earlier := rows.find(uow, project, zone, queued_resource_id)) is not None:
        if not earlier.is_refused:
            raise PodyardError(Code.ALREADY_EXISTS, f"Resource '{name}' already exists")
        _remove_refused(uow, earlier)
    for node in resolved.nodes:
        node_checks.check_free(uow, project, zone, node.node_id, node.spec)
    kinds = [kind_of(node.spec.accelerator_type, node.spec.topology) for node in resolved.nodes]
    quota.check_all(uow, fleet, owner, zone, kinds, resolved.usage_class)
    ports.spending.admit(
        uow, project, principal.email, [(node.node_id, node.spec) for node in resolved.nodes]
    )
    made = _new_record(uow, project, zone, queued_resource_id, resolved)
    create_record(uow, made, reason="requested")
    # All nodes are of one type and usage.
    return _queue(
        uow, principal, made, ports.spending.price_warning(uow, zone, resolved.nodes[0].spec)
    )


def create_or_keep_refused(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    queued_resource_id: str,
    spec: QueuedResourceSpec,
) -> Operation:
    """Create a queued resource as `create` does, but keep a request beyond quota or budget: it is
    FAILED with the refusal, holds no quota, and its operation ends with the same error."""
    try:
        return create(uow, fleet, principal, project, zone, queued_resource_id, spec)
    except PodyardError as error:
        if error.code is not Code.RESOURCE_EXHAUSTED:
            raise
        refusal = error
    ports.spending.keep_refusal(uow, refusal)
    if (earlier := rows.find(uow, project, zone, queued_resource_id)) is not None:
        _remove_refused(uow, earlier)
    refusals = sorted(
        (one for one in rows.of_project(uow, project, None) if one.is_refused),
        key=lambda one: one.created.nanos,
    )
    for oldest in refusals[: max(0, len(refusals) - REFUSED_KEPT_MAX + 1)]:
        _remove_refused(uow, oldest)
    request = _new_record(uow, project, zone, queued_resource_id, _resolve(spec, uow.now))
    create_record(uow, request, reason="requested")
    changed = dataclasses.replace(
        request,
        error_code=int(refusal.code),
        error_message=refusal.message,
        error_details=[error_details.to_json(detail) for detail in refusal.details],
    )
    kept_request = move(uow, request, "fail", reason=refusal.message, changed=changed)
    operation_id = operations.begin(
        uow, operations.of_queued_resource(kept_request), OperationVerb.CREATE
    ).operation_id
    operations.fail(uow, operation_id, refusal.code, refusal.message, refusal.details)
    return operations.get(uow, principal, project, zone, operation_id)


def _remove_refused(uow: UnitOfWork, queued: QueuedResourceRecord) -> None:
    """Remove one that was refused for quota or budget: it never had nodes or timers."""
    move(uow, queued, "delete", reason="requested again, or the oldest of many refusals")
    settle(uow, queued.queued_resource_key)


def _new_record(
    uow: UnitOfWork, project: str, zone: str, queued_resource_id: str, spec: QueuedResourceSpec
) -> QueuedResourceRecord:
    return QueuedResourceRecord(
        queued_resource_key=row_id(uow.streams.stream("queued_resources"), "queue"),
        project=project,
        zone=zone,
        queued_resource_id=queued_resource_id,
        live_name=queued_resource_name(project, zone, queued_resource_id),
        state=QueuedResourceState.CREATING,
        version=1,
        usage_class=spec.usage_class,
        spec=spec,
        created=uow.now,
        valid_after=spec.valid_after,
        valid_until=spec.valid_until,
        activated=None,
        state_initiator="",
        error_code=None,
        error_message="",
        error_details=[],
        wait_reason="",
        pending_operation=None,
        repaired=[],
        late_until=None,
    )


def _queue(
    uow: UnitOfWork, principal: Principal, made: QueuedResourceRecord, detail: str
) -> Operation:
    """From CREATING into the queue, with the timers of its queueing policy."""
    key = made.queued_resource_key
    accepted = move(uow, made, "accept", reason="accepted")
    if made.valid_after is not None and made.valid_after > uow.now:
        timers.put(uow, "queuedResource.eligible", key, 0, made.valid_after)
    else:
        accepted = move(uow, accepted, "wait", reason="it waits for chips")
    if made.valid_until is not None:
        timers.put(uow, "queuedResource.expire", key, 0, made.valid_until)
    return _finish(uow, principal, accepted, OperationVerb.CREATE, detail)


def get(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, queued_resource_id: str
) -> QueuedResource:
    found = lookup.queued_resource(
        uow, principal, "tpu.queuedresources.get", project, zone, queued_resource_id
    )
    return rows.to_queued_resource(uow, found)


def delete(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    queued_resource_id: str,
    force: bool = False,
) -> Operation:
    """Deletes it, and its nodes with it. The operation ends when the last of its nodes is gone.

    Without `force` it must have no nodes, or be in a state in which none of them lives:
    FAILED_PRECONDITION.
    """
    queued = lookup.queued_resource(
        uow, principal, "tpu.queuedresources.delete", project, zone, queued_resource_id
    )
    found = node_rows.of_queued_resource(uow, queued.queued_resource_key)
    if not QUEUED_RESOURCE.allows(queued.state, "delete"):
        raise _bad_state(OperationVerb.DELETE, queued)
    if found and not force and queued.state not in STATES_DELETED_WITHOUT_FORCE:
        raise failed_precondition(
            f"queued resource {queued_resource_id} is {queued.state} and has nodes: delete them "
            "first, or use force"
        )
    operations.fail(
        uow, queued.pending_operation, Code.CANCELLED, "The queued resource was deleted"
    )
    operation_id = operations.begin(
        uow, operations.of_queued_resource(queued), OperationVerb.DELETE
    ).operation_id
    changed = dataclasses.replace(queued, pending_operation=operation_id)
    move(uow, queued, "delete", reason="delete requested", changed=changed)
    _delete_nodes(uow, fleet, queued)
    settle(uow, queued.queued_resource_key)
    return operations.get(uow, principal, project, zone, operation_id)


def reset(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    queued_resource_id: str,
) -> Operation:
    """Puts an ACTIVE or SUSPENDED one back into the queue: its nodes are deleted, and created under
    the same ids once all of them can be placed. The bounds of its queueing policy were for the
    first time, and hold no longer."""
    queued = lookup.queued_resource(
        uow, principal, "tpu.queuedresources.reset", project, zone, queued_resource_id
    )
    if not QUEUED_RESOURCE.allows(queued.state, "reset"):
        raise _bad_state(OperationVerb.RESET, queued)
    operations.fail(uow, queued.pending_operation, Code.CANCELLED, "The queued resource was reset")
    changed = dataclasses.replace(
        queued,
        valid_after=None,
        valid_until=None,
        state_initiator="",
        pending_operation=None,
        repaired=[],
    )
    moved = move(uow, queued, "reset", reason="reset requested", changed=changed)
    _delete_nodes(uow, fleet, queued)
    return _finish(uow, principal, moved, OperationVerb.RESET)


def apply_place_group(uow: UnitOfWork, fleet: Fleet, action: PlaceGroup) -> None:
    """Makes all nodes of a queued resource, each with its chips. One that has changed since the
    plan is left alone; one whose nodes' names or disks are in use by now FAILs."""
    queued = _as_planned(uow, action.group, action.version)
    if queued is None:
        return
    if queued.late_until is None and (
        rule := faults.struck(uow, "late", faults.of_queued_resource(queued))
    ):
        # The chips stay free for others meanwhile. The timer does nothing but make the loop look
        # again.
        until = uow.now.plus_seconds(rule.seconds)
        reason = f"{rule.reason}: it is not fulfilled before {until.rfc3339()}"
        store(uow, queued, dataclasses.replace(queued, late_until=until, wait_reason=reason))
        timers.put(uow, "queuedResource.late", action.group, 0, until)
        return
    identity.project_row(uow, queued.project)
    if refused := ports.spending.hold_in_queue(uow, queued):
        store(
            uow, queued, dataclasses.replace(queued, wait_reason=refused[0], late_until=refused[1])
        )
        timers.put(uow, "queuedResource.late", action.group, 0, refused[1])
        return
    try:
        for request in queued.spec.nodes:
            node_checks.check_free(uow, queued.project, queued.zone, request.node_id, request.spec)
    except PodyardError as error:
        _fail(uow, fleet, queued, error.code, error.message)
        return
    changed = dataclasses.replace(queued, wait_reason="")
    placed = move(uow, queued, "provision", reason="all of its nodes are placed", changed=changed)
    # All are there before the first can be READY: a queued resource with fewer nodes than it asked
    # for is suspended.
    made = [nodes.make(uow, placed, request) for request in placed.spec.nodes]
    for node, place in zip(made, action.places, strict=True):
        nodes.place(uow, fleet, node, place)


def apply_wait_group(uow: UnitOfWork, action: WaitGroup) -> None:
    """Keeps why it waits."""
    queued = _as_planned(uow, action.group, action.version)
    if queued is not None:
        store(uow, queued, dataclasses.replace(queued, wait_reason=action.reason))


def on_timer(uow: UnitOfWork, fleet: Fleet, timer: Timer) -> None:
    """Carry out a timer of a queued resource; it looks at the state, so that one which comes too
    late does nothing."""
    queued = rows.find_by_key(uow, timer.resource_key)
    if queued is None:
        return
    kind, state = timer.kind, queued.state
    if kind == "queuedResource.eligible" and state is QueuedResourceState.ACCEPTED:
        move(uow, queued, "wait", reason="it waits for chips")
    elif (
        kind == "queuedResource.expire"
        and queued.valid_until is not None
        and queued.activated is None
    ):
        if QUEUED_RESOURCE.allows(state, "fail"):
            _fail(
                uow,
                fleet,
                queued,
                Code.DEADLINE_EXCEEDED,
                _expired_text(queued, queued.valid_until),
            )
    elif kind == "queuedResource.repair" and state is QueuedResourceState.PROVISIONING:
        _repair(uow, queued)
    elif kind == "queuedResource.restart" and state is QueuedResourceState.PROVISIONING:
        _restart_siblings(uow, fleet, queued)


def _repair(uow: UnitOfWork, queued: QueuedResourceRecord) -> None:
    """Creates lost slices again, each as soon as its chips are free of processes. The new node
    waits for its chips."""
    members = node_rows.of_queued_resource(uow, queued.queued_resource_key)
    lost = [node for node in members if node.state in NODE_STATES_LOST]
    holding = slices.ids_of(uow, [node.node_key for node in lost])
    if holding:
        remind(uow, "queuedResource.repair", queued, nodes.QUIET_RETRY_SECONDS)
    repaired = list(queued.repaired)
    for node in lost:
        if node.node_key in holding:
            continue
        # Both steps in one unit: nobody sees the name without a node.
        deleting = move(uow, node, "delete", reason="its slice is created again")
        node_rows.remove_hosts(uow, node.node_key)
        timers.drop(uow, node.node_key)
        gone = dataclasses.replace(deleting, live_name=None)
        move(uow, deleting, "deleted", reason="its slice is created again", changed=gone)
        again = NodeRequest(node.node_id, node.spec, node.slice_index, node.slice_count)
        repaired.append(nodes.make(uow, queued, again).node_key)
    store(uow, queued, dataclasses.replace(queued, repaired=repaired))


def _restart_siblings(uow: UnitOfWork, fleet: Fleet, queued: QueuedResourceRecord) -> None:
    """After slices were replaced or maintained, the others restart, so that all begin together
    (docs: multislice)."""
    key = queued.queued_resource_key
    found = node_rows.of_queued_resource(uow, key)
    if any(node.state is not NodeState.READY for node in found):
        return
    store(uow, queued, dataclasses.replace(queued, repaired=[]))
    for node in found:
        if node.node_key not in queued.repaired:
            reason = "another slice of its multislice was created again or maintained"
            nodes.pass_into(
                uow, node, "restart", "restarted", fleet.timings.restart_seconds, reason
            )
    settle(uow, key)


def _fail(
    uow: UnitOfWork, fleet: Fleet, queued: QueuedResourceRecord, code: Code, message: str
) -> None:
    """It stays listed, and holds quota, until its user deletes it; nodes that were being made are
    deleted."""
    changed = dataclasses.replace(queued, error_code=int(code), error_message=message)
    move(uow, queued, "fail", reason=message, changed=changed)
    _delete_nodes(uow, fleet, queued)


def _delete_nodes(uow: UnitOfWork, fleet: Fleet, queued: QueuedResourceRecord) -> None:
    for node in node_rows.of_queued_resource(uow, queued.queued_resource_key):
        nodes.delete_as_platform(uow, fleet, node)


def _resolve(spec: QueuedResourceSpec, now: PlatformTime) -> QueuedResourceSpec:
    """The spec with moments for durations, and with what it says of its nodes in each of them."""
    after, until = spec.valid_after, spec.valid_until
    if spec.valid_after_seconds is not None:
        after = now.plus_seconds(spec.valid_after_seconds)
    if spec.valid_until_seconds is not None:
        until = now.plus_seconds(spec.valid_until_seconds)
    if until is not None and until <= now:
        raise invalid_field(
            "the end of the queueing policy must be in the future", "queueing_policy"
        )
    if after is not None and until is not None and after >= until:
        raise invalid_field("the queueing policy must end after it starts", "queueing_policy")
    ends = None if spec.termination_time is None else spec.termination_time.nanos
    made = tuple(
        dataclasses.replace(
            node,
            spec=dataclasses.replace(
                node.spec,
                usage_class=spec.usage_class,
                reservation_name=node.spec.reservation_name or spec.reservation_name,
                max_run_seconds=_first(node.spec.max_run_seconds, spec.max_run_seconds),
                termination_time=_first(node.spec.termination_time, ends),
            ),
        )
        for node in spec.nodes
    )
    return dataclasses.replace(spec, valid_after=after, valid_until=until, nodes=made)


def _first(own: T | None, common: T | None) -> T | None:
    """Return what a node's own spec says, else what the queued resource says for all."""
    return common if own is None else own


def _check_nodes(uow: UnitOfWork, fleet: Fleet, zone: str, spec: QueuedResourceSpec) -> None:
    if not 1 <= len(spec.nodes) <= QUEUED_RESOURCE_NODES_MAX:
        raise invalid_field(
            f"a queued resource must have 1 to {QUEUED_RESOURCE_NODES_MAX} nodes, got "
            f"{len(spec.nodes)}",
            "tpu.node_spec",
        )
    seen: set[str] = set()
    for node in spec.nodes:
        check_resource_id(node.node_id, "node_id")
        if node.node_id in seen:
            raise invalid_field(
                f"node id {node.node_id} is used twice in the queued resource", "tpu.node_spec"
            )
        seen.add(node.node_id)
        node_checks.check_spec(uow, fleet, zone, node.spec)


def _expired_text(queued: QueuedResourceRecord, end: PlatformTime) -> str:
    spec = queued.spec
    if spec.valid_until_seconds is not None:
        bound = f"validUntilDuration of {duration_text(seconds_to_nanos(spec.valid_until_seconds))}"
    else:
        bound = camel_case("valid_interval" if spec.valid_after is not None else "valid_until_time")
    waited = f": {queued.wait_reason}" if queued.wait_reason else ""
    return f"The request was not fulfilled by {end.rfc3339()}, the end of its {bound}{waited}"


def _as_planned(uow: UnitOfWork, key: str, version: int) -> QueuedResourceRecord | None:
    queued = rows.find_by_key(uow, key)
    return queued if queued is not None and queued.version == version else None


def _finish(
    uow: UnitOfWork,
    principal: Principal,
    queued: QueuedResourceRecord,
    verb: OperationVerb,
    detail: str = "",
) -> Operation:
    """An operation that has ended, with the queued resource as it stands."""
    operation_id = operations.begin(
        uow, operations.of_queued_resource(queued), verb, detail
    ).operation_id
    operations.succeed(uow, operation_id, rows.freeze(uow, queued))
    return operations.get(uow, principal, queued.project, queued.zone, operation_id)


def _bad_state(verb: OperationVerb, queued: QueuedResourceRecord) -> PodyardError:
    text = f"{verb} is not supported while in state {queued.state}"
    return ids.bad_request(text, queued.queued_resource_key, queued.version)
