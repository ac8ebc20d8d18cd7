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
from podyard.db import disks
from podyard.db import nodes as node_rows
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.disk import (
    DEFAULT_DISK_TYPE,
    DISK_TYPES,
    DISKS_PER_PROJECT_MAX,
    Disk,
    check_disk_type,
    check_size,
)
from podyard.domain.fleet import Fleet
from podyard.domain.principal import Principal

_ID_BITS = 62  # of the number of a disk, as Compute Engine's are


class InUse(PodyardError):
    """A node has the disk."""


class StaleLabels(PodyardError):
    """The labels have changed since the caller read them."""


@dataclasses.dataclass(frozen=True, slots=True)
class DiskRequest:
    """What a new disk is to be. `type` empty and `size_gb` None: as if nobody had said it."""

    name: str
    type: str = ""
    size_gb: int | None = None
    description: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


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
    """Raises INVALID_ARGUMENT, NOT_FOUND for an unknown zone, ALREADY_EXISTS,
    RESOURCE_EXHAUSTED."""
    principal.require("compute.disks.create", project, _path(project, zone, request.name))
    kind = request.type or DEFAULT_DISK_TYPE
    check_disk_type(kind)
    size = DISK_TYPES[kind] if request.size_gb is None else request.size_gb
    check_size(size)
    check_resource_id(request.name, "name")
    if zone not in fleet.zones:
        raise PodyardError(
            Code.NOT_FOUND, f"The resource 'projects/{project}/zones/{zone}' was not found"
        )
    identity.project_row(uow, project)
    there = disks.of_project(uow, project)
    if any((disk.zone, disk.name) == (zone, request.name) for disk in there):
        text = f"The resource '{_path(project, zone, request.name)}' already exists"
        raise PodyardError(Code.ALREADY_EXISTS, text)
    if len(there) >= DISKS_PER_PROJECT_MAX:
        text = (
            f"the project has {DISKS_PER_PROJECT_MAX} disks, the most that are allowed: delete one"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    ports.open_account(uow, project)
    stream = uow.streams.stream("disks")
    made = Disk(
        disk_key=row_id(stream, "disk"),
        project=project,
        zone=zone,
        name=request.name,
        number=stream.getrandbits(_ID_BITS) + 1,
        type=kind,
        size_gb=size,
        description=request.description,
        labels=dict(request.labels),
        created=uow.now,
        created_by=principal.email,
        usage_version=0,
    )
    return disks.insert(uow, made)


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str) -> ShownDisk:
    disk = _find(uow, principal, "compute.disks.get", project, zone, name)
    return ShownDisk(disk, _users(uow, project).get(disk.path, ()))


def list_disks(uow: UnitOfWork, principal: Principal, project: str) -> list[ShownDisk]:
    """By zone and name."""
    principal.require("compute.disks.list", project, f"projects/{project}")
    identity.project_row(uow, project)
    users = _users(uow, project)
    return [ShownDisk(disk, users.get(disk.path, ())) for disk in disks.of_project(uow, project)]


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
    if fingerprint != disk.label_fingerprint:
        text = "Labels fingerprint either invalid or resource labels have changed"  # Google's text
        raise StaleLabels(Code.ABORTED, text)
    if labels == disk.labels:
        return disk
    ports.spending.on_relabel(uow, project)
    return disks.update(uow, disk, dataclasses.replace(disk, labels=dict(labels)))


def delete(uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str) -> Disk:
    """Raises `InUse` while a node has it."""
    disk = _find(uow, principal, "compute.disks.delete", project, zone, name)
    if users := _users(uow, project).get(disk.path):
        text = (
            f"The disk resource '{disk.path}' is already being used by "
            f"'{users[0]}': detach it, "
            "or delete the node"
        )
        raise InUse(Code.FAILED_PRECONDITION, text)
    disks.remove(uow, disk)
    return disk


def _find(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, name: str
) -> Disk:
    path = _path(project, zone, name)
    principal.require(permission, project, path)
    found = disks.find(uow, project, zone, name)
    if found is None:
        raise PodyardError(Code.NOT_FOUND, f"The resource '{path}' was not found")
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
