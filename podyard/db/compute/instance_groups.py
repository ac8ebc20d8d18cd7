"""Managed instance groups, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, bindparam, delete, select

from podyard.db.compute.operations import to_operation
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import instance_groups, instances, operations
from podyard.domain.instances.group import GroupRow, GroupSpec, group_spec_of
from podyard.domain.lists.pages import RowQuery
from podyard.domain.operation import Operation, OperationState

_BY_NAME = select(instance_groups).where(
    instance_groups.c.project == bindparam("project"),
    instance_groups.c.place == bindparam("place"),
    instance_groups.c.name == bindparam("name"),
)
_LOCKED = _BY_NAME.with_for_update()
_BY_KEY = select(instance_groups).where(instance_groups.c.group_key == bindparam("key"))
_FAILURES = (
    select(operations)
    .join(instances, instances.c.node_key == operations.c.target_key)
    .where(
        instances.c.group_key == bindparam("key"),
        operations.c.state == OperationState.FAILED,
    )
    .distinct()
    .order_by(operations.c.created.desc(), operations.c.operation_id)
    .limit(bindparam("most"))
)
_COLUMNS = RowColumns(
    name=instance_groups.c.name,
    place=instance_groups.c.place,
    created=instance_groups.c.created,
    key=instance_groups.c.group_key,
    fields={"name": instance_groups.c.name},
)


def insert(uow: UnitOfWork, row: GroupRow) -> None:
    data = {name: getattr(row, name) for name in GroupRow.__dataclass_fields__}
    uow.insert(instance_groups, {**data, "spec": row.spec.to_json()})


def find(uow: UnitOfWork, project: str, place: str, name: str) -> GroupRow | None:
    """Locked on PostgreSQL when the unit may write."""
    of = {"project": project, "place": place, "name": name}
    return _maybe(uow.first(_LOCKED if uow.writable else _BY_NAME, of))


def find_by_key(uow: UnitOfWork, group_key: str) -> GroupRow | None:
    return _maybe(uow.first(_BY_KEY, {"key": group_key}))


def by_keys(uow: UnitOfWork, group_keys: Sequence[str]) -> dict[str, GroupRow]:
    """Those that are there."""
    rows = select(instance_groups).where(instance_groups.c.group_key.in_(group_keys))
    return {row["group_key"]: to_group(row) for row in uow.all(rows)}


def page(uow: UnitOfWork, project: str, place: str | None, query: RowQuery) -> list[GroupRow]:
    """Those of one zone or region, or (None) of all."""
    rows: Select[Any] = select(instance_groups).where(instance_groups.c.project == project)
    if place is not None:
        rows = rows.where(instance_groups.c.place == place)
    return [to_group(row) for row in uow.all(select_page(rows, _COLUMNS, query))]


def of_project(uow: UnitOfWork, project: str) -> list[GroupRow]:
    """By place and name."""
    of = select(instance_groups).where(instance_groups.c.project == project)
    order = (instance_groups.c.place, instance_groups.c.name)
    return [to_group(row) for row in uow.all(of.order_by(*order))]


def update(uow: UnitOfWork, row: GroupRow, target_size: int, spec: GroupSpec) -> None:
    values = {"target_size": target_size, "spec": spec.to_json()}
    uow.update(instance_groups, {"group_key": row.group_key}, values)


def remove(uow: UnitOfWork, row: GroupRow) -> None:
    uow.execute(delete(instance_groups).where(instance_groups.c.group_key == row.group_key))


def failures(uow: UnitOfWork, group_key: str, most: int) -> list[Operation]:
    """Operations on the group's instances that have failed, the newest first."""
    return [to_operation(row) for row in uow.all(_FAILURES, {"key": group_key, "most": most})]


def _maybe(row: Mapping[str, Any] | None) -> GroupRow | None:
    return None if row is None else to_group(row)


def to_group(row: Mapping[str, Any]) -> GroupRow:
    return GroupRow(**{**row, "spec": group_spec_of(row["spec"])})
