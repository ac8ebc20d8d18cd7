"""Instance templates and resource policies: kept as their users have described them, checked when
they are made and again when they are used."""

from __future__ import annotations

from podyard.base.ids import row_id
from podyard.control.access import identity
from podyard.control.compute.instances.create import ID_BITS, check_account
from podyard.control.platform import operations
from podyard.db.compute import instance_groups, instances, resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import GLOBAL
from podyard.domain.compute.refusal import (
    ComputeRefusal,
    Reason,
    already_exists,
    in_use,
    invalid_value,
    resource_not_found,
)
from podyard.domain.compute.resource import COLLECTIONS, ComputeResource
from podyard.domain.fleet import Fleet
from podyard.domain.instances.group import PolicySpec
from podyard.domain.instances.instance import InstanceSpec, check_name
from podyard.domain.instances.messages import Message, read_instance, read_policy
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation, OperationTarget, OperationVerb
from podyard.domain.principal import Principal

RESOURCES_MAX = 1000  # of one kind in a project: one page's worth for who clears them up


def insert(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    place: str,
    kind: ResourceKind,
    message: Message,
) -> Operation:
    """`place`: `global` or a region; `message`: the template or policy in the canonical form."""
    name: str = message.get("name", "")
    resource = ComputeResource(
        resource_key=row_id(uow.streams.stream("resources"), "resource"),
        project=project,
        kind=kind,
        place=place,
        name=name,
        number=uow.streams.stream("resources").getrandbits(ID_BITS) + 1,
        spec=message,
        created=uow.now,
        created_by=principal.email,
    )
    principal.require(f"compute.{COLLECTIONS[kind]}.create", project, resource.path)
    check_name(name)
    if place != GLOBAL and place not in {zone.region for zone in fleet.zones.values()}:
        raise resource_not_found(f"projects/{project}/regions/{place}")
    owner = identity.project_row(uow, project)
    if kind is ResourceKind.RESOURCE_POLICY:
        read_policy(message)
    else:
        spec = template_spec(resource)
        node = spec.node_spec(project, next(iter(fleet.zones)), name)
        check_account(uow, principal, owner, node)
    if resources.find(uow, project, kind, place, name) is not None:
        raise already_exists(resource.path)
    if resources.count(uow, project, kind) >= RESOURCES_MAX:
        text = f"Quota '{kind.upper()}S' exceeded.  Limit: {RESOURCES_MAX}.0 globally."
        raise ComputeRefusal(Reason.QUOTA_EXCEEDED, text)
    resources.insert(uow, resource)
    return operations.complete(uow, _target(resource), OperationVerb.INSERT)


def get(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    place: str,
    kind: ResourceKind,
    name: str,
    verb: str = "get",
) -> ComputeResource:
    """Raises PERMISSION_DENIED or NOT_FOUND."""
    resource = resources.find(uow, project, kind, place, name)
    where = "global" if place == GLOBAL else f"regions/{place}"
    path = f"projects/{project}/{where}/{COLLECTIONS[kind]}/{name}"
    principal.require(f"compute.{COLLECTIONS[kind]}.{verb}", project, path)
    if resource is None:
        raise resource_not_found(path)
    return resource


def list_page(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    place: str | None,
    kind: ResourceKind,
    query: RowQuery,
) -> list[ComputeResource]:
    principal.require(f"compute.{COLLECTIONS[kind]}.list", project, f"projects/{project}")
    return resources.page(uow, project, kind, place, query)


def delete(
    uow: UnitOfWork, principal: Principal, project: str, place: str, kind: ResourceKind, name: str
) -> Operation:
    """Raises `resourceInUseByAnotherResource` while a managed group or an instance has it."""
    resource = get(uow, principal, project, place, kind, name, "delete")
    for group in instance_groups.of_project(uow, project):
        if resource.path in (group.spec.template, group.spec.workload_policy):
            raise in_use(kind, resource.path, group.path)
    for instance in instances.of_project(uow, project):
        if resource.path in instance.spec.placement_policies:
            raise in_use(kind, resource.path, instance.row.path)
    resources.remove(uow, resource)
    return operations.complete(uow, _target(resource), OperationVerb.DELETE)


def _target(found: ComputeResource) -> OperationTarget:
    return OperationTarget(
        found.kind, found.resource_key, found.project, found.place, found.path, found.number
    )


def template_spec(found: ComputeResource, zone: str = "") -> InstanceSpec:
    """The instances of a template, in a zone that it does not name itself."""
    return read_instance(found.spec.get("properties", {}), found.project, zone)


def find(
    uow: UnitOfWork, project: str, kind: ResourceKind, path: str, field: str
) -> ComputeResource:
    """Return what `projects/P/global/instanceTemplates/T` names; raises NOT_FOUND, and INVALID for
    a bare name."""
    parts = path.split("/")
    collection = COLLECTIONS[kind]
    if parts[:1] != ["projects"] or len(parts) < 5 or parts[-2] != collection:
        raise invalid_value(field, path, "The URL is malformed.")
    place = GLOBAL if parts[2] == "global" else parts[3]
    own = parts[1] == project
    resource = resources.find(uow, project, kind, place, parts[-1]) if own else None
    if resource is None:
        raise resource_not_found(path)
    return resource


def policy_spec(found: ComputeResource) -> PolicySpec:
    return read_policy(found.spec)
