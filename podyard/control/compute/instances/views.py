"""Instances and managed groups as pages show them: lists, disks, histories, and what is left of a
quota. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.control.access import identity
from podyard.control.compute.instances import create, groups, life
from podyard.control.compute.node_list import PricedList
from podyard.db.compute import disks as disk_rows
from podyard.db.compute import instance_groups as group_rows
from podyard.db.compute import instances as rows
from podyard.db.compute import operations as operation_rows
from podyard.db.platform import state_changes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import instance_lists
from podyard.domain.instances.group import GroupRow, ManagedGroup
from podyard.domain.instances.instance import CPUS_PER_REGION_MAX, Instance
from podyard.domain.listing import Facet, ListQuery, RowPage
from podyard.domain.operation import Operation
from podyard.domain.principal import Principal
from podyard.domain.state_change import StateChange

_INSTANCES = PricedList(
    instance_lists.instance_page,
    instance_lists.instance_page_by_cost,
    instance_lists.instance_kinds,
)
HISTORY_ROWS_MAX = 50  # of operations, and of state changes: what a page shows


@dataclasses.dataclass(frozen=True, slots=True)
class AttachedDiskView:
    """A disk of an instance. `type` empty and `size_gb` 0: nobody has made it here."""

    name: str
    is_boot: bool
    mode: str
    auto_delete: bool
    type: str
    size_gb: int


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceDetails:
    """An instance with the instances of its slice in the order of the hosts (itself, where it is a
    host alone), and operations and state changes, the newest first. Those of a slice are of all of
    its instances."""

    instance: Instance
    members: Sequence[Instance]
    disks: Sequence[AttachedDiskView]
    operations: Sequence[Operation]
    changes: Sequence[StateChange]


def list_page(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    query: ListQuery,
    costs: Mapping[str, int] | None = None,
) -> RowPage[Instance]:
    """The live instances of one page. `costs`: by the keys of nodes, for the order by cost."""
    _check_list(uow, principal, project)
    return _INSTANCES.page(uow, project, query, costs or {})


def list_facets(uow: UnitOfWork, principal: Principal, project: str) -> list[Facet]:
    """The number of live instances of each status, zone and machine type."""
    _check_list(uow, principal, project)
    return instance_lists.instance_facets(uow, project)


def _check_list(uow: UnitOfWork, principal: Principal, project: str) -> None:
    principal.require("compute.instances.list", project, f"projects/{project}")
    identity.project_row(uow, project)


def groups_of(uow: UnitOfWork, instances: Sequence[Instance]) -> Mapping[str, GroupRow]:
    """The managed groups of instances that the caller may see, by key."""
    keys = {one.row.group_key for one in instances if one.row.group_key}
    return group_rows.by_keys(uow, sorted(keys))


def group_page(
    uow: UnitOfWork, principal: Principal, project: str, query: ListQuery
) -> RowPage[ManagedGroup]:
    _check_groups(uow, principal, project)
    page = instance_lists.group_page(uow, project, query)
    members = rows.of_groups(uow, [row.group_key for row in page.rows])
    groups = [ManagedGroup(row, members.get(row.group_key, ())) for row in page.rows]
    return RowPage(groups, page.before, page.after)


def group_facets(uow: UnitOfWork, principal: Principal, project: str) -> list[Facet]:
    """The number of groups of each place."""
    _check_groups(uow, principal, project)
    return instance_lists.group_facets(uow, project)


def _check_groups(uow: UnitOfWork, principal: Principal, project: str) -> None:
    principal.require("compute.instanceGroupManagers.list", project, f"projects/{project}")
    identity.project_row(uow, project)


def full_size(uow: UnitOfWork, principal: Principal, group: ManagedGroup) -> int:
    """The number of instances of the slice that a group is; 0 where its instances are single
    hosts, or its template is gone."""
    row = group.row
    groups.look_up_group(uow, principal, "get", row.project, row.place, row.name)
    return groups.slice_size(uow, row)


def details(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str
) -> InstanceDetails:
    instance = life.get(uow, principal, project, zone, name)
    node_key = instance.node.node_key
    return InstanceDetails(
        instance,
        rows.of_node(uow, node_key),
        _disks(uow, instance),
        operation_rows.of_target(uow, node_key, HISTORY_ROWS_MAX),
        state_changes.newest(uow, node_key, HISTORY_ROWS_MAX),
    )


def _disks(uow: UnitOfWork, instance: Instance) -> list[AttachedDiskView]:
    """The boot disk first."""
    row, spec = instance.row, instance.spec
    boot = spec.boot_path(row.project, row.zone, row.name)
    attached = [(boot, True, "READ_WRITE", spec.boot.auto_delete)]
    attached += [(one.source, False, one.mode, one.auto_delete) for one in spec.disks]
    views = []
    for path, is_boot, mode, auto_delete in attached:
        name = path.rpartition("/")[2]
        disk = disk_rows.find(uow, row.project, row.zone, name)
        facts = (disk.type, disk.size_gb) if disk is not None else ("", 0)
        views.append(AttachedDiskView(name, is_boot, mode, auto_delete, *facts))
    return views


def cpus_left(uow: UnitOfWork, principal: Principal, project: str, region: str) -> int:
    """The processors that instances without chips may still take of the quota in a region."""
    _check_list(uow, principal, project)
    return max(0, CPUS_PER_REGION_MAX - create.cpus_held(uow, project, region))
