"""Changes of one field of an instance, which end when they are answered. Each is a function from
the instance as it is asked for to the one that it becomes, which raises what Compute Engine
refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podyard.control.access import identity
from podyard.control.compute import ports
from podyard.control.compute.instances import create
from podyard.control.compute.instances.changes import require_stopped, respec
from podyard.control.compute.instances.life import look_up
from podyard.control.platform import operations
from podyard.db.store.transition import move
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import ComputeRefusal, Reason, invalid_value
from podyard.domain.fleet import Fleet
from podyard.domain.instances.instance import POLICIES_FIELD, Instance, InstanceSpec
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.principal import Principal

Edit = Callable[[InstanceSpec], InstanceSpec]
# Changes that an instance must be TERMINATED for, with what they are.
_STOPPED: Mapping[OperationVerb, str] = {
    OperationVerb.SET_MIN_CPU_PLATFORM: "change its minimum CPU platform",
    OperationVerb.UPDATE_SHIELDED_CONFIG: "change its Shielded VM configuration",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """An instance as a call names it."""

    principal: Principal
    project: str
    zone: str
    name: str

    def look_up(self, uow: UnitOfWork, verb: str) -> Instance:
        permission = f"compute.instances.{verb}"
        return look_up(uow, self.principal, permission, self.project, self.zone, self.name)


def change(uow: UnitOfWork, named: Named, verb: OperationVerb, edit: Edit) -> Operation:
    target = named.look_up(uow, verb)
    if verb in _STOPPED:
        require_stopped(target, _STOPPED[verb])
    spec = edit(target.spec)
    create.check_policies(uow, named.project, spec)
    return respec(uow, target, spec, verb)


def protect(is_protected: bool) -> Edit:
    return lambda spec: dataclasses.replace(spec, deletion_protection=is_protected)


def keep(fields: Mapping[str, Any]) -> Edit:
    """Fields that nothing follows from; an empty one is taken away."""

    def edit(spec: InstanceSpec) -> InstanceSpec:
        both = {**spec.kept, **fields}
        return dataclasses.replace(spec, kept={name: both[name] for name in both if both[name]})

    return edit


def merge(field: str, message: Mapping[str, Any]) -> Edit:
    """The fields of a message that nothing follows from; those that are left out stay."""
    return lambda spec: keep({field: {**spec.kept.get(field, {}), **message}})(spec)


def add_policies(paths: Sequence[str]) -> Edit:
    return lambda spec: keep(
        {POLICIES_FIELD: list(dict.fromkeys([*spec.placement_policies, *paths]))}
    )(spec)


def remove_policies(paths: Sequence[str]) -> Edit:
    return lambda spec: keep(
        {POLICIES_FIELD: [one for one in spec.placement_policies if one not in paths]}
    )(spec)


def auto_delete(device_name: str, is_deleted: bool) -> Edit:
    """Whether a disk goes with its instance."""

    def edit(spec: InstanceSpec) -> InstanceSpec:
        if device_name == spec.boot.device:
            return dataclasses.replace(spec, boot=spec.boot._replace(auto_delete=is_deleted))
        names = [one.device for one in spec.disks]
        if device_name not in names:
            why = f"No attached disk found with device name '{device_name}'"
            raise invalid_value("disk", device_name, why)
        at = names.index(device_name)
        changed = spec.disks[at]._replace(auto_delete=is_deleted)
        disks = (*spec.disks[:at], changed, *spec.disks[at + 1 :])
        return dataclasses.replace(spec, disks=disks)

    return edit


def add_access(interface: str, access: Mapping[str, Any]) -> Edit:
    def edit(spec: InstanceSpec) -> InstanceSpec:
        at = _interface(spec, interface)
        if spec.interfaces[at].has_external_ip:
            why = "At most one access config currently supported."
            raise invalid_value("accessConfig", access.get("name", ""), why)
        return _with_access(spec, at, access)

    return edit


def update_access(interface: str, access: Mapping[str, Any]) -> Edit:
    def edit(spec: InstanceSpec) -> InstanceSpec:
        at = _interface(spec, interface)
        name = str(access.get("name") or spec.interfaces[at].access_name)
        _check_access(spec, at, name)
        return _with_access(spec, at, {**spec.interfaces[at].access, **access})

    return edit


def delete_access(interface: str, name: str) -> Edit:
    def edit(spec: InstanceSpec) -> InstanceSpec:
        at = _interface(spec, interface)
        _check_access(spec, at, name)
        return _with_access(spec, at, None)

    return edit


def _interface(spec: InstanceSpec, name: str) -> int:
    number = name.removeprefix("nic")
    if not number.isdigit() or int(number) >= len(spec.interfaces):
        raise invalid_value("networkInterface", name, "The instance has no such interface.")
    return int(number)


def _check_access(spec: InstanceSpec, at: int, name: str) -> None:
    one = spec.interfaces[at]
    if not one.has_external_ip or one.access_name != name:
        raise invalid_value("accessConfig", name, "The interface has no such access config.")


def _with_access(spec: InstanceSpec, at: int, access: Mapping[str, Any] | None) -> InstanceSpec:
    """The same with an external address, or (None) without one."""
    changed = spec.interfaces[at]._replace(
        has_external_ip=access is not None, access=dict(access or {})
    )
    interfaces = (*spec.interfaces[:at], changed, *spec.interfaces[at + 1 :])
    return dataclasses.replace(spec, interfaces=interfaces)


def set_machine_type(uow: UnitOfWork, fleet: Fleet, named: Named, machine_type: str) -> Operation:
    """Another machine type without chips, while it is TERMINATED."""
    target = named.look_up(uow, OperationVerb.SET_MACHINE_TYPE)
    spec = dataclasses.replace(target.spec, machine_type=machine_type)
    kind = create.check_machine(fleet, named.zone, spec, "")
    for one in (target.spec, spec):
        if one.machine.has_chips:
            text = (
                f"The machine type of an instance with TPUs cannot be changed: {one.machine_type} "
                "has TPUs. Create another instance"
            )
            raise ComputeRefusal(Reason.INVALID, text)
    require_stopped(target, "change its machine type")
    owner = identity.project_row(uow, named.project)
    node = target.node
    create.check_processors(
        uow, owner.project, named.zone, (spec.machine.cpus or 0) - (target.spec.machine.cpus or 0)
    )
    changed = dataclasses.replace(
        node,
        accelerator_type=kind.name,
        spec=spec.node_spec(node.project, node.zone, node.node_id),
    )
    reason = f"machine type {target.spec.machine_type} -> {machine_type}"
    move(uow, node, "relabel", reason=reason, changed=changed)
    ports.spending.on_relabel(uow, node.project)
    return operations.complete(uow, operations.of_node(changed), OperationVerb.SET_MACHINE_TYPE)


def refuse_suspension(uow: UnitOfWork, named: Named, verb: OperationVerb) -> Operation:
    """Raises: hosts cannot be frozen and thawed, and Compute Engine freezes none with TPUs."""
    target = named.look_up(uow, verb)
    if target.spec.machine.has_chips:
        text = f"Instances with TPUs cannot be suspended: {target.spec.machine_type} has TPUs"
        raise ComputeRefusal(Reason.INVALID, text)
    text = f"instances.{verb} is not served by Podyard: its hosts cannot be frozen. Use stop"
    raise ComputeRefusal(Reason.NOT_IMPLEMENTED, text)
