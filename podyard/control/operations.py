"""Operations: begun with the change that they stand for, ended exactly once in the unit that ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from podyard.base.errors import Code, PodyardError, not_found
from podyard.base.ids import row_id
from podyard.db import faults
from podyard.db import nodes as node_rows
from podyard.db import operations as rows
from podyard.db.tables_compute import operations
from podyard.db.transition import NODES, OPERATIONS, born_row, move_row
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fault import Subject
from podyard.domain.node import node_name
from podyard.domain.operation import OPERATION, Operation, OperationTarget
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import QueuedResourceRecord

_BY_ID = select(operations).where(operations.c.operation_id == bindparam("id"))


def of_node(row: Mapping[str, Any]) -> OperationTarget:
    name = node_name(row["project"], row["zone"], row["node_id"])
    return OperationTarget("node", row["node_key"], row["project"], row["zone"], name)


def of_queued_resource(queued: QueuedResourceRecord) -> OperationTarget:
    return OperationTarget("queuedResource", queued.queued_resource_key, queued.project, queued.zone, queued.name)


def begin(uow: UnitOfWork, target: OperationTarget, verb: str, detail: str = "") -> Operation:
    """Starts an operation. `detail`: what the caller should know."""
    row = {
        "operation_id": row_id(uow.streams.stream("operations"), "operation"),
        "project": target.project,
        "zone": target.zone,
        "verb": verb,
        "target_kind": target.kind,
        "target_key": target.key,
        "target_name": target.name,
        "created": uow.now,
        "ended": None,
        "error_code": None,
        "error_message": None,
        "error_details": [],
        "response": None,
        "cancel_requested": False,
        "api_version": uow.via,
        "status_detail": detail or None,
    }
    if faults.struck(uow, "lostOperation", _subject(row)):
        row["lost"] = True
    return rows.to_operation(born_row(uow, OPERATIONS, row, reason=f"{verb} requested"))


def _subject(row: Mapping[str, Any]) -> Subject:
    """An operation, as fault rules match it: by what it acts on, and the method that began it."""
    method = f"{row['target_kind']}s.{'patch' if row['verb'] == 'update' else row['verb']}"
    names = (row["target_name"].rpartition("/")[2], row["target_name"])
    return Subject(row["zone"], "", row["project"], names, method)


def succeed(uow: UnitOfWork, operation_id: str | None, response: Mapping[str, Any] | None) -> None:
    """Ends the operation with the target as it stands now (None: google.protobuf.Empty). No-op when it has ended, or
    when there is none: the platform acts without an operation."""
    _end(uow, operation_id, "succeed", {"response": response if response is not None else {}}, "done")


def fail(uow: UnitOfWork, operation_id: str | None, code: Code, message: str, details: Sequence[Any] = ()) -> None:
    values = {"error_code": int(code), "error_message": message, "error_details": list(details)}
    _end(uow, operation_id, "cancel" if code is Code.CANCELLED else "fail", values, message)


def _end(uow: UnitOfWork, operation_id: str | None, event: str, values: Mapping[str, Any], reason: str) -> None:
    if operation_id is None:
        return
    row = uow.first(_BY_ID, {"id": operation_id})
    if row is not None and not OPERATION.is_final(row["state"]):
        move_row(uow, OPERATIONS, row, event, reason=reason, ended=uow.now, **values)


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str) -> Operation:
    name = f"projects/{project}/locations/{zone}/operations/{operation_id}"
    principal.require("tpu.operations.get", project, name)
    row = rows.row_of(uow, project, zone, operation_id)
    if row is None or row["lost"]:
        raise not_found(name)
    return rows.to_operation(row)


def find(uow: UnitOfWork, project: str, zone: str, operation_id: str) -> Operation:
    """An operation that the caller has just begun, or begun before with the same request id."""
    row = rows.row_of(uow, project, zone, operation_id)
    if row is None:
        raise not_found(f"projects/{project}/locations/{zone}/operations/{operation_id}")
    return rows.to_operation(row)


def list_operations(uow: UnitOfWork, principal: Principal, project: str, zone: str | None) -> list[Operation]:
    """The newest first, of one zone or (None: `locations/-`) of all zones."""
    principal.require("tpu.operations.list", project, f"projects/{project}/locations/{zone or '-'}")
    query = select(operations).where(operations.c.project == project, operations.c.lost.is_not(True))
    if zone is not None:
        query = query.where(operations.c.zone == zone)
    found = uow.all(query.order_by(operations.c.created.desc(), operations.c.operation_id))
    return [rows.to_operation(row) for row in found]


def cancel(uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str) -> None:
    """Asks for the cancellation. A creation that still waits for chips ends as CANCELLED, and its node is gone; any
    other operation goes on and ends as it would have (AIP-151)."""
    operation = _writable(uow, principal, "tpu.operations.cancel", project, zone, operation_id)
    if operation.done:
        return
    query = update(operations).where(operations.c.operation_id == operation_id)
    uow.execute(query.values(cancel_requested=True))
    if operation.verb != "create" or operation.target_kind != "node":
        return
    node = node_rows.row_by_key(uow, operation.target_key)
    if node["state"] == "CREATING" and not node_rows.with_slice(uow, [node["node_key"]]):
        reason = "The operation was cancelled: the creation of the node was given up on request"
        fail(uow, operation_id, Code.CANCELLED, reason)
        move_row(uow, NODES, node, "fail", reason=reason, pending_operation=None, live_name=None)


def forget(uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str) -> None:
    """Deletes the record of an operation that has ended."""
    operation = _writable(uow, principal, "tpu.operations.delete", project, zone, operation_id)
    if not operation.done:
        raise PodyardError(Code.FAILED_PRECONDITION, f"operation {operation.name} is still running")
    uow.execute(delete(operations).where(operations.c.operation_id == operation_id))


def _writable(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, operation_id: str
) -> Operation:
    name = f"projects/{project}/locations/{zone}/operations/{operation_id}"
    principal.require(permission, project, name)
    row = rows.row_of(uow, project, zone, operation_id)
    if row is None or row["lost"]:
        raise not_found(name)
    return rows.to_operation(row)
