"""Events of Compute Engine's instances: the second road to the same chips."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.control.compute import nodes
from podyard.control.compute.instances import create, life
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.instances.instance import InstanceSpec, ProvisioningModel, Scheduling
from podyard.domain.node import UsageClass
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.principal import Principal
from podyard.hardware import machine_types
from podyard.simulation.world import World

_PLACE = "SELECT project, zone FROM instances WHERE name = :name LIMIT 1"
_MODELS = {
    UsageClass.SPOT: ProvisioningModel.SPOT,
    UsageClass.RESERVED: ProvisioningModel.RESERVATION_BOUND,
}


def make(world: World, name: str, args: Mapping[str, Any]) -> None:
    """A type that no machine type is for is refused by the platform."""
    kind = machine_types.billed_kind(args["type"])
    machine = machine_types.of_kind(kind) if kind.chip_count else None
    usage = UsageClass(args["usage"])
    model = _MODELS.get(usage, ProvisioningModel.STANDARD)
    scheduling = Scheduling(model, preemptible=usage is UsageClass.PREEMPTIBLE)
    spec = InstanceSpec(args["type"] if machine is None else machine.name, scheduling=scheduling)
    names = (name, *(f"{name}-{index}" for index in range(1, kind.host_count)))
    topology = kind.topology.text if kind.host_count > 1 else ""
    request = create.InstanceRequest(names, spec, topology)
    world.ask(_make, args["project"], args["zone"], request)


def _make(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    request: create.InstanceRequest,
) -> Operation:
    create.check(uow, fleet, principal, project, zone, [request])
    return create.make(uow, fleet, principal, project, zone, request)[1]


def _end(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, name: str
) -> Operation:
    """As its group ends a slice of several."""
    instance = life.look_up(uow, principal, "compute.instances.delete", project, zone, name)
    if instance.node.host_count == 1:
        return life.delete(uow, fleet, principal, project, zone, name)
    return nodes.begin(uow, instance.node, OperationVerb.DELETE, fleet.timings.delete_seconds)


def _on_instance(use_case: Callable[..., Any]) -> Callable[[World, str, Mapping[str, Any]], None]:
    def act(world: World, name: str, args: Mapping[str, Any]) -> None:
        del args
        row = world.peek(_PLACE, name=name)
        if row is not None:
            world.ask(use_case, str(row[0]), str(row[1]), name)

    return act


ACTIONS: Mapping[str, Callable[[World, str, Mapping[str, Any]], None]] = {
    "instance": make,
    "halt": _on_instance(life.stop),
    "resume": _on_instance(life.start),
    "end": _on_instance(_end),
}
