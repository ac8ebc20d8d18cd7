"""Operations as Compute Engine writes them, of the project, of regions and of zones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

from anyio import to_thread

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.errors import operation_code, operation_status
from podyard.api.wire.row_lists import RowList
from podyard.base import error_details
from podyard.control.platform import operations
from podyard.domain.compute.place import PlaceLevel, link, place_named
from podyard.domain.lists.filters import CREATED
from podyard.domain.lists.pages import Order, RowMark, time_mark
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation, OperationVerb

# Google waits up to two minutes; clients' own connections, and proxies on the way, up to one.
WAIT_SECONDS_MAX = 20.0
_LOOK_SECONDS = 0.25
_ID_DIGITS = 15  # hexadecimal ones of the name: the number fits into 60 bits
# Types that are not the verb alone.
_TYPES: Mapping[tuple[ResourceKind, OperationVerb], str] = {
    (
        ResourceKind.PROJECT,
        OperationVerb.SET_COMMON_METADATA,
    ): "compute.projects.setCommonInstanceMetadata",
    (ResourceKind.INSTANCE, OperationVerb.PREEMPT): "compute.instances.preempted",
    (
        ResourceKind.INSTANCE_GROUP_MANAGER,
        OperationVerb.DELETE_INSTANCES,
    ): "compute.instanceGroupManagers.deleteInstances",
}


def to_api_operation(operation: Operation) -> Answer:
    place = place_named(operation.zone)
    here = f"projects/{operation.project}/{place.path}"
    kind, verb = operation.target_kind, operation.verb
    shown: Answer = {
        "kind": "compute#operation",
        "id": str(int(operation.operation_id.rpartition("-")[2][:_ID_DIGITS], 16)),
        "name": operation.operation_id,
        "operationType": _TYPES.get((kind, verb), verb.value),
        "targetLink": link(operation.target_name),
        "status": "DONE" if operation.is_done else "RUNNING",
        "progress": 100 if operation.is_done else 0,
        "insertTime": operation.created.rfc3339(),
        "startTime": operation.created.rfc3339(),
        "selfLink": link(f"{here}/operations/{operation.operation_id}"),
    }
    more: Answer = {
        "user": operation.created_by,
        "targetId": str(operation.target_number or ""),
        "statusMessage": operation.status_detail,
        "endTime": "" if operation.ended is None else operation.ended.rfc3339(),
    }
    if place.level is not PlaceLevel.GLOBAL:
        shown[place.level.removesuffix("s")] = link(here)
    return shown | {name: value for name, value in more.items() if value} | _error(operation)


def _error(operation: Operation) -> Answer:
    """The fields of an operation that has failed."""
    if operation.error_code is None:
        return {}
    details = operation.error_details
    status = operation_status(operation.error_code)
    error: Answer = {
        "code": operation_code(operation.error_code, details),
        "message": operation.error_message,
    }
    if details:
        error |= {"errorDetails": [_detail(error_details.to_json(detail)) for detail in details]}
    return {
        "error": {"errors": [error]},
        "httpErrorStatusCode": status,
        "httpErrorMessage": HTTPStatus(status).phrase.upper(),
    }


def _detail(shown: Answer) -> Answer:
    """A detail by the name of its type, as Compute Engine has them."""
    name = str(shown.pop("@type")).rpartition(".")[2]
    return {f"{name[0].lower()}{name[1:]}": shown}


def _mark(operation: Operation, order: Order) -> RowMark:
    name = operation.operation_id
    if order is Order.NEWEST:
        return time_mark(operation.created, name)
    return RowMark(name if order is Order.NAME else operation.zone, name)


def _list(call: ComputeCall) -> Answer:
    place = None if call.is_aggregated else call.place.name
    return page(
        call,
        RowList(
            rows=partial(operations.page_of_compute, project=call.project, place=place),
            mark=_mark,
            show=to_api_operation,
            place=lambda operation: place_named(operation.zone),
            fields={"name": "name", "status": "status", "insertTime": CREATED},
            default=Order.NEWEST,
        ),
    )


def _get(call: ComputeCall) -> Answer:
    return to_api_operation(_find(call))


def _find(call: ComputeCall) -> Operation:
    return call.read(lambda uow: operations.get_of_compute(uow, call.project, call.place, call.id))


async def wait(call: ComputeCall) -> Answer:
    """The operation when it has ended, or as it stands after `WAIT_SECONDS_MAX`."""
    for _ in range(int(WAIT_SECONDS_MAX / _LOOK_SECONDS)):
        operation = await to_thread.run_sync(_find, call)
        if operation.is_done:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    return to_api_operation(operation)


def _delete(call: ComputeCall) -> Change:
    return Change(lambda uow: operations.forget_of_compute(uow, call.project, call.place, call.id))


HANDLERS: Mapping[str, Handler] = {
    f"{scope}Operations.{name}": handler
    for scope in ("global", "region", "zone")
    for name, handler in (("list", _list), ("get", _get), ("delete", _delete))
} | {"globalOperations.aggregatedList": _list}
WAITING = {f"{scope}Operations.wait": wait for scope in ("global", "region", "zone")}
