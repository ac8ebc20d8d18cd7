"""Changes of instances: metadata, labels, tags, scheduling, account, machine type, data disks. Each
ends its operation in the unit that makes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.control.compute import disks, nodes, ports
from podyard.control.compute.instances.create import check_account, require_disk
from podyard.control.compute.instances.life import look_up, not_ready
from podyard.control.platform import operations
from podyard.db.compute import instances as rows
from podyard.db.compute import nodes as node_rows
from podyard.db.store import timers
from podyard.db.store.transition import move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import (
    ComputeRefusal,
    Reason,
    invalid_value,
    require_fingerprint,
)
from podyard.domain.instances.instance import (
    AttachedDisk,
    Instance,
    InstanceSpec,
    Scheduling,
    own_of,
)
from podyard.domain.node import NODE, NodeState
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.principal import Principal

DISKS_MAX = 128  # of one instance (docs: attach a disk)


def set_metadata(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    metadata: Mapping[str, str],
    fingerprint: str,
) -> Operation:
    """Replaces the metadata, of this host alone."""
    target = look_up(uow, principal, "compute.instances.setMetadata", project, zone, name)
    _require_account(uow, principal, target)
    require_fingerprint("metadata", fingerprint, target.metadata_fingerprint)
    spec = dataclasses.replace(target.spec, metadata=dict(metadata))
    return respec(uow, target, spec, OperationVerb.SET_METADATA)


def set_labels(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    labels: Mapping[str, str],
    fingerprint: str,
) -> Operation:
    """From then on its use counts under the new labels, but that of a slice of several hosts,
    which is one: it goes on counting under those of its template."""
    target = look_up(uow, principal, "compute.instances.setLabels", project, zone, name)
    require_fingerprint("labels", fingerprint, target.label_fingerprint)
    spec = dataclasses.replace(target.spec, labels=dict(labels))
    return respec(uow, target, spec, OperationVerb.SET_LABELS)


def set_tags(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    tags: Sequence[str],
    fingerprint: str,
) -> Operation:
    target = look_up(uow, principal, "compute.instances.setTags", project, zone, name)
    require_fingerprint("tags", fingerprint, target.tag_fingerprint)
    return respec(
        uow, target, dataclasses.replace(target.spec, tags=tuple(tags)), OperationVerb.SET_TAGS
    )


def set_scheduling(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    scheduling: Scheduling,
) -> Operation:
    """The run time may change, also while it is RUNNING; the provisioning model may not."""
    target = look_up(uow, principal, "compute.instances.setScheduling", project, zone, name)
    node, before = target.node, target.spec.scheduling
    scheduling.check()
    if node.state not in (NodeState.READY, NodeState.STOPPED):
        raise not_ready(target)
    is_other = scheduling.usage_class is not before.usage_class or scheduling.model != before.model
    if is_other:
        text = (
            f"The provisioning model of an instance cannot be changed: '{target.row.path}' is "
            f"{before.model}. Delete it, and create it again"
        )
        raise ComputeRefusal(Reason.INVALID, text)
    spec = dataclasses.replace(target.spec, scheduling=scheduling)
    operation = respec(uow, target, spec, OperationVerb.SET_SCHEDULING)
    if node.state is NodeState.READY and scheduling.max_run_seconds != before.max_run_seconds:
        _set_end(uow, node.node_key)
    return operation


def _set_end(uow: UnitOfWork, node_key: str) -> None:
    node = node_rows.get_by_key(uow, node_key)
    seconds = node.spec.max_run_seconds
    end = None
    if seconds is not None and node.ready_since is not None:
        end = max(uow.now, node.ready_since.plus_seconds(seconds))
        timers.put(uow, "node.expire", node.node_key, 0, end)
    store(uow, node, dataclasses.replace(node, termination=end))


def set_service_account(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    email: str,
    scopes: Sequence[str],
) -> Operation:
    """Only while it is TERMINATED."""
    target = look_up(uow, principal, "compute.instances.setServiceAccount", project, zone, name)
    require_stopped(target, "change its service account")
    spec = dataclasses.replace(target.spec, service_account=email, scopes=tuple(scopes))
    _require_account(uow, principal, target, spec)
    return respec(uow, target, spec, OperationVerb.SET_SERVICE_ACCOUNT)


def attach_disk(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str, disk: AttachedDisk
) -> Operation:
    target = look_up(uow, principal, "compute.instances.attachDisk", project, zone, name)
    principal.require("compute.disks.update", project, disk.source)
    require_disk(uow, project, zone, disk.source)
    attached = target.spec.disks
    if any(one.source == disk.source for one in attached):
        text = f"The disk resource '{disk.source}' is already attached to '{target.row.path}'"
        raise ComputeRefusal(Reason.IN_USE, text)
    if len(attached) >= DISKS_MAX:
        raise invalid_value("disks", len(attached) + 1, f"An instance has at most {DISKS_MAX}.")
    spec = dataclasses.replace(target.spec, disks=(*attached, disk))
    return respec(uow, target, spec, OperationVerb.ATTACH_DISK)


def detach_disk(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str, device_name: str
) -> Operation:
    """`device_name`: as it was attached, else the last part of the disk's name."""
    target = look_up(uow, principal, "compute.instances.detachDisk", project, zone, name)
    left = tuple(one for one in target.spec.disks if one.device != device_name)
    if len(left) == len(target.spec.disks):
        why = f"No attached disk found with device name '{device_name}'"
        raise invalid_value("disk", device_name, why)
    spec = dataclasses.replace(target.spec, disks=left)
    return respec(uow, target, spec, OperationVerb.DETACH_DISK)


