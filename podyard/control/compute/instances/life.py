"""Instances from their creation on: shown, stopped, started, reset and deleted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.control.access import identity
from podyard.control.compute import nodes
from podyard.control.platform import operations
from podyard.db.compute import hosts as host_rows
from podyard.db.compute import instances as rows
from podyard.db.compute import nodes as node_rows
from podyard.db.store import timers, yard
from podyard.db.store.transition import store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import ComputeRefusal, Reason, resource_not_found
from podyard.domain.fleet import Fleet
from podyard.domain.host import (
    GUEST_ATTRIBUTES_SWITCH,
    HOST_KEYS_NAMESPACE,
    attribute_items,
)
from podyard.domain.host_key import KEY_TYPE, key_seed, public_key
from podyard.domain.host_record import HostRecord
from podyard.domain.instances.instance import Instance
from podyard.domain.lists.pages import RowQuery
from podyard.domain.node import (
    INTERRUPTIBLE,
    UNHEALTHY_MAINTENANCE,
    NodeState,
    instance_name,
)
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.principal import Principal


def look_up(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, name: str
) -> Instance:
    """The live instance. Raises PERMISSION_DENIED or NOT_FOUND."""
    principal.require(permission, project, instance_name(project, zone, name))
    if (instance := rows.find(uow, project, zone, name)) is not None:
        return instance
    raise resource_not_found(instance_name(project, zone, name))


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str) -> Instance:
    return look_up(uow, principal, "compute.instances.get", project, zone, name)


def list_page(
    uow: UnitOfWork, principal: Principal, project: str, zone: str | None, query: RowQuery
) -> list[Instance]:
    """Those of one zone, or (None) of all."""
    principal.require("compute.instances.list", project, f"projects/{project}")
    identity.project_row(uow, project)
    return rows.page(uow, project, zone, query)


def delete(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, name: str
) -> Operation:
    """An instance of a slice of several comes back: its group keeps the slice whole."""
    target = look_up(uow, principal, "compute.instances.delete", project, zone, name)
    if target.spec.deletion_protection:
        text = (
            "Invalid resource usage: 'Resource cannot be deleted if it's protected against "
            f"deletion. Resource: {target.row.path}'."
        )
        raise ComputeRefusal(Reason.INVALID, text)
    node = target.node
    if node.state is NodeState.DELETING:
        raise not_ready(target)
    if node.host_count > 1:
        return _remake(uow, fleet, target)
    return nodes.begin(uow, node, OperationVerb.DELETE, fleet.timings.delete_seconds)


def _remake(uow: UnitOfWork, fleet: Fleet, target: Instance) -> Operation:
    node = target.node
    if node.state is not NodeState.READY:
        raise not_ready(target)
    operation = operations.begin(uow, operations.of_node(node), OperationVerb.DELETE)
    changed = dataclasses.replace(node, pending_operation=operation.operation_id)
    reason = f"instance {target.row.name} was deleted, and its group makes it again"
    nodes.pass_into(uow, node, "repair", "repaired", fleet.timings.restart_seconds, reason, changed)
    return operation


def stop(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, name: str
) -> Operation:
    target = look_up(uow, principal, "compute.instances.stop", project, zone, name)
    if target.node.state is NodeState.STOPPED:
        return operations.complete(uow, operations.of_node(target.node), OperationVerb.STOP)
    _require_state(target, NodeState.READY)
    return nodes.begin(uow, target.node, OperationVerb.STOP, fleet.timings.stop_seconds)


def start(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, name: str
) -> Operation:
    target = look_up(uow, principal, "compute.instances.start", project, zone, name)
    node = target.node
    if node.state is NodeState.READY:
        return operations.complete(uow, operations.of_node(node), OperationVerb.START)
    _require_state(target, NodeState.STOPPED)
    fresh = dataclasses.replace(node, state_reason="", termination=None)
    store(uow, node, fresh)
    operation = nodes.begin(uow, fresh, OperationVerb.START)
    if not node.has_chips:
        nodes.give_hosts(uow, fleet, node_rows.get_by_key(uow, node.node_key))
    return operation


def reset(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, name: str
) -> Operation:
    """Its hosts start again, with the disks that they have."""
    target = look_up(uow, principal, "compute.instances.reset", project, zone, name)
    _require_state(target, NodeState.READY)
    node = target.node
    operation = operations.begin(uow, operations.of_node(node), OperationVerb.RESET)
    changed = dataclasses.replace(node, pending_operation=operation.operation_id)
    seconds = fleet.timings.restart_seconds
    nodes.pass_into(uow, node, "restart", "restarted", seconds, "reset requested", changed)
    return operation


def simulate_maintenance(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, name: str
) -> Operation:
    """A spot instance is preempted by it (docs: simulate host maintenance); any other is told of a
    maintenance event for the fleet's `maintenance_seconds`."""
    target = look_up(
        uow, principal, "compute.instances.simulateMaintenanceEvent", project, zone, name
    )
    _require_state(target, NodeState.READY)
    node = target.node
    if node.usage_class in INTERRUPTIBLE:
        nodes.take_back(uow, node, "preempt", "preempted by a simulated maintenance event")
        return operations.complete(
            uow, operations.of_node(node), OperationVerb.SIMULATE_MAINTENANCE_EVENT
        )
    operation = operations.begin(
        uow, operations.of_node(node), OperationVerb.SIMULATE_MAINTENANCE_EVENT
    )
    changed = dataclasses.replace(
        node,
        health=UNHEALTHY_MAINTENANCE,
        health_description="a maintenance event is simulated",
        maintenance_workers=(target.row.host_index,),
    )
    store(uow, node, changed)
    due = uow.now.plus_seconds(fleet.timings.maintenance_seconds)
    timers.put(uow, "maintenance.simulated", operation.operation_id, 0, due)
    return operation


