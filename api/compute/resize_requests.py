"""Resize requests of managed groups on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.resources import mark_of, without_empty
from podyard.api.wire.row_lists import RowList
from podyard.control.compute.instances import resize_requests
from podyard.control.compute.instances.resize_requests import NamedGroup, ResizeRequest
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import link
from podyard.domain.lists.pages import Order, RowMark, RowQuery, cut_listed
from podyard.http.texts import check_description


def _group_of(call: ComputeCall) -> NamedGroup:
    name = call.names.get("instanceGroupManager", "")
    return NamedGroup(call.principal, call.project, call.place.name, name)


def _show(shown: ResizeRequest) -> Answer:
    one = shown.resource
    duration = {"seconds": str(shown.run_seconds)} if shown.run_seconds else None
    return without_empty(
        {
            "kind": "compute#instanceGroupManagerResizeRequest",
            "id": str(one.number),
            "creationTimestamp": one.created.rfc3339(),
            "name": one.name,
            "description": shown.description,
            "zone": link(f"projects/{one.project}/{one.where.path}"),
            "selfLink": link(shown.path),
            "state": shown.state,
            "resizeBy": shown.resize_by,
            "requestedRunDuration": duration,
        }
    )


def _mark(shown: ResizeRequest, order: Order) -> RowMark:
    return mark_of(shown.resource, order)


def _list(call: ComputeCall) -> Answer:
    def rows(uow: UnitOfWork, query: RowQuery) -> list[ResizeRequest]:
        return cut_listed(query, resize_requests.list_all(uow, _group_of(call)), _mark)

    return page(call, RowList(rows, _mark, _show, lambda shown: shown.resource.where))


def _get(call: ComputeCall) -> Answer:
    return _show(call.read(lambda uow: resize_requests.get(uow, _group_of(call), call.id)))


def _insert(call: ComputeCall) -> Change:
    body = call.body
    name, more = body.get("name", ""), int(call.require("resizeBy"))
    description = body.get("description", "")
    check_description(description)
    seconds = int(body.get("requestedRunDuration", {}).get("seconds", 0))
    insert = partial(
        resize_requests.insert,
        fleet=call.fleet,
        named=_group_of(call),
        name=name,
        resize_by=more,
        run_seconds=seconds,
        description=description,
    )
    return call.begin(insert)


def _delete(call: ComputeCall) -> Change:
    return call.begin(lambda uow: resize_requests.delete(uow, _group_of(call), call.id))


def _cancel(call: ComputeCall) -> Change:
    return call.begin(lambda uow: resize_requests.cancel(uow, _group_of(call), call.id))


HANDLERS: Mapping[str, Handler] = {
    "instanceGroupManagerResizeRequests.list": _list,
    "instanceGroupManagerResizeRequests.get": _get,
    "instanceGroupManagerResizeRequests.insert": _insert,
    "instanceGroupManagerResizeRequests.delete": _delete,
    "instanceGroupManagerResizeRequests.cancel": _cancel,
}
