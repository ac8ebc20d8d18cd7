"""Operations: begun with the change that they stand for, ended exactly once in the unit that ends
it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.errors import Code, Detail, PodyardError, not_found
from podyard.base.ids import row_id
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import operations as rows
from podyard.db.compute import slices
from podyard.db.platform import faults
from podyard.db.store.transition import create_record, move
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import ComputePlace
from podyard.domain.compute.refusal import ComputeRefusal, Reason, resource_not_found
from podyard.domain.fault import Subject
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.node import NodeRecord, NodeState, Road
from podyard.domain.operation import Operation, OperationState, OperationTarget, OperationVerb
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import QueuedResourceRecord


def of_node(node: NodeRecord) -> OperationTarget:
    kind = ResourceKind.INSTANCE if node.road is Road.COMPUTE else ResourceKind.NODE
    number = node.number if node.road is Road.COMPUTE else 0
    return OperationTarget(kind, node.node_key, node.project, node.zone, node.name, number)


def of_queued_resource(queued: QueuedResourceRecord) -> OperationTarget:
    return OperationTarget(
        ResourceKind.QUEUED_RESOURCE,
        queued.queued_resource_key,
        queued.project,
        queued.zone,
        queued.name,
    )


def begin(
    uow: UnitOfWork, target: OperationTarget, verb: OperationVerb, detail: str = ""
) -> Operation:
    """Starts an operation. `detail`: what the caller should know."""
    operation = Operation(
        operation_id=row_id(uow.streams.stream("operations"), "operation"),
        project=target.project,
        zone=target.zone,
        verb=verb,
        target_kind=target.kind,
        target_key=target.key,
        target_name=target.name,
        state=OperationState.RUNNING,
        version=1,
        created=uow.now,
        ended=None,
        error_code=None,
        error_message=None,
        error_details=(),
        response=None,
        cancel_requested=False,
        api_version=uow.via,
        lost=faults.loses_operation(uow, _subject(target, verb)),
        status_detail=detail,
        created_by=uow.actor,
        target_number=target.number,
    )
    create_record(uow, operation, reason=f"{verb} requested")
    return operation


def complete(uow: UnitOfWork, target: OperationTarget, verb: OperationVerb) -> Operation:
    """An operation that has ended with the change that it stands for, in the same unit."""
    operation = begin(uow, target, verb)
    succeed(uow, operation.operation_id, None)
    return of_id(uow, operation.operation_id)


def _subject(target: OperationTarget, verb: OperationVerb) -> Subject:
    """An operation, as fault rules match it: by what it acts on, and the method that began it."""
    method = f"{target.kind}s.{'patch' if verb is OperationVerb.UPDATE else verb}"
    return Subject(
        target.zone, "", target.project, (target.name.rpartition("/")[2], target.name), method
    )


def succeed(uow: UnitOfWork, operation_id: str | None, response: Mapping[str, Any] | None) -> None:
    """Ends the operation with the target as it stands now (None: google.protobuf.Empty). No-op when
    it has ended, or when there is none: the platform acts without an operation."""
    _end(uow, operation_id, "succeed", "done", response=response or {})


def fail(
    uow: UnitOfWork,
    operation_id: str | None,
    code: Code,
    message: str,
    details: Sequence[Detail] = (),
) -> None:
    event = "cancel" if code is Code.CANCELLED else "fail"
    _end(
        uow,
        operation_id,
        event,
        message,
        error_code=int(code),
        error_message=message,
        error_details=details,
    )


def _end(  # noqa: PLR0913
    uow: UnitOfWork,
    operation_id: str | None,
    event: str,
    reason: str,
    *,
    response: Mapping[str, Any] | None = None,
    error_code: int | None = None,
    error_message: str | None = None,
    error_details: Sequence[Detail] = (),
) -> None:
    operation = None if operation_id is None else rows.find(uow, operation_id)
    if operation is None or operation.is_done:
        return
    ended = dataclasses.replace(
        operation,
        ended=uow.now,
        response=response,
        error_code=error_code,
        error_message=error_message,
        error_details=tuple(error_details),
    )
    move(uow, operation, event, reason=reason, changed=ended)


def get(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str
) -> Operation:
    return _visible(uow, principal, "tpu.operations.get", project, zone, operation_id)


def find(uow: UnitOfWork, project: str, zone: str, operation_id: str) -> Operation:
    """An operation that the caller has just begun, or begun before with the same request id."""
    operation = rows.find_in(uow, project, zone, operation_id)
    if operation is None:
        raise not_found(f"projects/{project}/locations/{zone}/operations/{operation_id}")
    return operation


def of_id(uow: UnitOfWork, operation_id: str) -> Operation:
    """An operation that is there: its unit has made it, or found it."""
    operation = rows.find(uow, operation_id)
    assert operation is not None, operation_id
    return operation


def get_of_compute(
    uow: UnitOfWork, project: str, place: ComputePlace, operation_id: str
) -> Operation:
    """An operation of Compute Engine. Raises NOT_FOUND. The caller has checked the permission."""
    operation = rows.find_in(uow, project, place.name, operation_id)
    if operation is None or operation.lost or not operation.target_kind.is_of_compute:
        raise resource_not_found(f"projects/{project}/{place.path}/operations/{operation_id}")
    return operation


def forget_of_compute(
    uow: UnitOfWork, project: str, place: ComputePlace, operation_id: str
) -> None:
    """Deletes the record of an operation that has ended."""
    operation = get_of_compute(uow, project, place, operation_id)
    if not operation.is_done:
        text = f"The resource '{operation.operation_id}' is not ready: it is still running"
        raise ComputeRefusal(Reason.NOT_READY, text)
    rows.remove(uow, operation_id)


def page_of_compute(
    uow: UnitOfWork, query: RowQuery, project: str, place: str | None
) -> list[Operation]:
    """Those of Compute Engine of one place, or (None) of all. The caller has checked the
    permission."""
    return rows.page_of_compute(uow, project, place, query)


def page(
    uow: UnitOfWork, query: RowQuery, principal: Principal, project: str, zone: str | None
) -> list[Operation]:
    """Those of the TPU API, of one zone or (None: `locations/-`) of all zones."""
    principal.require("tpu.operations.list", project, f"projects/{project}/locations/{zone or '-'}")
    return rows.page_of_tpus(uow, project, zone, query)


def cancel(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str
) -> None:
    """Asks for the cancellation. A creation that still waits for chips ends as CANCELLED, and its
    node is gone; any other operation goes on and ends as it would have (AIP-151)."""
    operation = _visible(uow, principal, "tpu.operations.cancel", project, zone, operation_id)
    if operation.is_done:
        return
    rows.request_cancellation(uow, operation_id)
    if operation.verb is not OperationVerb.CREATE or operation.target_kind is not ResourceKind.NODE:
        return
    node = node_rows.get_by_key(uow, operation.target_key)
    if node.state is NodeState.CREATING and slices.id_of(uow, node.node_key) is None:
        reason = "The operation was cancelled: the creation of the node was given up on request"
        fail(uow, operation_id, Code.CANCELLED, reason)
        gone = dataclasses.replace(node, pending_operation=None, live_name=None)
        move(uow, node, "fail", reason=reason, changed=gone)


def forget(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, operation_id: str
) -> None:
    """Deletes the record of an operation that has ended."""
    operation = _visible(uow, principal, "tpu.operations.delete", project, zone, operation_id)
    if not operation.is_done:
        raise PodyardError(Code.FAILED_PRECONDITION, f"operation {operation.name} is still running")
    rows.remove(uow, operation_id)


def _visible(
    uow: UnitOfWork,
    principal: Principal,
    permission: str,
    project: str,
    zone: str,
    operation_id: str,
) -> Operation:
    name = f"projects/{project}/locations/{zone}/operations/{operation_id}"
    principal.require(permission, project, name)
    operation = rows.find_in(uow, project, zone, operation_id)
    if operation is None or operation.lost or operation.target_kind.is_of_compute:
        raise not_found(name)
    return operation
