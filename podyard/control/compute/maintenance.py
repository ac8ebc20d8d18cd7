"""Maintenance of nodes: planned by the platform, begun early by a user, or only simulated.

A maintenance puts all hosts of a node into it (docs: manually start a maintenance event): the node
is REPAIRING and UNHEALTHY_MAINTENANCE for the fleet's `maintenance_seconds`, then READY. In a
multislice the other slices restart after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, failed_precondition, invalid, invalid_field
from podyard.control.compute import lookup, node_checks, nodes, queue_states
from podyard.control.platform import operations
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import operations as operation_rows
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.transition import store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.node import (
    HEALTHY,
    NODE_STATES_LOST,
    ONGOING,
    PENDING,
    UNHEALTHY_MAINTENANCE,
    Node,
    NodeRecord,
    NodeState,
    UpcomingMaintenance,
    node_name,
)
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import QueuedResourceState, queued_resource_name

# google.cloud.tpu.v2alpha1.UpcomingMaintenance.MaintenanceType
MAINTENANCE_TYPES = ("SCHEDULED", "UNSCHEDULED")
_SIMULATED = "a maintenance event is simulated"
_TEXT = "its hosts are in maintenance; it will run again afterwards"


def simulate(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    worker_ids: Sequence[str | int] = (),
) -> Operation:
    """Tells the hosts `worker_ids` (none: all) of a READY node that a maintenance event is on.
    Nothing else happens to them; after the fleet's `maintenance_seconds` all is well again, and the
    operation ends with the node."""
    node = lookup.node(uow, principal, "tpu.nodes.simulateMaintenanceEvent", project, zone, node_id)
    workers = _workers(node, worker_ids)
    if node.state is not NodeState.READY:
        raise node_checks.bad_state(OperationVerb.SIMULATE_MAINTENANCE_EVENT, node)
    if node.maintenance_workers:
        raise failed_precondition(f"node {node_id} already has a maintenance event")
    operation_id = operations.begin(
        uow, operations.of_node(node), OperationVerb.SIMULATE_MAINTENANCE_EVENT
    ).operation_id
    changed = dataclasses.replace(
        node,
        health=UNHEALTHY_MAINTENANCE,
        health_description=_SIMULATED,
        maintenance_workers=workers,
    )
    store(uow, node, changed)
    timers.put(
        uow,
        "maintenance.simulated",
        operation_id,
        0,
        uow.now.plus_seconds(fleet.timings.maintenance_seconds),
    )
    return operations.get(uow, principal, project, zone, operation_id)


def schedule(  # noqa: PLR0913
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    window_start: PlatformTime,
    window_end: PlatformTime,
    latest_window_start: PlatformTime | None = None,
    can_reschedule: bool = True,
    maintenance_type: str = "SCHEDULED",
) -> Node:
    """Plans a maintenance of a node: PENDING until it is performed or its window begins. One that
    was planned before
    is replaced. Whatever `can_reschedule` says, a type whose maintenance no user may begin cannot
    be rescheduled.

    Raises INVALID_ARGUMENT for a window in the past, one that is too short for the fleet's
    `maintenance_seconds` or a latest start outside of it, and FAILED_PRECONDITION for a node that
    will not run again or is in maintenance.
    """
    node = lookup.node(uow, principal, "podyard.nodes.scheduleMaintenance", project, zone, node_id)
    if maintenance_type not in MAINTENANCE_TYPES:
        raise invalid(
            f"unknown type {maintenance_type!r}: use {', '.join(MAINTENANCE_TYPES)}", "type"
        )
    if window_end <= window_start or window_start < uow.now:
        raise invalid_field(
            "a maintenance window must start in the future and end after its start",
            "window_start_time",
        )
    seconds = fleet.timings.maintenance_seconds
    if window_end < window_start.plus_seconds(seconds):
        raise invalid_field(
            f"the maintenance window is too short: it must last at least {seconds:g} s",
            "window_end_time",
        )
    latest = latest_window_start or window_start
    if not window_start <= latest <= window_end:
        raise invalid_field(
            "the latest start must be within the maintenance window", "latest_window_start_time"
        )
    if node.state is NodeState.DELETING or node.state in NODE_STATES_LOST:
        raise node_checks.bad_state(OperationVerb.SCHEDULE_MAINTENANCE, node)
    if (
        node.upcoming_maintenance is not None
        and node.upcoming_maintenance.maintenance_status == ONGOING
    ):
        raise failed_precondition(f"node {node_id} is under maintenance")
    upcoming = UpcomingMaintenance(
        type=maintenance_type,
        can_reschedule=can_reschedule and _may_be_begun_early(node),
        window_start=window_start.rfc3339(),
        window_end=window_end.rfc3339(),
        latest_window_start=latest.rfc3339(),
        maintenance_status=PENDING,
    )
    changed = dataclasses.replace(node, upcoming_maintenance=upcoming)
    store(uow, node, changed)
    timers.put(uow, "maintenance.window", node.node_key, 0, window_start)
    return node_rows.to_node(uow, changed)


def perform(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str
) -> Operation:
    """Begins the planned maintenance of a node now; raises FAILED_PRECONDITION when there is none
    that may be."""
    node = lookup.node(uow, principal, "tpu.nodes.performMaintenance", project, zone, node_id)
    _check(node)
    operation_id = operations.begin(
        uow, operations.of_node(node), OperationVerb.PERFORM_MAINTENANCE
    ).operation_id
    _begin(uow, fleet, node, operation_id)
    return operations.get(uow, principal, project, zone, operation_id)


def perform_queued_resource(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    queued_resource_id: str,
    node_names: Sequence[str] = (),
) -> Operation:
    """Begins the planned maintenances of nodes of an ACTIVE queued resource, by name or id; none
    named: of all nodes.

    All or none: FAILED_PRECONDITION when one of them may not. The operation ends when it is ACTIVE
    again.
    """
    name = queued_resource_name(project, zone, queued_resource_id)
    queue = lookup.queued_resource(
        uow, principal, "tpu.nodes.performMaintenance", project, zone, queued_resource_id
    )
    found = {
        node.node_id: node for node in node_rows.of_queued_resource(uow, queue.queued_resource_key)
    }
    ids = {node_name(project, zone, node_id): node_id for node_id in found}
    wanted = [ids.get(text, text) for text in node_names] or list(found)
    for node_id in wanted:
        if node_id not in found:
            raise invalid_field(f"{node_id} is not a node of {name}", "node_names")
    if queue.state is not QueuedResourceState.ACTIVE:
        raise failed_precondition(
            f"queued resource {queued_resource_id} is {queue.state}, not ACTIVE"
        )
    for node_id in wanted:
        _check(found[node_id])
    target = operations.of_queued_resource(queue)
    operation_id = operations.begin(
        uow, target, OperationVerb.PERFORM_MAINTENANCE_QUEUED_RESOURCE
    ).operation_id
    store(uow, queue, dataclasses.replace(queue, pending_operation=operation_id))
    for node_id in dict.fromkeys(wanted):
        _begin(uow, fleet, found[node_id], None)
    return operations.get(uow, principal, project, zone, operation_id)


def info(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, queued_resource_id: str
) -> list[tuple[str, int, UpcomingMaintenance | None]]:
    """(node name, the node's number, its upcoming maintenance or None) of each node of a queued
    resource."""
    queue = lookup.queued_resource(
        uow, principal, "tpu.queuedresources.get", project, zone, queued_resource_id
    )
    found = node_rows.of_queued_resource(uow, queue.queued_resource_key)
    return [(node.name, node.number, node.upcoming_maintenance) for node in found]


def on_timer(uow: UnitOfWork, fleet: Fleet, timer: Timer) -> None:
    if timer.kind == "maintenance.simulated":
        _end_simulated(uow, timer.resource_key)
    elif timer.kind == "maintenance.window":
        node = node_rows.get_by_key(uow, timer.resource_key)
        upcoming = node.upcoming_maintenance
        if upcoming is None or upcoming.maintenance_status != PENDING:
            return
        if upcoming.window_start != timer.due.rfc3339():
            return  # it was rescheduled
        if node.state is NodeState.READY:
            _begin(uow, fleet, node, None)
        else:  # nothing of it runs that a maintenance could disturb
            store(uow, node, dataclasses.replace(node, upcoming_maintenance=None))


def _begin(uow: UnitOfWork, fleet: Fleet, node: NodeRecord, operation_id: str | None) -> None:
    assert node.upcoming_maintenance is not None, node
    changed = dataclasses.replace(
        node,
        pending_operation=operation_id,
        health=UNHEALTHY_MAINTENANCE,
        health_description=_TEXT,
        maintenance_workers=tuple(range(node.host_count)),
        upcoming_maintenance=dataclasses.replace(
            node.upcoming_maintenance, maintenance_status=ONGOING
        ),
    )
    seconds = fleet.timings.maintenance_seconds
    nodes.pass_into(uow, node, "repair", "repaired", seconds, "its maintenance has begun", changed)
    if node.queued_resource_key is not None:
        queue_states.maintain(uow, node)


def _end_simulated(uow: UnitOfWork, operation_id: str) -> None:
    operation = operation_rows.find(uow, operation_id)
    if operation is None:
        # Its record was deleted, which only an ended operation's can be: the node was told of the
        # end then.
        return
    node = node_rows.get_by_key(uow, operation.target_key)
    if node.live_name is None:
        operations.fail(
            uow, operation_id, Code.CANCELLED, "The node was deleted during the maintenance event"
        )
        return
    changed = node
    if node.state is not NodeState.REPAIRING:
        # A real maintenance that has begun meanwhile has put its own words there.
        changed = dataclasses.replace(
            node, health=HEALTHY, health_description="", maintenance_workers=()
        )
        store(uow, node, changed)
    operations.succeed(uow, operation_id, node_rows.freeze(uow, changed))


def _check(node: NodeRecord) -> None:
    upcoming = node.upcoming_maintenance
    if upcoming is None or upcoming.maintenance_status != PENDING:
        raise failed_precondition(f"node {node.node_id} has no PENDING upcoming maintenance")
    if not upcoming.can_reschedule:
        raise failed_precondition(
            f"the upcoming maintenance of node {node.node_id} cannot be rescheduled"
        )
    if node.state is not NodeState.READY:
        raise node_checks.bad_state(OperationVerb.PERFORM_MAINTENANCE, node)


def _may_be_begun_early(node: NodeRecord) -> bool:
    least = node.kind.generation.maintenance_from_chips
    return least is not None and node.kind.chip_count >= least


def _workers(node: NodeRecord, worker_ids: Sequence[str | int]) -> tuple[int, ...]:
    if not worker_ids:
        return tuple(range(node.host_count))
    known = {str(index): index for index in range(node.host_count)}
    unknown = [str(worker) for worker in worker_ids if str(worker) not in known]
    if unknown:
        raise invalid_field(
            f"worker {unknown[0]} does not exist: node {node.node_id} has workers 0 to "
            f"{node.host_count - 1}",
            "worker_ids",
        )
    return tuple(sorted({known[str(worker)] for worker in worker_ids}))
