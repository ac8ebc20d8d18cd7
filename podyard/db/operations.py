"""Operations, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from podyard.base import error_details
from podyard.db.tables_compute import operations
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation, OperationState, OperationVerb

_BY_ID = select(operations).where(operations.c.operation_id == bindparam("id"))
_IN_PLACE = _BY_ID.where(
    operations.c.project == bindparam("project"), operations.c.zone == bindparam("zone")
)


def find(uow: UnitOfWork, operation_id: str) -> Operation | None:
    return _maybe(uow.first(_BY_ID, {"id": operation_id}))


def find_in(uow: UnitOfWork, project: str, zone: str, operation_id: str) -> Operation | None:
    """The operation, if it is one of the project and the zone."""
    return _maybe(uow.first(_IN_PLACE, {"id": operation_id, "project": project, "zone": zone}))


def of_project(uow: UnitOfWork, project: str, zone: str | None) -> list[Operation]:
    """Those that anybody is told of, in one zone or (None) in all, the newest first."""
    query = select(operations).where(
        operations.c.project == project, operations.c.lost.is_not(True)
    )
    if zone is not None:
        query = query.where(operations.c.zone == zone)
    found = uow.all(query.order_by(operations.c.created.desc(), operations.c.operation_id))
    return [to_operation(row) for row in found]


def list_all(uow: UnitOfWork) -> list[Operation]:
    """Of all projects, by id."""
    return [
        to_operation(row) for row in uow.all(select(operations).order_by(operations.c.operation_id))
    ]


def request_cancellation(uow: UnitOfWork, operation_id: str) -> None:
    uow.execute(
        update(operations)
        .where(operations.c.operation_id == operation_id)
        .values(cancel_requested=True)
    )


def remove(uow: UnitOfWork, operation_id: str) -> None:
    uow.execute(delete(operations).where(operations.c.operation_id == operation_id))


def to_operation(row: Mapping[str, Any]) -> Operation:
    parsed = {
        "state": OperationState(row["state"]),
        "verb": OperationVerb(row["verb"]),
        "target_kind": ResourceKind(row["target_kind"]),
        "error_details": tuple(error_details.of_json(row["error_details"])),
        "api_version": row["api_version"] or "",
        "status_detail": row["status_detail"] or "",
        "lost": bool(row["lost"]),
    }
    return Operation(**{**row, **parsed})


def _maybe(row: Mapping[str, Any] | None) -> Operation | None:
    return None if row is None else to_operation(row)
