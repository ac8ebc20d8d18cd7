"""Queued resources and reservations on Google's wire (v2 and v2alpha1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.tpu import convert_queue
from podyard.api.tpu.call import Call, OperationChange
from podyard.api.tpu.operations import begin
from podyard.api.tpu.pages import page
from podyard.api.wire.row_lists import RowList
from podyard.base.errors import invalid
from podyard.control.checks import faults
from podyard.control.compute import (
    maintenance,
    node_checks,
    queue_lists,
    queued_resources,
    reservations,
)
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.lists.pages import RowMark, RowQuery
from podyard.domain.queued_resource import KEEP_REFUSED_HEADER, QueuedResource


def _create(call: Call) -> OperationChange:
    project, zone = call.place
    queued_id = call.fields.get("queuedResourceId", "")
    if not queued_id:
        raise invalid("queuedResourceId is required", "queuedResourceId")
    node_checks.zone_of(call.fleet, zone)
    spec = convert_queue.from_api_queued_resource(
        call.version, call.body, project, zone, queued_id, call.type_named
    )
    keeps = call.request.headers.get(KEEP_REFUSED_HEADER, "") == "true"
    make = queued_resources.create_or_keep_refused if keeps else queued_resources.create
    return begin(
        call,
        lambda uow: make(uow, call.fleet, call.principal, project, zone, queued_id, spec),
    )


def _get(call: Call) -> dict[str, Any]:
    project, zone = call.place

    def work(uow: UnitOfWork) -> QueuedResource:
        found = queued_resources.get(uow, call.principal, project, zone, call.id)
        return faults.see_queued_resource(uow, call.faults, call.method.id, found)

    return convert_queue.to_api_queued_resource(call.version, call.read(work)[0])


def _list(call: Call) -> dict[str, Any]:
    def rows(uow: UnitOfWork, query: RowQuery) -> list[QueuedResource]:
        listed = queue_lists.api_page(
            uow, call.fleet, call.principal, call.project, call.zone, query
        )
        return [
            faults.see_queued_resource(uow, call.faults, call.method.id, queued)
            for queued in listed
        ]

    return page(
        call,
        "queuedResources",
        lambda _number: RowList(
            rows,
            lambda queued, _order: RowMark(queued.name, queued.queued_resource_key),
            lambda queued: convert_queue.to_api_queued_resource(call.version, queued),
        ),
    )


def _delete(call: Call) -> OperationChange:
    project, zone = call.place
    force = call.fields.get("force", False)
    return begin(
        call,
        lambda uow: queued_resources.delete(
            uow, call.fleet, call.principal, project, zone, call.id, force
        ),
    )


def _reset(call: Call) -> OperationChange:
    project, zone = call.place
    return begin(
        call,
        lambda uow: queued_resources.reset(uow, call.fleet, call.principal, project, zone, call.id),
    )


def _perform(call: Call) -> OperationChange:
    project, zone = call.place
    names = call.fields.get("nodeNames", [])
    return begin(
        call,
        lambda uow: maintenance.perform_queued_resource(
            uow, call.fleet, call.principal, project, zone, call.id, names
        ),
    )


def _maintenance_info(call: Call) -> dict[str, Any]:
    project, zone = call.place
    found, _ = call.read(lambda uow: maintenance.info(uow, call.principal, project, zone, call.id))
    return {
        "nodeUpcomingMaintenances": [convert_queue.to_api_maintenance_info(*item) for item in found]
    }


def _list_reservations(call: Call) -> dict[str, Any]:
    found, _ = call.read(
        lambda uow: reservations.list_reservations(
            uow, call.fleet, call.principal, call.project, call.zone
        )
    )
    return call.page("reservations", [convert_queue.to_api_reservation(item) for item in found])


HANDLERS: Mapping[str, Callable[[Call], dict[str, Any] | OperationChange]] = {
    "queuedResources.create": _create,
    "queuedResources.get": _get,
    "queuedResources.list": _list,
    "queuedResources.delete": _delete,
    "queuedResources.reset": _reset,
    "queuedResources.performMaintenanceQueuedResource": _perform,
    "queuedResources.getMaintenanceInfo": _maintenance_info,
    "reservations.list": _list_reservations,
}
