"""Requests: I7 (operations end once), I9 (quota), I11 (requestIds), I14 (queued resources), I15
(who is preempted)."""

from __future__ import annotations

from collections.abc import Iterator

from podyard.base.clock import PlatformTime
from podyard.control.checks.fsck_violation import GRACE_SECONDS, Violation
from podyard.db.compute.quotas import NodeKind
from podyard.db.views.fsck import Records
from podyard.domain.fleet import Fleet, quota_kind, quota_units, region_of
from podyard.domain.node import NODE_STATES_LOST, NodeRecord, NodeState, UsageClass
from podyard.domain.operation import Operation, OperationState
from podyard.domain.queued_resource import QueuedResourceRecord, QueuedResourceState
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.hardware.generations import GENERATIONS

# platform time; nothing that a client waits for takes longer here
OPERATION_SECONDS_MAX = 24 * 3600.0
CAN_BE_TAKEN_BACK = (UsageClass.PREEMPTIBLE, UsageClass.SPOT)
_WITHOUT_LIVE_NODES = (
    QueuedResourceState.FAILED,
    QueuedResourceState.SUSPENDED,
    QueuedResourceState.DELETING,
    QueuedResourceState.WAITING_FOR_RESOURCES,
)
_OVER = (
    QueuedResourceState.FAILED,
    QueuedResourceState.DELETING,
    QueuedResourceState.GONE,
    QueuedResourceState.SUSPENDING,
    QueuedResourceState.SUSPENDED,
)


def check_requests(records: Records, fleet: Fleet) -> Iterator[Violation]:
    yield from _check_operations(records)
    yield from _check_quota(records, fleet)
    yield from _check_request_ids(records)
    yield from _check_queue(records)
    yield from _check_waiting(records)
    yield from _check_preemptions(records)


def _check_operations(records: Records) -> Iterator[Violation]:
    pending = {pending for _, pending in _pending(records)}
    simulated = {
        timer.resource_key for timer in records.timers if timer.kind == "maintenance.simulated"
    }
    for key, operation in records.operations.items():
        at, name, verb = operation.ended or operation.created, operation.name, operation.verb
        problem = ended_wrongly(operation)
        if problem:
            yield Violation("I7", at, name, problem)
        if operation.is_done:
            continue
        if key not in pending and key not in simulated:
            yield Violation("I7", at, name, f"{verb} is running, and nothing will end it")
        # A node that is made for a job waits for its chips for as long as it takes.
        target = records.nodes.get(operation.target_key)
        in_queue = target is not None and bool(target.wait_reason)
        if not in_queue and operation.created.plus_seconds(OPERATION_SECONDS_MAX) < records.now:
            yield Violation(
                "I7", at, name, f"{verb} has been running since {operation.created.rfc3339()}"
            )
    for name, pending_operation in _pending(records):
        waited_for = records.operations.get(pending_operation)
        if waited_for is None or waited_for.is_done:
            yield Violation(
                "I7", records.now, name, f"it waits for {pending_operation}, which is not running"
            )


def _pending(records: Records) -> Iterator[tuple[str, str]]:
    """(name, operation) of each node and queued resource that an operation ends with."""
    for node in records.nodes.values():
        if node.pending_operation is not None:
            yield node.name, node.pending_operation
    for queued in records.queued.values():
        if queued.pending_operation is not None:
            yield queued.name, queued.pending_operation


def ended_wrongly(operation: Operation) -> str:
    """Return what is wrong with how an operation stands; nothing when all is well."""
    given = {"response": operation.response, "error_code": operation.error_code}
    ends = [what for what, value in given.items() if value is not None]
    if not operation.is_done:
        return f"it is running, and has {ends[0]}" if ends or operation.ended is not None else ""
    if len(ends) != 1:
        return f"it is {operation.state} with {' and '.join(ends) or 'neither response nor error'}"
    if (operation.state is OperationState.SUCCEEDED) != (ends == ["response"]):
        return f"it is {operation.state} with {ends[0]}"
    if operation.ended is None or operation.ended < operation.created:
        return "its end is not after its beginning"
    return (
        f"it has ended at version {operation.version}: more than once"
        if operation.version != 2
        else ""
    )


def _check_quota(records: Records, fleet: Fleet) -> Iterator[Violation]:
    alone = [
        node
        for node in records.nodes.values()
        if node.live_name is not None and node.queued_resource_key is None
    ]
    counted: dict[NodeKind, int] = {}
    for node in alone:
        key = (
            node.project,
            node.usage_class.value,
            node.zone,
            node.accelerator_type,
            node.topology,
        )
        counted[key] = counted.get(key, 0) + 1
    for key in sorted({*counted, *records.counts}):
        if records.counts.get(key, 0) != counted.get(key, 0):
            text = f"{records.counts.get(key, 0)} nodes are counted, and {counted.get(key, 0)} live"
            yield Violation("I9", records.now, "/".join(key), text)
    used: dict[tuple[str, str, str, str, str], int] = {}
    for node in (one for one in alone if one.has_chips):
        _use(used, node.project, node.zone, node.usage_class, node.kind)
    for queue in records.queued.values():
        if queue.live_name is not None and not queue.is_refused:
            for request in queue.spec.nodes:
                kind = kind_of(request.spec.accelerator_type, request.spec.topology)
                _use(used, queue.project, queue.zone, queue.usage_class, kind)
    for (project, region, generation, usage, size), units in sorted(used.items()):
        limit = fleet.group_limit(region, GENERATIONS[generation], UsageClass(usage), size)
        if units > limit:
            text = f"{units} of {limit} units are used ({generation}, {usage}, {size})"
            yield Violation("I9", records.now, f"projects/{project}/{region}", text)


