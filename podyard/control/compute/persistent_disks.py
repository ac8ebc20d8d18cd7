"""Disks as Compute Engine has them: made, resized and deleted by their users, attached to nodes by
name.

A node may name a disk that nobody has made here; such a disk is in no list, and costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.errors import Code, PodyardError, invalid_field
from podyard.base.ids import check_resource_id, row_id
from podyard.control.access import identity
from podyard.control.compute import ports
from podyard.control.compute.disks import names_of
from podyard.db.compute import disks
from podyard.db.compute import nodes as node_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import (
    ComputeRefusal,
    Reason,
    already_exists,
    require_fingerprint,
    resource_not_found,
)
from podyard.domain.disk import (
    DEFAULT_DISK_TYPE,
    DISK_TYPES,
    DISKS_PER_PROJECT_MAX,
    Disk,
    check_disk_type,
    check_size,
)
from podyard.domain.fleet import Fleet
from podyard.domain.lists.pages import RowQuery
from podyard.domain.principal import Principal

_ID_BITS = 62  # of the number of a disk, as Compute Engine's are


@dataclasses.dataclass(frozen=True, slots=True)
class DiskRequest:
    """A new disk. `type` empty and `size_gb` None: as if nobody had said it. `source`: the path of
    its image; empty: it is blank."""

    name: str
    type: str = ""
    size_gb: int | None = None
    description: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: str = ""

    @property
    def kind(self) -> str:
        return self.type or DEFAULT_DISK_TYPE

    @property
    def size(self) -> int:
        return DISK_TYPES.get(self.kind, 0) if self.size_gb is None else self.size_gb


@dataclasses.dataclass(frozen=True, slots=True)
class ShownDisk:
    """A disk, and the names of the nodes that have it."""

    disk: Disk
    users: Sequence[str]


def create(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    request: DiskRequest,
) -> Disk:
    """Raises what `check` does."""
    check(uow, fleet, principal, project, zone, [request])
    return make(uow, principal, project, zone, request)


def check(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    requests: Sequence[DiskRequest],
) -> None:
    """Raises what forbids new disks: INVALID_ARGUMENT, NOT_FOUND for an unknown zone,
    ALREADY_EXISTS, RESOURCE_EXHAUSTED. The caller's unit makes them all."""
    for request in requests:
        principal.require("compute.disks.create", project, _path(project, zone, request.name))
        check_disk_type(request.kind)
        check_size(request.size)
        check_resource_id(request.name, "name")
    if zone not in fleet.zones:
        raise resource_not_found(f"projects/{project}/zones/{zone}")
    identity.project_row(uow, project)
    there = disks.of_project(uow, project)
    taken = {disk.name for disk in there if disk.zone == zone}
    for request in requests:
        if request.name in taken:
            raise already_exists(_path(project, zone, request.name))
        taken.add(request.name)
    if len(there) + len(requests) > DISKS_PER_PROJECT_MAX:
        text = (
            f"the project has {len(there)} disks, and {DISKS_PER_PROJECT_MAX} are the most that "
            "are allowed: delete some"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)


def make(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, request: DiskRequest
) -> Disk:
    """A disk that has been checked."""
    ports.open_account(uow, project)
    stream = uow.streams.stream("disks")
    made = Disk(
        disk_key=row_id(stream, "disk"),
        project=project,
        zone=zone,
        name=request.name,
        number=stream.getrandbits(_ID_BITS) + 1,
        type=request.kind,
        size_gb=request.size,
        description=request.description,
        labels=dict(request.labels),
        created=uow.now,
        created_by=principal.email,
        usage_version=0,
        source=request.source,
    )
    return disks.insert(uow, made)


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str) -> ShownDisk:
    disk = _find(uow, principal, "compute.disks.get", project, zone, name)
    return ShownDisk(disk, _users(uow, project).get(disk.path, ()))


def page(
    uow: UnitOfWork, query: RowQuery, principal: Principal, project: str, zone: str | None
) -> list[ShownDisk]:
    """Those of a zone, or (None) of all."""
    principal.require("compute.disks.list", project, f"projects/{project}")
    shown = disks.page(uow, project, zone, query)
    users = _users(uow, project) if shown else {}
    return [ShownDisk(disk, users.get(disk.path, ())) for disk in shown]


def resize(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str, size_gb: int
) -> Disk:
    """Raises INVALID_ARGUMENT for a size that is not larger, as Compute Engine does."""
    disk = _find(uow, principal, "compute.disks.update", project, zone, name)
    check_size(size_gb)
    if size_gb <= disk.size_gb:
        raise invalid_field(
            f"sizeGb is {size_gb}: a disk can only grow, and '{disk.path}' has {disk.size_gb} GB",
            "size_gb",
        )
    return disks.update(uow, disk, dataclasses.replace(disk, size_gb=size_gb))


def set_labels(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    labels: Mapping[str, str],
    fingerprint: str,
) -> Disk:
    disk = _find(uow, principal, "compute.disks.update", project, zone, name)
    require_fingerprint("labels", fingerprint, disk.label_fingerprint)
    if labels == disk.labels:
        return disk
    ports.spending.on_relabel(uow, project)
    return disks.update(uow, disk, dataclasses.replace(disk, labels=dict(labels)))


def delete(uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str) -> Disk:
    """Raises `resourceInUseByAnotherResource` while a node has it."""
    disk = _find(uow, principal, "compute.disks.delete", project, zone, name)
    if users := _users(uow, project).get(disk.path):
        text = (
            f"The disk resource '{disk.path}' is already being used by "
            f"'{users[0]}': detach it, "
            "or delete the node"
        )
        raise ComputeRefusal(Reason.IN_USE, text)
    disks.remove(uow, disk)
    return disk


def _find(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, name: str
) -> Disk:
    path = _path(project, zone, name)
    principal.require(permission, project, path)
    found = disks.find(uow, project, zone, name)
    if found is None:
        raise resource_not_found(path)
    return found


def _users(uow: UnitOfWork, project: str) -> dict[str, list[str]]:
    """The live nodes that have disks, by the disks' paths."""
    found: dict[str, list[str]] = {}
    for node in node_rows.live(uow, project):
        for path in names_of(node.spec):
            found.setdefault(path, []).append(node.name)
    return found


def _path(project: str, zone: str, name: str) -> str:
    return f"projects/{project}/zones/{zone}/disks/{name}"