def update(
    uow: UnitOfWork, principal: Principal, target: Instance, now: InstanceSpec, wanted: InstanceSpec
) -> Operation:
    """Several fields at once; `now`, `wanted`: the instance as it is and as it is to be, both read
    as its message is."""
    _require_account(uow, principal, target)
    if now.with_update(wanted) != wanted:
        text = (
            "Only labels, metadata, tags, description, deletionProtection, canIpForward and fields "
            "that nothing follows from can be updated here: "
            "use setScheduling, setMachineType, attachDisk or detachDisk for the rest"
        )
        raise ComputeRefusal(Reason.INVALID, text)
    return respec(uow, target, target.spec.with_update(wanted), OperationVerb.UPDATE)


def require_stopped(target: Instance, what: str) -> None:
    if target.node.state is not NodeState.STOPPED:
        text = f"The instance must be stopped to {what}: '{target.row.path}' is {target.status}."
        raise ComputeRefusal(Reason.NOT_READY, text)


def _require_account(
    uow: UnitOfWork, principal: Principal, target: Instance, spec: InstanceSpec | None = None
) -> None:
    """Raises PERMISSION_DENIED when the instance's account may do more than the caller."""
    owner = identity.project_row(uow, target.row.project)
    node = (spec or target.spec).node_spec(target.row.project, target.row.zone, target.row.name)
    check_account(uow, principal, owner, node)


def _set_own(uow: UnitOfWork, target: Instance, spec: InstanceSpec) -> InstanceSpec:
    """Keeps what an instance of a slice has for itself, and returns the rest: with that of the
    slice."""
    if own_of(spec) != own_of(target.spec):
        rows.set_own(uow, target.row, own_of(spec))
    node = target.node.spec
    return dataclasses.replace(
        spec, labels=node.labels, metadata=node.metadata, tags=tuple(node.tags)
    )


def respec(uow: UnitOfWork, target: Instance, spec: InstanceSpec, verb: OperationVerb) -> Operation:
    node = target.node
    if not NODE.allows(node.state, "relabel"):
        raise not_ready(target)
    if node.host_count > 1:
        spec = _set_own(uow, target, spec)
    topology = node.topology if node.has_chips else ""
    fresh = spec.node_spec(node.project, node.zone, node.node_id, topology)
    try:
        disks.check(uow, node.project, node.node_key, fresh)
    except PodyardError as error:
        if error.code is not Code.FAILED_PRECONDITION:
            raise
        raise ComputeRefusal(Reason.IN_USE, error.message) from error
    changed = dataclasses.replace(node, spec=fresh)
    if fresh.labels == node.spec.labels:
        node_rows.set_spec(uow, node, fresh)
    else:
        reason = nodes.label_changes(node.spec.labels, fresh.labels)
        move(uow, node, "relabel", reason=reason, changed=changed)
        ports.spending.on_relabel(uow, node.project)
    return operations.complete(uow, operations.of_node(changed), verb)
