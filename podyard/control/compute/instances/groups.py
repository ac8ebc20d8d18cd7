"""Managed instance groups: as many instances of a template as their target size says. With a
workload policy that names an accelerator topology the instances are one slice, all or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.errors import PodyardError
from podyard.base.ids import row_id
from podyard.control.access import identity
from podyard.control.compute import nodes
from podyard.control.compute.instances import create, templates
from podyard.control.compute.instances.create import ID_BITS, InstanceRequest
from podyard.control.platform import operations
from podyard.db.compute import instance_groups as rows
from podyard.db.compute import instances, resources
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import (
    ComputeRefusal,
    Reason,
    already_exists,
    invalid_value,
    resource_not_found,
)
from podyard.domain.fleet import Fleet
from podyard.domain.instances.group import (
    GROUP_SIZE_MAX,
    SIZE_FIELD,
    TEMPLATE_FIELD,
    GroupRequest,
    GroupRow,
    GroupSpec,
    ManagedGroup,
    TargetSizeMode,
    group_path,
)
from podyard.domain.instances.instance import Instance, InstanceSpec, TerminationAction, check_name
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.node import NODE
from podyard.domain.operation import Operation, OperationTarget, OperationVerb
from podyard.domain.principal import Principal

OWNER = "group"  # of the timers
REFILL_SECONDS = 30.0  # before a group makes again what it has lost
ERRORS_MAX = 50  # that listErrors shows, the newest first
_LETTERS = "0123456789bcdfghjklmnpqrstvwxz"


def insert(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    place: str,
    request: GroupRequest,
) -> Operation:
    """`place`: a zone or a region. Raises what Compute Engine refuses, with its words."""
    name, spec, size = request.name, request.spec, request.size or 0
    path = group_path(project, place, name)
    principal.require("compute.instanceGroupManagers.create", project, path)
    check_name(name)
    zones = [zone for zone in fleet.zones.values() if place in (zone.name, zone.region)]
    if not zones:
        raise resource_not_found(path.partition("/instanceGroupManagers")[0])
    identity.project_row(uow, project)
    template = _template(uow, project, spec)
    spec = dataclasses.replace(
        spec,
        base_name=spec.base_name or name,
        topology=_topology(uow, project, spec, template),
        set_by=principal.email,
    )
    zone = next((one.name for one in zones if _has(fleet, one.name, template, spec)), zones[0].name)
    create.check_machine(fleet, zone, template, spec.topology)
    _check_size(spec, template, size)
    if rows.find(uow, project, place, name) is not None:
        raise already_exists(path)
    stream = uow.streams.stream("instances")
    row = GroupRow(
        group_key=row_id(stream, "group"),
        number=stream.getrandbits(ID_BITS) + 1,
        project=project,
        place=place,
        zone=zone,
        name=name,
        target_size=size,
        spec=spec,
        created=uow.now,
        created_by=principal.email,
    )
    rows.insert(uow, row)
    _fill(uow, fleet, principal, row)
    return operations.complete(uow, target_of(row), OperationVerb.INSERT)


def _template(uow: UnitOfWork, project: str, spec: GroupSpec) -> InstanceSpec:
    kind = ResourceKind.INSTANCE_TEMPLATE
    resource = templates.find(uow, project, kind, spec.template, TEMPLATE_FIELD)
    return dataclasses.replace(templates.template_spec(resource), template=resource.path)


def _topology(uow: UnitOfWork, project: str, spec: GroupSpec, template: InstanceSpec) -> str:
    """The topology of the slice that the instances are; empty: they are single hosts."""
    if not spec.workload_policy:
        return ""
    kind, field = ResourceKind.RESOURCE_POLICY, "resourcePolicies.workloadPolicy"
    resource = templates.find(uow, project, kind, spec.workload_policy, field)
    policy = templates.policy_spec(resource)
    if policy.workload_type is None:
        why = "It is not a workload policy."
        raise invalid_value(field, spec.workload_policy, why)
    if policy.topology and not template.machine.has_chips:
        why = f"Machine type {template.machine_type} has no TPUs to make the topology of."
        raise invalid_value(field, spec.workload_policy, why)
    if policy.topology and spec.mode is not TargetSizeMode.BULK:
        text = "MIGs with TPU accelerator topology require BULK mode in target size policy"
        raise ComputeRefusal(Reason.INVALID, text)
    return policy.topology


def _has(fleet: Fleet, zone: str, template: InstanceSpec, spec: GroupSpec) -> bool:
    try:
        create.check_machine(fleet, zone, template, spec.topology)
    except ComputeRefusal:
        return False
    return True


def hosts_of(spec: GroupSpec, template: InstanceSpec) -> int:
    """The number of instances of its slice; 0: they are single hosts."""
    return template.machine.kind(spec.topology).host_count if spec.topology else 0


def slice_size(uow: UnitOfWork, row: GroupRow) -> int:
    """The same of a group that is there; 0, too, when its template is gone."""
    try:
        return hosts_of(row.spec, _template(uow, row.project, row.spec))
    except PodyardError:
        return 0


def _check_size(spec: GroupSpec, template: InstanceSpec, size: int) -> None:
    if not 0 <= size <= GROUP_SIZE_MAX:
        raise invalid_value(SIZE_FIELD, size, f"It must be from 0 to {GROUP_SIZE_MAX}.")
    hosts = hosts_of(spec, template)
    if hosts and size not in (0, hosts):
        why = (
            f"Accelerator topology {spec.topology} has {hosts} hosts of {template.machine_type}: "
            f"use 0 or {hosts}."
        )
        raise invalid_value(SIZE_FIELD, size, why)


def look_up_group(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, place: str, name: str
) -> GroupRow:
    """Raises PERMISSION_DENIED or NOT_FOUND."""
    path = group_path(project, place, name)
    principal.require(f"compute.instanceGroupManagers.{permission}", project, path)
    group = rows.find(uow, project, place, name)
    if group is None:
        raise resource_not_found(path)
    return group


def get(uow: UnitOfWork, principal: Principal, project: str, place: str, name: str) -> ManagedGroup:
    row = look_up_group(uow, principal, "get", project, place, name)
    return ManagedGroup(row, instances.of_group(uow, row.group_key))


def list_page(
    uow: UnitOfWork, principal: Principal, project: str, place: str | None, query: RowQuery
) -> list[ManagedGroup]:
    principal.require("compute.instanceGroupManagers.list", project, f"projects/{project}")
    page = rows.page(uow, project, place, query)
    return [ManagedGroup(row, instances.of_group(uow, row.group_key)) for row in page]


def list_errors(
    uow: UnitOfWork, principal: Principal, project: str, place: str, name: str
) -> list[Operation]:
    """Operations on its instances that have failed, the newest first."""
    row = look_up_group(uow, principal, "get", project, place, name)
    return rows.failures(uow, row.group_key, ERRORS_MAX)


def resize(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    place: str,
    name: str,
    size: int,
) -> Operation:
    row = look_up_group(uow, principal, "update", project, place, name)
    _check_size(row.spec, _template(uow, project, row.spec), size)
    changed = dataclasses.replace(row, target_size=size)
    rows.update(uow, row, size, row.spec)
    _fill(uow, fleet, principal, changed)
    return operations.complete(uow, target_of(row), OperationVerb.RESIZE)


def delete(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, place: str, name: str
) -> Operation:
    """With all of its instances."""
    row = look_up_group(uow, principal, "delete", project, place, name)
    rows.remove(uow, row)
    for request in resources.of_kind(uow, project, ResourceKind.RESIZE_REQUEST):
        if request.spec.get("group") == row.group_key:
            resources.remove(uow, request)
    _delete_all(uow, fleet, instances.of_group(uow, row.group_key))
    return operations.complete(uow, target_of(row), OperationVerb.DELETE)


def delete_instances(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    place: str,
    name: str,
    paths: Sequence[str],
) -> Operation:
    """Deletes instances of the group, which has so many fewer from then on. Those of a slice go
    together."""
    row = look_up_group(uow, principal, "update", project, place, name)
    there = {one.row.path: one for one in instances.of_group(uow, row.group_key)}
    for path in paths:
        if path not in there:
            raise resource_not_found(path)
    chosen = [there[path] for path in dict.fromkeys(paths)]
    size = max(0, row.target_size - len(chosen))
    _check_size(row.spec, _template(uow, project, row.spec), size)
    rows.update(uow, row, size, row.spec)
    _delete_all(uow, fleet, chosen)
    return operations.complete(uow, target_of(row), OperationVerb.DELETE_INSTANCES)


def patch(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    place: str,
    request: GroupRequest,
) -> Operation:
    """Another template, policy or size; instances that are there stay as they are. `request`: the
    group as it is to be."""
    row = look_up_group(uow, principal, "update", project, place, request.name)
    spec, size = request.spec, request.size
    template = _template(uow, project, spec)
    spec = dataclasses.replace(
        spec, topology=_topology(uow, project, spec, template), set_by=principal.email
    )
    wanted = row.target_size if size is None else size
    create.check_machine(fleet, row.zone, template, spec.topology)
    _check_size(spec, template, wanted)
    if spec.topology != row.spec.topology and instances.of_group(uow, row.group_key):
        why = "The topology of a group with instances cannot be changed: resize it to 0."
        raise invalid_value("resourcePolicies.workloadPolicy", spec.workload_policy, why)
    rows.update(uow, row, wanted, spec)
    _fill(uow, fleet, principal, dataclasses.replace(row, target_size=wanted, spec=spec))
    return operations.complete(uow, target_of(row), OperationVerb.PATCH)


def grow(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    row: GroupRow,
    more: int,
    run_seconds: int,
) -> None:
    """So many instances more. `run_seconds`: after that each of the new ones is deleted; 0: they
    stay."""
    size = row.target_size + more
    _check_size(row.spec, template_of(uow, row), size)
    rows.update(uow, row, size, row.spec)
    _fill(uow, fleet, principal, dataclasses.replace(row, target_size=size), run_seconds)


def template_of(uow: UnitOfWork, row: GroupRow) -> InstanceSpec:
    return _template(uow, row.project, row.spec)


def on_timer(uow: UnitOfWork, fleet: Fleet, timer: Timer) -> None:
    """Makes again what the group has lost, with the rights of who has set it."""
    row = rows.find_by_key(uow, timer.resource_key)
    if row is None:
        return
    try:
        _fill(uow, fleet, identity.principal_of(uow, row.spec.set_by), row)
    except PodyardError:
        # Rights, a quota, a budget or a name have changed since: the group stays short. All is
        # checked before anything is made.
        timers.put(uow, timer.kind, row.group_key, 0, uow.now.plus_seconds(REFILL_SECONDS))


def on_loss(uow: UnitOfWork, group_key: str) -> None:
    """An instance of the group is gone: the group looks after itself in a while."""
    if rows.find_by_key(uow, group_key) is not None:
        due = uow.now.plus_seconds(REFILL_SECONDS)
        timers.put(uow, f"{OWNER}.refill", group_key, 0, due)


def _fill(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, row: GroupRow, run_seconds: int = 0
) -> None:
    """Makes the instances that are missing, which run for `run_seconds` (0: on and on), and deletes
    those that are too many."""
    there = [
        one
        for one in instances.of_group(uow, row.group_key)
        if NODE.allows(one.node.state, "delete")
    ]
    missing = row.target_size - len(there)
    if missing < 0:
        # the youngest first; a slice goes as a whole
        _delete_all(uow, fleet, sorted(there, key=lambda one: one.row.created)[missing:])
    if missing <= 0:
        return
    template = template_of(uow, row)
    if run_seconds:
        scheduling = template.scheduling._replace(
            max_run_seconds=float(run_seconds), termination_action=TerminationAction.DELETE
        )
        template = dataclasses.replace(template, scheduling=scheduling)
    taken = {one.row.name for one in instances.of_project(uow, row.project)}
    names = _names(uow, row.spec.base_name, missing, taken)
    together = [tuple(names)] if row.spec.topology else [(name,) for name in names]
    wanted = [
        InstanceRequest(
            some,
            create.with_disks(uow, row.project, row.zone, some[0], template),
            row.spec.topology,
            row.group_key,
        )
        for some in together
    ]
    create.check(uow, fleet, principal, row.project, row.zone, wanted)
    for one in wanted:
        create.make(uow, fleet, principal, row.project, row.zone, one)


def _names(uow: UnitOfWork, base: str, count: int, taken: set[str]) -> list[str]:
    """`BASE-xxxx`, as Compute Engine names the instances of groups."""
    stream = uow.streams.stream("instances")
    names: list[str] = []
    while len(names) < count:
        name = f"{base}-{''.join(stream.choice(_LETTERS) for _ in range(4))}"
        if name not in taken:
            taken.add(name)
            names.append(name)
    return names


def _delete_all(uow: UnitOfWork, fleet: Fleet, chosen: Sequence[Instance]) -> None:
    for node in {one.node.node_key: one.node for one in chosen}.values():
        if NODE.allows(node.state, "delete"):
            nodes.begin(uow, node, OperationVerb.DELETE, fleet.timings.delete_seconds)


def target_of(row: GroupRow) -> OperationTarget:
    return OperationTarget(
        ResourceKind.INSTANCE_GROUP_MANAGER,
        row.group_key,
        row.project,
        row.place,
        row.path,
        row.number,
    )
