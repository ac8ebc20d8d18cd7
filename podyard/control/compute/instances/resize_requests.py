"""Resize requests of managed groups: so many instances more, at once or not at all, each for a
while. Groups with TPUs have none, as on Google; any other machine finds room at once."""

from __future__ import annotations

import dataclasses

from podyard.base.ids import row_id
from podyard.control.compute.instances import groups
from podyard.control.compute.instances.create import ID_BITS
from podyard.control.platform import operations
from podyard.db.compute import instances, resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import (
    ComputeRefusal,
    Reason,
    already_exists,
    field_required,
    quota_exceeded,
    resource_not_found,
)
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.fleet import Fleet
from podyard.domain.instances.group import GroupRow, ManagedGroup
from podyard.domain.instances.instance import check_name
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation, OperationVerb
from podyard.domain.principal import Principal

REQUESTS_MAX = 1000  # of a project: lists read all of them


@dataclasses.dataclass(frozen=True, slots=True)
class NamedGroup:
    """A group as a call names it."""

    principal: Principal
    project: str
    zone: str
    name: str

    def look_up(self, uow: UnitOfWork, permission: str) -> GroupRow:
        return groups.look_up_group(
            uow, self.principal, permission, self.project, self.zone, self.name
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ResizeRequest:
    """A request as it is shown. `resize_by`: by how many instances its group has grown."""

    resource: ComputeResource
    group: ManagedGroup

    @property
    def path(self) -> str:
        return _path(self.group.row, self.resource.name)

    @property
    def state(self) -> str:
        """SUCCEEDED once the group has all of its instances."""
        return "SUCCEEDED" if self.group.is_stable else "CREATING"

    @property
    def resize_by(self) -> int:
        return int(self.resource.spec.get("resize_by", 0))

    @property
    def run_seconds(self) -> int:
        return int(self.resource.spec.get("run_seconds", 0))

    @property
    def description(self) -> str:
        return str(self.resource.spec.get("description", ""))


def insert(
    uow: UnitOfWork,
    fleet: Fleet,
    named: NamedGroup,
    name: str,
    resize_by: int,
    run_seconds: int,
    description: str,
) -> Operation:
    """`run_seconds`: after that each of the instances is deleted; 0: they stay."""
    row = named.look_up(uow, "update")
    if groups.template_of(uow, row).machine.has_chips:
        text = (
            "Creating resize requests for managed instance group with TPU is not allowed. Use "
            "instances with the provisioning model FLEX_START"
        )
        raise ComputeRefusal(Reason.INVALID, text)
    if not name:
        raise field_required("name")
    check_name(name)
    there = resources.of_kind(uow, named.project, ResourceKind.RESIZE_REQUEST)
    if any((one.place, one.name) == (named.zone, name) for one in there):
        raise already_exists(_path(row, name))
    if len(there) >= REQUESTS_MAX:
        raise quota_exceeded("RESIZE_REQUESTS", REQUESTS_MAX)
    stream = uow.streams.stream("resources")
    spec = {
        "group": row.group_key,
        "resize_by": resize_by,
        "run_seconds": run_seconds,
        "description": description,
    }
    request = ComputeResource(
        row_id(stream, "resource"),
        named.project,
        ResourceKind.RESIZE_REQUEST,
        named.zone,
        name,
        stream.getrandbits(ID_BITS) + 1,
        spec,
        uow.now,
        named.principal.email,
    )
    resources.insert(uow, request)
    groups.grow(uow, fleet, named.principal, row, resize_by, run_seconds)
    return operations.complete(uow, groups.target_of(row), OperationVerb.INSERT)


def list_all(uow: UnitOfWork, named: NamedGroup) -> list[ResizeRequest]:
    """By name."""
    row = named.look_up(uow, "get")
    group = ManagedGroup(row, instances.of_group(uow, row.group_key))
    return [
        ResizeRequest(one, group)
        for one in resources.of_kind(uow, named.project, ResourceKind.RESIZE_REQUEST)
        if one.spec.get("group") == row.group_key
    ]


def get(uow: UnitOfWork, named: NamedGroup, name: str) -> ResizeRequest:
    for request in list_all(uow, named):
        if request.resource.name == name:
            return request
    raise resource_not_found(_path(named.look_up(uow, "get"), name))


def delete(uow: UnitOfWork, named: NamedGroup, name: str) -> Operation:
    """The request alone: its instances stay."""
    row = named.look_up(uow, "update")
    resources.remove(uow, get(uow, named, name).resource)
    return operations.complete(uow, groups.target_of(row), OperationVerb.DELETE)


def cancel(uow: UnitOfWork, named: NamedGroup, name: str) -> Operation:
    """Raises `invalid`: no request waits."""
    named.look_up(uow, "update")
    request = get(uow, named, name)
    text = f"The resize request '{request.path}' is {request.state} and cannot be cancelled."
    raise ComputeRefusal(Reason.INVALID, text)


def _path(row: GroupRow, name: str) -> str:
    return f"{row.path}/resizeRequests/{name}"
