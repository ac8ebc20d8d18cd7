"""Operations: begun with the change that they stand for, ended exactly once in the unit that ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select, update

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError, not_found
from podyard.base.ids import row_id
from podyard.db import operations as rows
from podyard.db.tables_compute import operations
from podyard.db.transition import OPERATIONS, born, move
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.operation import OPERATION, Operation
from podyard.domain.principal import Principal


def begin(uow: UnitOfWork, node: Mapping[str, Any], verb: str, target_name: str) -> str:
    """Starts an operation on a node; returns its id."""
    operation_id = row_id(uow.streams.stream("operations"), "operation")
    born(
        uow,
        OPERATIONS,
        {
            "operation_id": operation_id,
            "project": node["project"],
            "zone": node["zone"],
            "verb": verb,
            "target_kind": "node",
            "target_key": node["node_key"],
            "target_name": target_name,
            "created": uow.now,
            "ended": None,
            "error_code": None,
            "error_message": None,
            "error_details": [],
            "response": None,
            "cancel_requested": False,
        },
        reason=f"{verb} requested",
    )
    return operation_id


def succeed(uow: UnitOfWork, operation_id: str, response: Mapping[str, Any] | None) -> None:
    """Ends the operation with the target as it stands now (None: google.protobuf.Empty). No-op when it has ended."""
    _end(uow, operation_id, "succeed", {"response": response if response is not None else {}}, "done")


def fail(uow: UnitOfWork, operation_id: str, code: Code, message: str, details: Sequence[Any] = ()) -> None:
    values = {"error_code": int(code), "error_message": message, "error_details": list(details)}
    _end(uow, operation_id, "cancel" if code is Code.CANCELLED else "fail", values, message)


def _end(uow: UnitOfWork, operation_id: str, event: str, values: Mapping[str, Any], reason: str) -> None:
    row = uow.first(select(operations).where(operations.c.operation_id == operation_id))
    if row is not None and not OPERATION.is_final(row["state"]):
        move(uow, OPERATIONS, row, event, reason=reason, ended=uow.now, **values)


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str) -> Operation:
    name = f"projects/{project}/locations/{zone}/operations/{operation_id}"
    principal.require("tpu.operations.get", project, name)
    row = rows.row_of(uow, project, zone, operation_id)
    if row is None:
        raise not_found(name)
    return rows.to_operation(row)


def list_operations(
    uow: UnitOfWork, principal: Principal, project: str, zone: str | None, limit: int, after: str | None
) -> tuple[list[Operation], str | None]:
    """The newest first; `after` is the id that the page before ended with. Returns (page, next `after` or None)."""
    principal.require("tpu.operations.list", project, f"projects/{project}/locations/{zone or '-'}")
    query = select(operations).where(operations.c.project == project)
    if zone is not None:
        query = query.where(operations.c.zone == zone)
    found = uow.all(query.order_by(operations.c.created.desc(), operations.c.operation_id))
    start = 0
    if after is not None:
        ids = [row["operation_id"] for row in found]
        start = ids.index(after) + 1 if after in ids else len(ids)
    page = found[start : start + limit]
    more = start + limit < len(found)
    return [rows.to_operation(row) for row in page], page[-1]["operation_id"] if more else None


def cancel(uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str) -> None:
    """Asks for the cancellation; an operation that cannot be undone goes on and ends as it would have (AIP-151)."""
    operation = _writable(uow, principal, "tpu.operations.cancel", project, zone, operation_id)
    if not operation.done:
        query = update(operations).where(operations.c.operation_id == operation_id)
        uow.execute(query.values(cancel_requested=True))


def forget(uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str) -> None:
    """Deletes the record of an operation that has ended."""
    operation = _writable(uow, principal, "tpu.operations.delete", project, zone, operation_id)
    if not operation.done:
        raise PodyardError(Code.FAILED_PRECONDITION, f"operation {operation.name} is still running")
    uow.execute(delete(operations).where(operations.c.operation_id == operation_id))


def overdue(uow: UnitOfWork, before: PlatformTime) -> list[Mapping[str, Any]]:
    """Operations that have been running since before `before`."""
    running = operations.c.state == OPERATION.initial
    return uow.all(select(operations).where(running, operations.c.created < before))


def _writable(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, operation_id: str
) -> Operation:
    name = f"projects/{project}/locations/{zone}/operations/{operation_id}"
    principal.require(permission, project, name)
    row = rows.row_of(uow, project, zone, operation_id)
    if row is None:
        raise not_found(name)
    return rows.to_operation(row)
