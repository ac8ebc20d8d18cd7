"""Disks as records, and their usage events, in the units that change them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, literal, select

from podyard.db.store.records import changed_columns, columns
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.transition import meter_size
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import disks
from podyard.domain.disk import Disk
from podyard.domain.lists.pages import RowQuery
from podyard.domain.usage import GIB, BilledKind, StorageResource

_DISK = select(disks).where(
    disks.c.project == bindparam("project"),
    disks.c.zone == bindparam("zone"),
    disks.c.name == bindparam("name"),
)
_LOCKED = _DISK.with_for_update()
_OF_PROJECT = (
    select(disks)
    .where(disks.c.project == bindparam("project"))
    .order_by(disks.c.zone, disks.c.name)
)
_COUNT = select(func.count()).where(disks.c.project == bindparam("project"))
_COLUMNS = RowColumns(
    name=disks.c.name,
    place=disks.c.zone,
    created=disks.c.created,
    key=disks.c.disk_key,
    fields={"name": disks.c.name, "status": literal("READY")},
    labels=disks.c.labels,
)
_ALL = select(disks).order_by(disks.c.disk_key)
_PRESENT = select(disks.c.disk_key).where(disks.c.disk_key.in_(bindparam("keys", expanding=True)))


def find(uow: UnitOfWork, project: str, zone: str, name: str) -> Disk | None:
    """Locked on PostgreSQL when the unit may write."""
    row = uow.first(
        _LOCKED if uow.writable else _DISK, {"project": project, "zone": zone, "name": name}
    )
    return None if row is None else Disk(**row)


def of_project(uow: UnitOfWork, project: str) -> list[Disk]:
    """By zone and name."""
    return [Disk(**row) for row in uow.all(_OF_PROJECT, {"project": project})]


def count(uow: UnitOfWork, project: str) -> int:
    return int(uow.execute(_COUNT, {"project": project}).scalar() or 0)


def page(uow: UnitOfWork, project: str, zone: str | None, query: RowQuery) -> list[Disk]:
    """Those of a zone, or (None) of all."""
    rows = select(disks).where(disks.c.project == project)
    if zone is not None:
        rows = rows.where(disks.c.zone == zone)
    return [Disk(**row) for row in uow.all(select_page(rows, _COLUMNS, query))]


def list_all(uow: UnitOfWork) -> list[Disk]:
    """Of the whole yard."""
    return [Disk(**row) for row in uow.all(_ALL)]


def present(uow: UnitOfWork, disk_keys: Sequence[str]) -> set[str]:
    """Return which of these exist."""
    return {row["disk_key"] for row in uow.all(_PRESENT, {"keys": list(disk_keys)})}


def pin(uow: UnitOfWork, disk_key: str, agent_id: str) -> None:
    """Note where the contents are. This costs nothing."""
    uow.update(disks, {"disk_key": disk_key}, {"agent_id": agent_id})


def insert(uow: UnitOfWork, disk: Disk) -> Disk:
    made = dataclasses.replace(disk, usage_version=1)
    uow.insert(disks, columns(made))
    _meter(uow, made)
    return made


def update(uow: UnitOfWork, before: Disk, after: Disk) -> Disk:
    """Writes another size or other labels."""
    changed = dataclasses.replace(after, usage_version=before.usage_version + 1)
    uow.update(disks, {"disk_key": before.disk_key}, changed_columns(before, changed))
    _meter(uow, changed, says_labels=after.labels != before.labels)
    return changed


def remove(uow: UnitOfWork, disk: Disk) -> None:
    _meter(uow, dataclasses.replace(disk, usage_version=disk.usage_version + 1), exists=False)
    uow.execute(delete(disks).where(disks.c.disk_key == disk.disk_key))


def _meter(uow: UnitOfWork, disk: Disk, *, exists: bool = True, says_labels: bool = False) -> None:
    of = StorageResource(
        kind=BilledKind.DISK,
        key=disk.disk_key,
        version=disk.usage_version,
        name=disk.path,
        place=disk.zone,
        type=disk.type,
        bytes=disk.size_gb * GIB,
        labels=disk.labels,
        created_by=disk.created_by,
    )
    meter_size(uow, of, exists=exists, says_labels=says_labels)