def _use(
    used: dict[tuple[str, str, str, str, str], int],
    project: str,
    zone: str,
    usage: str,
    kind: AcceleratorType,
) -> None:
    key = (project, region_of(zone), kind.generation.name, usage, quota_kind(kind))
    used[key] = used.get(key, 0) + quota_units(kind)


def _check_request_ids(records: Records) -> Iterator[Violation]:
    seen: dict[str, str] = {}
    for request in records.requests:
        operation_id, request_id = request.operation_id, request.request_id
        if operation_id is None:
            yield Violation(
                "I11",
                request.created,
                request_id,
                "the request was taken, and nothing was done for it",
            )
        elif operation_id in seen:
            text = f"operation {operation_id} stands for request {seen[operation_id]} too"
            yield Violation("I11", request.created, request_id, text)
        else:
            seen[operation_id] = request_id


def _check_queue(records: Records) -> Iterator[Violation]:
    members: dict[str, list[NodeRecord]] = {}
    for node in records.nodes.values():
        if node.queued_resource_key is not None and node.live_name is not None:
            members.setdefault(node.queued_resource_key, []).append(node)
    waiting = {timer.resource_key for timer in records.timers}
    for key, queued in records.queued.items():
        nodes = members.pop(key, [])
        for problem in _queue_problems(records, queued, nodes, key in waiting):
            yield Violation("I14", records.now, queued.name, problem)
        for node in nodes:
            if node.project != queued.project:
                yield Violation("I12", records.now, node.name, f"it belongs to {queued.name}")
    for key, nodes in sorted(members.items()):
        yield Violation("I14", records.now, nodes[0].name, f"its queued resource {key} is gone")


def _queue_problems(
    records: Records, queued: QueuedResourceRecord, nodes: list[NodeRecord], has_timer: bool
) -> Iterator[str]:
    state, wanted = queued.state, len(queued.spec.nodes)
    states = [node.state for node in nodes]
    all_ready = len(nodes) == wanted and set(states) == {NodeState.READY}
    if state is QueuedResourceState.ACTIVE and not all_ready:
        yield f"it is ACTIVE with {states.count(NodeState.READY)} of {wanted} nodes READY"
    if state is QueuedResourceState.PROVISIONING and all_ready and not has_timer:
        yield "all of its nodes are READY, and it is not ACTIVE"
    if state in (QueuedResourceState.GONE, QueuedResourceState.ACCEPTED) and nodes:
        yield f"it is {state} and has {len(nodes)} nodes"
    if state in _WITHOUT_LIVE_NODES:
        alive = [
            found
            for found in states
            if found is not NodeState.DELETING and found not in NODE_STATES_LOST
        ]
        if alive:
            yield f"it is {state} and has nodes that are {', '.join(sorted(set(alive)))}"
    until, activated = queued.valid_until, queued.activated
    if until is None:
        return
    if activated is not None and activated > until:
        yield f"it was first ACTIVE at {activated.rfc3339()}, after {until.rfc3339()}"
    late = until.plus_seconds(GRACE_SECONDS) < records.now
    if late and activated is None and state not in _OVER:
        yield f"it is {state}, and its time was over at {until.rfc3339()}"


def _check_waiting(records: Records) -> Iterator[Violation]:
    """I5 for what waits for chips: it says why."""
    placed = {item.node_key for item in records.slices}
    entered = {change.resource_key: change.at for change in records.changes}

    def is_old(key: str, created: PlatformTime) -> bool:
        since = max(entered.get(key, created), created)
        return since.plus_seconds(GRACE_SECONDS) < records.now

    for key, node in records.nodes.items():
        begins = node.state in (NodeState.CREATING, NodeState.STARTING) and node.has_chips
        waits = begins and key not in placed
        if waits and not node.wait_reason and is_old(key, node.created):
            yield Violation(
                "I5", records.now, node.name, f"it is {node.state} and does not say why it waits"
            )
    for key, queued in records.queued.items():
        holding = any(
            node.queued_resource_key == key and node.live_name for node in records.nodes.values()
        )
        waits = queued.state is QueuedResourceState.WAITING_FOR_RESOURCES and not holding
        if waits and not queued.wait_reason and is_old(key, queued.created):
            yield Violation("I5", records.now, queued.name, "it does not say why it waits")


def _check_preemptions(records: Records) -> Iterator[Violation]:
    classes = {key: node.usage_class for key, node in records.nodes.items()}
    made_for_jobs = {key for key, node in records.nodes.items() if node.job_key is not None}
    for change in records.changes:
        if change.machine != "node" or change.event != "preempt":
            continue
        key = change.resource_key
        # A job of higher priority may take the node that the platform made for another job, of
        # whatever class.
        if classes.get(key) not in CAN_BE_TAKEN_BACK and key not in made_for_jobs:
            yield Violation(
                "I15", change.at, change.resource_name, f"{classes.get(key)}, and was preempted"
            )
    for node in records.nodes.values():
        over = [at for at in (node.termination, node.reclaim_at) if at is not None]
        lives = (
            node.state is NodeState.READY
            and over
            and min(over).plus_seconds(GRACE_SECONDS) < records.now
        )
        if lives:
            text = f"it is READY, and should have ended at {min(over).rfc3339()}"
            yield Violation("I15", records.now, node.name, text)
