"""Compute Engine's resources without a life, as records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, select

from podyard.db.store.records import changed_columns, columns
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import compute_resources as rows
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind

_OF_KIND = select(rows).where(
    rows.c.project == bindparam("project"), rows.c.kind == bindparam("kind")
)
_ONE = _OF_KIND.where(rows.c.place == bindparam("place"), rows.c.name == bindparam("name"))
_LOCKED = _ONE.with_for_update()
_EVERYWHERE = select(rows).where(rows.c.kind == bindparam("kind")).order_by(rows.c.resource_key)
_COUNT = select(func.count()).where(
    rows.c.project == bindparam("project"), rows.c.kind == bindparam("kind")
)
_COLUMNS = RowColumns(
    name=rows.c.name,
    place=rows.c.place,
    created=rows.c.created,
    key=rows.c.resource_key,
    fields={"name": rows.c.name},
    labels=rows.c.spec["labels"],
)


def find(
    uow: UnitOfWork, project: str, kind: ResourceKind, place: str, name: str
) -> ComputeResource | None:
    """Locked on PostgreSQL when the unit may write."""
    row = uow.first(
        _LOCKED if uow.writable else _ONE,
        {"project": project, "kind": kind.value, "place": place, "name": name},
    )
    return None if row is None else _to_resource(row)


def of_kind(uow: UnitOfWork, project: str, kind: ResourceKind) -> list[ComputeResource]:
    """All of a project, by place and name."""
    ordered = _OF_KIND.order_by(rows.c.place, rows.c.name)
    return [_to_resource(row) for row in uow.all(ordered, {"project": project, "kind": kind.value})]


def everywhere(uow: UnitOfWork, kind: ResourceKind) -> list[ComputeResource]:
    """All of all projects."""
    return [_to_resource(row) for row in uow.all(_EVERYWHERE, {"kind": kind.value})]


def count(uow: UnitOfWork, project: str, kind: ResourceKind) -> int:
    return int(uow.execute(_COUNT, {"project": project, "kind": kind.value}).scalar() or 0)


def page(
    uow: UnitOfWork, project: str, kind: ResourceKind, place: str | None, query: RowQuery
) -> list[ComputeResource]:
    """Those of one place, or (None) of all."""
    which = select(rows).where(rows.c.project == project, rows.c.kind == kind.value)
    if place is not None:
        which = which.where(rows.c.place == place)
    return [_to_resource(row) for row in uow.all(select_page(which, _COLUMNS, query))]


def insert(uow: UnitOfWork, resource: ComputeResource) -> None:
    uow.insert(rows, columns(resource))


def update(uow: UnitOfWork, before: ComputeResource, spec: Mapping[str, Any]) -> ComputeResource:
    after = dataclasses.replace(before, spec=spec)
    uow.update(rows, {"resource_key": before.resource_key}, changed_columns(before, after))
    return after


def remove(uow: UnitOfWork, resource: ComputeResource) -> None:
    uow.execute(delete(rows).where(rows.c.resource_key == resource.resource_key))


def _to_resource(row: Mapping[str, Any]) -> ComputeResource:
    return ComputeResource(**{**row, "kind": ResourceKind(row["kind"])})
