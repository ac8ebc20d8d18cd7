"""Nodes on Google's wire, all versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.tpu import convert
from podyard.api.tpu.call import Call, OperationChange
from podyard.api.tpu.operations import begin
from podyard.base.errors import invalid
from podyard.control.access import identity
from podyard.control.checks import faults
from podyard.control.compute import hosts, maintenance, nodes
from podyard.db import documents
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import Node, node_name
from podyard.domain.operation import Operation
from podyard.http import context


def _create(call: Call) -> OperationChange:
    project, zone = call.place
    node_id = call.fields.get("nodeId", "")
    if not node_id:
        raise invalid("nodeId is required", "nodeId")
    nodes.zone_of(call.fleet, zone)
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
    def work(uow: UnitOfWork) -> list[Node]:
        listed = nodes.list_nodes(uow, call.fleet, call.principal, call.project, call.zone)
        return [faults.see_node(uow, call.faults, call.method.id, node) for node in listed]

    found, number = call.read(work)
    page = call.page("nodes", [{"name": node.name} for node in found])
    by_name = {node.name: node for node in found}
    page["nodes"] = [
        convert.to_api_node(call.version, by_name[item["name"]], number) for item in page["nodes"]
    ]
    return page


def _patch(call: Call) -> OperationChange:
    project, zone = call.place
    mask = convert.from_api_mask(call.fields.get("updateMask", ""))
    changes = convert.from_api_patch(call.version, call.body, mask)

    def work(uow: UnitOfWork) -> Operation:
        if not mask:
            node = nodes.get(uow, call.principal, project, zone, call.id)
            number = identity.project_row(uow, project).number
            convert.check_unchanged(
                call.version, call.body, convert.to_api_node(call.version, node, number)
            )
        return nodes.patch(uow, call.principal, project, zone, call.id, changes)

    return begin(call, work)


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
        lambda uow: hosts.guest_attributes(
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
