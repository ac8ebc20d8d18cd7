"""Changes of one field of an instance on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from podyard.api.compute.call import Change, ComputeCall, Handler
from podyard.control.compute.instances import edits as use_cases
from podyard.control.compute.instances.edits import Named
from podyard.domain.instances import edits
from podyard.domain.instances.edits import Edit
from podyard.domain.instances.messages import policy_paths, read_access
from podyard.domain.operation import OperationVerb


def _instance_of(call: ComputeCall) -> Named:
    name = call.names.get("instance") or call.id  # `resource` in one path
    return Named(call.principal, call.project, call.place.name, name)


def _edit(verb: OperationVerb, read: Callable[[ComputeCall], Edit]) -> Handler:
    """`read`: the change that a call asks for."""

    def handle(call: ComputeCall) -> Change:
        edit = read(call)
        return call.begin(lambda uow: use_cases.change(uow, _instance_of(call), verb, edit))

    return handle


def _protect(call: ComputeCall) -> Edit:
    return edits.protect(call.query.get("deletionProtection", True))


def _auto_delete(call: ComputeCall) -> Edit:
    return edits.auto_delete(call.query.get("deviceName", ""), call.query.get("autoDelete", False))


def _access(call: ComputeCall, edit: Callable[[str, Mapping[str, object]], Edit]) -> Edit:
    return edit(call.query.get("networkInterface", ""), read_access(call.body))


def _delete_access(call: ComputeCall) -> Edit:
    query = call.query
    return edits.delete_access(query.get("networkInterface", ""), query.get("accessConfig", ""))


def _policies(call: ComputeCall, edit: Callable[[list[str]], Edit]) -> Edit:
    return edit(policy_paths(call.require("resourcePolicies"), call.project, call.place.name))


def _set_machine_type(call: ComputeCall) -> Change:
    machine = call.require("machineType").rpartition("/")[2]
    return call.begin(
        lambda uow: use_cases.set_machine_type(uow, call.fleet, _instance_of(call), machine)
    )


def _refuse(verb: OperationVerb, call: ComputeCall) -> Change:
    return call.begin(lambda uow: use_cases.refuse_suspension(uow, _instance_of(call), verb))


_EDITS: Mapping[OperationVerb, Callable[[ComputeCall], Edit]] = {
    OperationVerb.SET_DELETION_PROTECTION: _protect,
    OperationVerb.SET_DISK_AUTO_DELETE: _auto_delete,
    OperationVerb.SET_MIN_CPU_PLATFORM: lambda call: edits.set_extras(
        {"minCpuPlatform": call.body.get("minCpuPlatform", "")}
    ),
    OperationVerb.UPDATE_DISPLAY_DEVICE: lambda call: edits.merge("displayDevice", call.body),
    OperationVerb.UPDATE_SHIELDED_CONFIG: lambda call: edits.merge(
        "shieldedInstanceConfig", call.body
    ),
    OperationVerb.ADD_ACCESS_CONFIG: partial(_access, edit=edits.add_access),
    OperationVerb.UPDATE_ACCESS_CONFIG: partial(_access, edit=edits.update_access),
    OperationVerb.DELETE_ACCESS_CONFIG: _delete_access,
    OperationVerb.ADD_RESOURCE_POLICIES: partial(_policies, edit=edits.add_policies),
    OperationVerb.REMOVE_RESOURCE_POLICIES: partial(_policies, edit=edits.remove_policies),
}
HANDLERS: Mapping[str, Handler] = {
    **{f"instances.{verb}": _edit(verb, read) for verb, read in _EDITS.items()},
    "instances.setMachineType": _set_machine_type,
    "instances.suspend": partial(_refuse, OperationVerb.SUSPEND),
    "instances.resume": partial(_refuse, OperationVerb.RESUME),
}
