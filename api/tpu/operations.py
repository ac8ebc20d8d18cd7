"""Operations on Google's wire, in the version of the request's path: clients read metadata and
response strictly, so that a field or a type of another version is an error to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.tpu import convert, convert_queue
from podyard.api.tpu.call import Call, OperationChange
from podyard.base import error_details
from podyard.control.compute import nodes
from podyard.control.platform import operations
from podyard.db import nodes as node_rows
from podyard.db import queued_resources as queue_rows
from podyard.db.unit_of_work import UnitOfWork
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
    """What a method's operation holds at its end: google-cloud-tpu's methods name the type, and
    refuse others. A
    deleted node is Empty from v2 on, a deleted queued resource in v2 only."""
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
        nodes.zone_of(call.fleet, call.zone)
    found, number = call.read(
        lambda uow: operations.list_operations(uow, call.principal, call.project, call.zone)
    )
    if call.fields.get("filter"):
        shown = [_operation_answer(call, operation, number) for operation in found]
        return call.page("operations", shown, by_name=False)
    # The names are enough to find the page: what is not on it need not be rendered.
    page = call.page("operations", [{"name": operation.name} for operation in found], by_name=False)
    by_name = {operation.name: operation for operation in found}
    page["operations"] = [
        _operation_answer(call, by_name[item["name"]], number) for item in page["operations"]
    ]
    return page


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
