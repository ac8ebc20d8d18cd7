"""Compute Engine's instances: from messages to use cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.compute import instance_edits
from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.instance_answers import to_api_instance
from podyard.api.compute.resources import FILTERED
from podyard.api.wire.row_lists import RowList
from podyard.control.compute.instances import changes, create, life, templates
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import ComputePlace, PlaceLevel, link, whole_path
from podyard.domain.compute.refusal import field_required, invalid_value
from podyard.domain.instances.instance import Instance, InstanceSpec
from podyard.domain.instances.messages import (
    read_attached,
    read_instance,
    read_metadata,
    read_scheduling,
)
from podyard.domain.lists.pages import Order, RowMark, time_mark
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation
from podyard.http.texts import check_description, check_labels, check_metadata, check_tags

_NUMBER_SIGNS = "#"


def _mark(shown: Instance, order: Order) -> RowMark:
    row = shown.row
    by_time = time_mark(row.created, row.instance_key)
    by_place = {Order.NEWEST: by_time, Order.PLACE: RowMark(row.zone, row.name)}
    return by_place.get(order, RowMark(row.name, row.instance_key))


def _list(call: ComputeCall) -> Answer:
    zone = None if call.is_aggregated else call.place.name
    return page(
        call,
        RowList(
            rows=lambda uow, query: life.list_page(uow, call.principal, call.project, zone, query),
            mark=_mark,
            show=to_api_instance,
            place=lambda shown: ComputePlace(PlaceLevel.ZONE, shown.row.zone),
            fields={**FILTERED, "status": "status"},
        ),
    )


def _get(call: ComputeCall) -> Answer:
    return to_api_instance(call.read(lambda uow: life.get(uow, *_of(call))))


def _of(call: ComputeCall) -> tuple[Any, str, str, str]:
    """(caller, project, zone, name) of a call for one instance."""
    name = next(name for key, name in call.names.items() if key == "instance")
    return call.principal, call.project, call.place.name, name


def read_spec(call: ComputeCall, message: Mapping[str, Any]) -> InstanceSpec:
    """The instance that a message asks for, with the checks of texts that both APIs have."""
    spec = read_instance(message, call.project, call.place.name)
    check_labels(spec.labels)
    check_description(spec.description)
    check_metadata(spec.metadata)
    check_tags(spec.tags)
    return spec


def _with_template(
    uow: UnitOfWork, call: ComputeCall, url: str, message: Mapping[str, Any]
) -> InstanceSpec:
    """The instance of a message, over what a template says."""
    if not url:
        return read_spec(call, message)
    kind, path = ResourceKind.INSTANCE_TEMPLATE, whole_path(url, call.project)
    template = templates.find(uow, call.project, kind, path, "sourceInstanceTemplate")
    return read_spec(call, {**template.spec.get("properties", {}), **message})


def _insert(call: ComputeCall) -> Change:
    name, url = call.require("name"), call.query.get("sourceInstanceTemplate", "")
    if call.query.get("sourceMachineImage") or call.body.get("sourceMachineImage"):
        raise invalid_value("sourceMachineImage", "", "Podyard has no machine images.")
    if not url:
        read_spec(call, call.body)

    def work(uow: UnitOfWork) -> Operation:
        spec = _with_template(uow, call, url, call.body)
        return create.insert(
            uow, call.fleet, call.principal, call.project, call.place.name, name, spec
        )

    return call.begin(work)


def _bulk_insert(call: ComputeCall) -> Change:
    body = call.body
    url, properties = body.get("sourceInstanceTemplate", ""), body.get("instanceProperties", {})
    if not url and not properties:
        raise field_required("instanceProperties")
    names = _bulk_names(body)
    least = int(body.get("minCount", 0))

    def work(uow: UnitOfWork) -> Operation:
        template = _with_template(uow, call, url, properties)
        spec = dataclasses.replace(template, least_count=least)
        return create.bulk_insert(
            uow, call.fleet, call.principal, call.project, call.place.name, names, spec
        )

    return call.begin(work)


def _bulk_names(body: Mapping[str, Any]) -> list[str]:
    """The names that a request gives, or makes of a pattern such as `vm-###`."""
    each: Mapping[str, Any] = body.get("perInstanceProperties", {})
    count = int(body.get("count", 0)) or len(each)
    if each:
        return [said.get("name") or key for key, said in sorted(each.items())]
    pattern: str = body.get("namePattern", "")
    signs = pattern.count(_NUMBER_SIGNS)
    if not signs or _NUMBER_SIGNS * signs not in pattern:
        raise invalid_value("namePattern", pattern, "It must have one row of number signs.")
    numbers = range(1, count + 1)
    return [pattern.replace(_NUMBER_SIGNS * signs, f"{number:0{signs}}") for number in numbers]


def _fleet_change(
    act: Callable[..., Operation],
) -> Handler:
    """A change that needs the fleet, and only the instance's name."""

    def handler(call: ComputeCall) -> Change:
        return call.begin(lambda uow: act(uow, call.fleet, *_of(call)))

    return handler


