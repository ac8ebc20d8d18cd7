"""Operations on Google's wire, in the version of the request's path: clients read metadata and
response strictly, so that a field or a type of another version is an error to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.tpu import convert, convert_queue
from podyard.api.tpu.call import Call, OperationChange
from podyard.api.tpu.pages import page
from podyard.api.wire.row_lists import RowList
from podyard.base import error_details
from podyard.control.compute import node_checks
from podyard.control.platform import operations
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.lists.pages import Order, RowQuery, time_mark
from podyard.domain.operation import Operation

_EMPTY = {"@type": "type.googleapis.com/google.protobuf.Empty"}


def to_api_operation(version: str, operation: Operation, project_number: int) -> dict[str, Any]:
    """google.longrunning.Operation as JSON: `done` is always there, nothing is null."""
    metadata: dict[str, Any] = {
        "@type": f"type.googleapis.com/google.cloud.tpu.{version}.OperationMetadata",
        "createTime": operation.created.rfc3339(),
        "target": operation.target_name,
        "verb": operation.verb,
        "apiVersion": version,
    }
    if operation.status_detail:
        metadata["statusDetail"] = operation.status_detail
    if operation.cancel_requested:
        metadata["cancelRequested"] = True
    answer: dict[str, Any] = {
        "name": operation.name,
        "metadata": metadata,
        "done": operation.is_done,
    }
    if not operation.is_done:
        return answer
    assert operation.ended is not None
    metadata["endTime"] = operation.ended.rfc3339()
    if operation.error_code is None:
        answer["response"] = _response(version, operation, project_number)
        return answer
    answer["error"] = {"code": operation.error_code, "message": operation.error_message}
    if operation.error_details:
        answer["error"]["details"] = [
            error_details.to_json(detail) for detail in operation.error_details
        ]
    return answer


def _response(version: str, operation: Operation, project_number: int) -> dict[str, Any]:
    """Return what a method's operation holds at its end: google-cloud-tpu's methods name the type,
    and refuse others. A deleted node is Empty from v2 on, a deleted queued resource in v2 only."""
    frozen = operation.response
    deleted = operation.verb == "delete"
    prefix = f"type.googleapis.com/google.cloud.tpu.{version}"
    if not frozen:
        return dict(_EMPTY)
    if operation.target_kind == "node":
        if deleted and not convert.is_v1(version):
            return dict(_EMPTY)
        node = node_rows.thaw(frozen)
        shown = convert.to_api_node(version, node, project_number, in_operation=True)
        return {"@type": f"{prefix}.Node", **shown}
    if convert.is_v1(version) or (deleted and version == "v2"):
        return dict(_EMPTY)
    queued = convert_queue.to_api_queued_resource(
        version, queue_rows.thaw(frozen), in_operation=True
    )
    return {"@type": f"{prefix}.QueuedResource", **queued}


def begin(call: Call, work: Callable[[UnitOfWork], Operation]) -> OperationChange:
    """A change that begins an operation, which is the answer."""
    project, zone = call.place

    def find(uow: UnitOfWork, operation_id: str) -> Operation:
        return operations.find(uow, project, zone, operation_id)

    return OperationChange(
        call.once(work, find), lambda found: to_api_operation(call.version, *found)
    )


def _list(call: Call) -> dict[str, Any]:
    if call.zone is not None:
        node_checks.zone_of(call.fleet, call.zone)

    def rows(uow: UnitOfWork, query: RowQuery) -> list[Operation]:
        return operations.page(uow, query, call.principal, call.project, call.zone)

    return page(
        call,
        "operations",
        lambda number: RowList(
            rows,
            lambda operation, _order: time_mark(operation.created, operation.operation_id),
            lambda operation: _operation_answer(call, operation, number),
            fields={"metadata.verb": "type", "metadata.target": "target"},
            default=Order.NEWEST,
        ),
    )


def _get(call: Call) -> dict[str, Any]:
    project, zone = call.place
    found, number = call.read(
        lambda uow: operations.get(uow, call.principal, project, zone, call.id)
    )
    return _operation_answer(call, found, number)


def _operation_answer(call: Call, operation: Operation, number: int) -> dict[str, Any]:
    """In the version of the path; to a caller whose service has no version (gRPC's), in the one
    that began it."""
    version = call.version
    if call.request.scope["state"].get("operations_in_own_version") and operation.api_version:
        version = operation.api_version
    return to_api_operation(version, operation, number)


def _cancel(call: Call) -> OperationChange:
    project, zone = call.place
    return OperationChange(
        lambda uow: operations.cancel(uow, call.principal, project, zone, call.id), lambda _: {}
    )


def _delete(call: Call) -> OperationChange:
    project, zone = call.place
    return OperationChange(
        lambda uow: operations.forget(uow, call.principal, project, zone, call.id), lambda _: {}
    )


HANDLERS: Mapping[str, Callable[[Call], dict[str, Any] | OperationChange]] = {
    "operations.list": _list,
    "operations.get": _get,
    "operations.cancel": _cancel,
    "operations.delete": _delete,
}
