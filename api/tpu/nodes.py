"""Nodes on Google's wire, all versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.tpu import convert
from podyard.api.tpu.call import Call, OperationChange
from podyard.api.tpu.operations import begin
from podyard.api.tpu.pages import page
from podyard.api.wire.row_lists import RowList
from podyard.base.errors import invalid
from podyard.control.checks import faults
from podyard.control.compute import (
    guest_attributes,
    maintenance,
    node_checks,
    node_list,
    nodes,
)
from podyard.db.store import documents
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.lists.pages import RowMark, RowQuery
from podyard.domain.node import Node, node_name
from podyard.http import context


def _create(call: Call) -> OperationChange:
    project, zone = call.place
    node_id = call.fields.get("nodeId", "")
    if not node_id:
        raise invalid("nodeId is required", "nodeId")
    node_checks.zone_of(call.fleet, zone)
    spec = convert.from_api_node(call.version, call.body, call.type_named)
    return begin(
        call,
        lambda uow: nodes.create(uow, call.fleet, call.principal, project, zone, node_id, spec),
    )


def _get(call: Call) -> dict[str, Any]:
    project, zone = call.place
    name = node_name(project, zone, call.id)

    def work(uow: UnitOfWork) -> tuple[Node, documents.Document | None]:
        found = nodes.get(uow, call.principal, project, zone, call.id)
        return faults.see_node(uow, call.faults, call.method.id, found), documents.read(uow, name)

    (found, document), number = call.read(work)
    shown = convert.to_api_node(call.version, found, number)
    if document is not None and not call.faults:
        call.answers.keep((call.version, document), shown)
    return shown


def get_at_once(call: Call) -> bytes | None:
    """The answer of `nodes.get` if it was made before from the same data; None: it has to be
    made."""
    if call.zone is None or call.faults:
        return None
    database = context.platform(call.request).database
    document = documents.peek(database, node_name(call.project, call.zone, call.id))
    return None if document is None else call.answers.find((call.version, document))


def _list(call: Call) -> dict[str, Any]:
    def rows(uow: UnitOfWork, query: RowQuery) -> list[Node]:
        listed = node_list.api_page(uow, call.fleet, call.principal, call.project, call.zone, query)
        return [faults.see_node(uow, call.faults, call.method.id, node) for node in listed]

    return page(
        call,
        "nodes",
        lambda number: RowList(
            rows,
            lambda node, _order: RowMark(node.name, node.node_key),
            lambda node: convert.to_api_node(call.version, node, number),
        ),
    )


def _patch(call: Call) -> OperationChange:
    project, zone = call.place
    mask = convert.from_api_mask(call.fields.get("updateMask", ""))
    changes = convert.from_api_patch(call.version, call.body, mask)

    return begin(
        call, lambda uow: nodes.patch(uow, call.principal, project, zone, call.id, changes)
    )


def _delete(call: Call) -> OperationChange:
    project, zone = call.place
    return begin(
        call, lambda uow: nodes.delete(uow, call.fleet, call.principal, project, zone, call.id)
    )


def _stop(call: Call) -> OperationChange:
    project, zone = call.place
    return begin(
        call, lambda uow: nodes.stop(uow, call.fleet, call.principal, project, zone, call.id)
    )


def _start(call: Call) -> OperationChange:
    project, zone = call.place
    return begin(
        call, lambda uow: nodes.start(uow, call.fleet, call.principal, project, zone, call.id)
    )


def _reimage(call: Call) -> OperationChange:
    project, zone = call.place
    version = call.fields.get("tensorflowVersion", "")
    if not version:
        raise invalid("tensorflowVersion is required", "tensorflowVersion")
    return begin(
        call,
        lambda uow: nodes.reimage(uow, call.fleet, call.principal, project, zone, call.id, version),
    )


def _simulate(call: Call) -> OperationChange:
    project, zone = call.place
    workers = call.fields.get("workerIds", [])
    return begin(
        call,
        lambda uow: maintenance.simulate(
            uow, call.fleet, call.principal, project, zone, call.id, workers
        ),
    )


def _perform(call: Call) -> OperationChange:
    project, zone = call.place
    return begin(
        call,
        lambda uow: maintenance.perform(uow, call.fleet, call.principal, project, zone, call.id),
    )


def _guest_attributes(call: Call) -> dict[str, Any]:
    project, zone = call.place
    path, workers = call.fields.get("queryPath", ""), call.fields.get("workerIds", [])
    found, _ = call.read(
        lambda uow: guest_attributes.of_node(
            uow, call.principal, project, zone, call.id, path, workers
        )
    )
    shown = [{"queryPath": path, "queryValue": {"items": items}} for items in found]
    return {"guestAttributes": shown}


HANDLERS: Mapping[str, Callable[[Call], dict[str, Any] | OperationChange]] = {
    "nodes.create": _create,
    "nodes.get": _get,
    "nodes.list": _list,
    "nodes.patch": _patch,
    "nodes.delete": _delete,
    "nodes.stop": _stop,
    "nodes.start": _start,
    "nodes.reimage": _reimage,
    "nodes.simulateMaintenanceEvent": _simulate,
    "nodes.performMaintenance": _perform,
    "nodes.getGuestAttributes": _guest_attributes,
}