def _set_metadata(call: ComputeCall) -> Change:
    metadata = read_metadata(call.body)
    check_metadata(metadata)
    fingerprint = call.body.get("fingerprint", "")
    return call.begin(lambda uow: changes.set_metadata(uow, *_of(call), metadata, fingerprint))


def _set_labels(call: ComputeCall) -> Change:
    labels = call.body.get("labels", {})
    check_labels(labels)
    fingerprint = call.body.get("labelFingerprint", "")
    return call.begin(lambda uow: changes.set_labels(uow, *_of(call), labels, fingerprint))


def _set_tags(call: ComputeCall) -> Change:
    tags = call.body.get("items", [])
    check_tags(tags)
    fingerprint = call.body.get("fingerprint", "")
    return call.begin(lambda uow: changes.set_tags(uow, *_of(call), tags, fingerprint))


def _set_scheduling(call: ComputeCall) -> Change:
    """Fields that are left out stay as they are, as Compute Engine has it."""

    def work(uow: UnitOfWork) -> Operation:
        principal, *place = _of(call)
        before = life.look_up(uow, principal, "compute.instances.setScheduling", *place)
        scheduling = read_scheduling(call.body, {})
        had = before.spec.scheduling
        merged = had._replace(
            **{
                field: getattr(scheduling, field)
                for field, name in _SCHEDULING_FIELDS.items()
                if name in call.body
            }
        )
        return changes.set_scheduling(uow, *_of(call), merged)

    return call.begin(work)


_SCHEDULING_FIELDS = {
    "model": "provisioningModel",
    "preemptible": "preemptible",
    "termination_action": "instanceTerminationAction",
    "max_run_seconds": "maxRunDuration",
    "automatic_restart": "automaticRestart",
    "on_host_maintenance": "onHostMaintenance",
}


def _set_service_account(call: ComputeCall) -> Change:
    email, scopes = call.body.get("email", ""), call.body.get("scopes", [])
    return call.begin(lambda uow: changes.set_service_account(uow, *_of(call), email, scopes))


def _attach_disk(call: ComputeCall) -> Change:
    disk = read_attached(call.body, call.project, call.place.name)
    return call.begin(lambda uow: changes.attach_disk(uow, *_of(call), disk))


def _detach_disk(call: ComputeCall) -> Change:
    name = call.query.get("deviceName", "")
    if not name:
        raise field_required("deviceName")
    return call.begin(lambda uow: changes.detach_disk(uow, *_of(call), name))


def _update(call: ComputeCall) -> Change:
    """Fields that the body leaves out are emptied where they can be updated, and stay otherwise."""

    def work(uow: UnitOfWork) -> Operation:
        principal, *place = _of(call)
        target = life.look_up(uow, principal, "compute.instances.update", *place)
        shown = to_api_instance(target)
        stays = {name: value for name, value in shown.items() if name not in _EMPTIED}
        now, wanted = read_spec(call, shown), read_spec(call, {**stays, **call.body})
        return changes.update(uow, principal, target, now, wanted)

    return call.begin(work)


_EMPTIED = ("labels", "metadata", "tags", "description", "deletionProtection", "canIpForward")


def _serial_output(call: ComputeCall) -> Answer:
    text = call.read(lambda uow: life.serial_output(uow, *_of(call)))
    start = int(call.query.get("start", 0) or 0)
    start = max(0, len(text) + start) if start < 0 else start
    return {
        "kind": "compute#serialPortOutput",
        "contents": text[start:],
        "start": str(start),
        "next": str(max(start, len(text))),
        "selfLink": link(call.path),
    }


def _guest_attributes(call: ComputeCall) -> Answer:
    path = call.query.get("queryPath", "") or call.query.get("variableKey", "")
    items = call.read(lambda uow: life.guest_attributes(uow, *_of(call), path))
    answer: Answer = {
        "kind": "compute#guestAttributes",
        "queryPath": path,
        "selfLink": link(call.path),
        "queryValue": {"items": items},
    }
    if call.query.get("variableKey"):
        answer |= {"variableKey": path, "variableValue": items[0].get("value")}
    return answer


HANDLERS: Mapping[str, Handler] = {
    **instance_edits.HANDLERS,
    "instances.list": _list,
    "instances.aggregatedList": _list,
    "instances.get": _get,
    "instances.insert": _insert,
    "instances.bulkInsert": _bulk_insert,
    "instances.delete": _fleet_change(life.delete),
    "instances.stop": _fleet_change(life.stop),
    "instances.start": _fleet_change(life.start),
    "instances.reset": _fleet_change(life.reset),
    "instances.simulateMaintenanceEvent": _fleet_change(life.simulate_maintenance),
    "instances.update": _update,
    "instances.setMetadata": _set_metadata,
    "instances.setLabels": _set_labels,
    "instances.setTags": _set_tags,
    "instances.setScheduling": _set_scheduling,
    "instances.setServiceAccount": _set_service_account,
    "instances.attachDisk": _attach_disk,
    "instances.detachDisk": _detach_disk,
    "instances.getSerialPortOutput": _serial_output,
    "instances.getGuestAttributes": _guest_attributes,
}
