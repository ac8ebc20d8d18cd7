"""Changes of one field of an instance, which end when they are answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.control.access import identity
from podyard.control.compute import ports
from podyard.control.compute.instances import create
from podyard.control.compute.instances.changes import require_stopped, respec
from podyard.control.compute.instances.life import look_up
from podyard.control.platform import operations
from podyard.db.store.transition import move
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import ComputeRefusal, Reason
from podyard.domain.fleet import Fleet
from podyard.domain.instances.edits import Edit
from podyard.domain.instances.instance import Instance
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.principal import Principal

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