def serial_output(uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str) -> str:
    """The last lines that its start-up and shutdown scripts have written: its console."""
    target = look_up(uow, principal, "compute.instances.getSerialPortOutput", project, zone, name)
    host = _host_of(uow, target)
    if host is None:
        return ""
    texts = (
        (str(kind), str(said.get("output", ""))) for kind, said in sorted(host.scripts.items())
    )
    return "".join(
        f"{target.row.name} {kind}: {line}\n" for kind, text in texts for line in text.splitlines()
    )


def guest_attributes(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str, query_path: str
) -> list[dict[str, str]]:
    """Items `{namespace, key, value}`. Raises NOT_FOUND in Google's words where there are none, or
    they are not switched on."""
    target = look_up(uow, principal, "compute.instances.getGuestAttributes", project, zone, name)
    metadata = target.node.spec.metadata
    is_on = metadata.get(GUEST_ATTRIBUTES_SWITCH, "").lower() == "true"
    host = _host_of(uow, target)
    known: dict[str, Mapping[str, str]] = {}
    if host is not None and (is_on or query_path.startswith(HOST_KEYS_NAMESPACE)):
        public = public_key(key_seed(yard.read(uow).secret, host.host_id))
        own = host.guest_attributes if is_on else {}
        known = {**own, HOST_KEYS_NAMESPACE: {KEY_TYPE: public}}
    items = attribute_items(known, query_path)
    if not items:
        raise resource_not_found(f"{target.row.path}/guestAttributes/{query_path}".rstrip("/"))
    return items


def not_ready(target: Instance) -> ComputeRefusal:
    """Google's words for an instance whose state forbids it."""
    return ComputeRefusal(Reason.NOT_READY, f"The resource '{target.row.path}' is not ready")


def _require_state(target: Instance, state: NodeState) -> None:
    if target.node.state is not state:
        raise not_ready(target)


def _host_of(uow: UnitOfWork, target: Instance) -> HostRecord | None:
    of_node = host_rows.of_node(uow, target.node.node_key)
    return next((one for one in of_node if one.host_index == target.row.host_index), None)
