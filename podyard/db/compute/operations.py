"""Operations, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, delete, select, update

from podyard.base import error_details
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import operations
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation, OperationState, OperationVerb

_BY_ID = select(operations).where(operations.c.operation_id == bindparam("id"))
_IN_PLACE = _BY_ID.where(
    operations.c.project == bindparam("project"), operations.c.zone == bindparam("zone")
)
_OF_TARGET = (
    select(operations)
    .where(operations.c.target_key == bindparam("key"), operations.c.lost.is_not(True))
    .order_by(operations.c.created.desc(), operations.c.operation_id)
    .limit(bindparam("most"))
)

_COMPUTE_KINDS = tuple(kind.value for kind in ResourceKind if kind.is_of_compute)
_COLUMNS = RowColumns(
    name=operations.c.operation_id,
    place=operations.c.zone,
    created=operations.c.created,
    key=operations.c.operation_id,
    fields={
        "name": operations.c.operation_id,
        "status": case(
            (operations.c.state == OperationState.RUNNING.value, "RUNNING"), else_="DONE"
        ),
        "type": operations.c.verb,
        "target": operations.c.target_name,
    },
)


def find(uow: UnitOfWork, operation_id: str) -> Operation | None:
    return _maybe(uow.first(_BY_ID, {"id": operation_id}))


def find_in(uow: UnitOfWork, project: str, zone: str, operation_id: str) -> Operation | None:
    """The operation, if it is one of the project and the zone; also by the number that Compute
    Engine shows, which its name begins with."""
    if operation_id.isdigit():
        named = operations.c.operation_id.like(f"operation-{int(operation_id):015x}%")
        here = (operations.c.project == project) & (operations.c.zone == zone)
        return _maybe(uow.first(select(operations).where(named, here), {}))
    return _maybe(uow.first(_IN_PLACE, {"id": operation_id, "project": project, "zone": zone}))


def page_of_tpus(
    uow: UnitOfWork, project: str, zone: str | None, query: RowQuery
) -> list[Operation]:
    """Those of the TPU API that anybody is told of, of one zone or (None) of all."""
    return _page(uow, project, zone, query, operations.c.target_kind.not_in(_COMPUTE_KINDS))


def page_of_compute(
    uow: UnitOfWork, project: str, place: str | None, query: RowQuery
) -> list[Operation]:
    """Those of Compute Engine that anybody is told of, of one place or (None) of all."""
    return _page(uow, project, place, query, operations.c.target_kind.in_(_COMPUTE_KINDS))


def _page(
    uow: UnitOfWork,
    project: str,
    place: str | None,
    query: RowQuery,
    is_of_api: ColumnElement[bool],
) -> list[Operation]:
    rows = select(operations).where(
        operations.c.project == project, operations.c.lost.is_not(True), is_of_api
    )
    if place is not None:
        rows = rows.where(operations.c.zone == place)
    return [to_operation(row) for row in uow.all(select_page(rows, _COLUMNS, query))]


def list_all(uow: UnitOfWork) -> list[Operation]:
    """Of all projects, by id."""
    return [
        to_operation(row) for row in uow.all(select(operations).order_by(operations.c.operation_id))
    ]


def of_target(uow: UnitOfWork, target_key: str, most: int) -> list[Operation]:
    """Those that anybody is told of, the newest first."""
    return [to_operation(row) for row in uow.all(_OF_TARGET, {"key": target_key, "most": most})]


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
        "created_by": row["created_by"] or "",
        "target_number": row["target_number"] or 0,
    }
    return Operation(**{**row, **parsed})


def _maybe(row: Mapping[str, Any] | None) -> Operation | None:
    return None if row is None else to_operation(row)
