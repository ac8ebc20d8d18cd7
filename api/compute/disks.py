"""Compute Engine's disks. A change is done when its operation is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.resources import FILTERED
from podyard.api.wire.row_lists import RowList
from podyard.base.errors import invalid
from podyard.control.compute import persistent_disks
from podyard.control.compute.persistent_disks import DiskRequest, ShownDisk
from podyard.control.platform import operations
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.catalogue import number_of
from podyard.domain.compute.images import find_named
from podyard.domain.compute.place import ComputePlace, PlaceLevel, link
from podyard.domain.disk import Disk
from podyard.domain.lists.pages import Order, RowMark, time_mark
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation, OperationTarget, OperationVerb
from podyard.http.texts import check_description, check_labels

_COPIED = ("sourceSnapshot", "sourceDisk", "sourceInstantSnapshot", "sourceStorageObject")


def to_api_disk(shown: ShownDisk) -> Answer:
    disk = shown.disk
    zone = link(f"projects/{disk.project}/zones/{disk.zone}")
    return {
        "kind": "compute#disk",
        "id": str(disk.number),
        "creationTimestamp": disk.created.rfc3339(),
        "name": disk.name,
        "description": disk.description,
        "sizeGb": str(disk.size_gb),
        "zone": zone,
        "status": "READY",
        "selfLink": f"{zone}/disks/{disk.name}",
        "type": f"{zone}/diskTypes/{disk.type}",
        "labels": dict(disk.labels),
        "labelFingerprint": disk.label_fingerprint,
        # Nodes of the Cloud TPU API have no URL here.
        "users": [link(one) if "/instances/" in one else one for one in shown.users],
        "physicalBlockSizeBytes": "4096",
        **_source(disk.source),
    }


def _source(path: str) -> Answer:
    return {"sourceImage": link(path), "sourceImageId": str(number_of(path))} if path else {}


def _mark(shown: ShownDisk, order: Order) -> RowMark:
    disk = shown.disk
    if order is Order.NEWEST:
        return time_mark(disk.created, disk.disk_key)
    if order is Order.PLACE:
        return RowMark(disk.zone, disk.name)
    return RowMark(disk.name, disk.disk_key)


def _list(call: ComputeCall) -> Answer:
    zone = None if call.is_aggregated else call.place.name
    return page(
        call,
        RowList(
            rows=partial(
                persistent_disks.page, principal=call.principal, project=call.project, zone=zone
            ),
            mark=_mark,
            show=to_api_disk,
            place=lambda shown: ComputePlace(PlaceLevel.ZONE, shown.disk.zone),
            fields={**FILTERED, "status": "status"},
        ),
    )


def _get(call: ComputeCall) -> Answer:
    return to_api_disk(
        call.read(
            lambda uow: persistent_disks.get(
                uow, call.principal, call.project, call.place.name, call.id
            )
        )
    )


def _insert(call: ComputeCall) -> Change:
    request = _request(call)
    return _change(
        call,
        OperationVerb.INSERT,
        lambda uow: persistent_disks.create(
            uow, call.fleet, call.principal, call.project, call.place.name, request
        ),
    )


def _delete(call: ComputeCall) -> Change:
    return _change(
        call,
        OperationVerb.DELETE,
        lambda uow: persistent_disks.delete(
            uow, call.principal, call.project, call.place.name, call.id
        ),
    )


def _resize(call: ComputeCall) -> Change:
    size = int(call.require("sizeGb"))
    return _change(
        call,
        OperationVerb.RESIZE,
        lambda uow: persistent_disks.resize(
            uow, call.principal, call.project, call.place.name, call.id, size
        ),
    )


def _set_labels(call: ComputeCall) -> Change:
    labels = call.body.get("labels", {})
    check_labels(labels)
    fingerprint = call.body.get("labelFingerprint", "")
    return _change(
        call,
        OperationVerb.SET_LABELS,
        lambda uow: persistent_disks.set_labels(
            uow, call.principal, call.project, call.place.name, call.id, labels, fingerprint
        ),
    )


def _request(call: ComputeCall) -> DiskRequest:
    body = call.body
    for name in _COPIED:
        if body.get(name):
            raise invalid(f"{name}: Podyard makes disks blank or of an image: leave it out", name)
    labels, description = body.get("labels", {}), body.get("description", "")
    check_labels(labels)
    check_description(description)
    size = body.get("sizeGb")
    image = find_named(body.get("sourceImage") or call.query.get("sourceImage") or "")
    if size is None and image is not None:
        size = image.disk_gb
    return DiskRequest(
        call.require("name"),
        body.get("type", "").rpartition("/")[2],
        None if size is None else int(size),
        description,
        labels,
        "" if image is None else image.path,
    )


def _change(call: ComputeCall, verb: OperationVerb, act: Callable[[UnitOfWork], Disk]) -> Change:
    def work(uow: UnitOfWork) -> Operation:
        disk = act(uow)
        target = OperationTarget(
            ResourceKind.DISK, disk.disk_key, disk.project, disk.zone, disk.path, disk.number
        )
        return operations.complete(uow, target, verb)

    return call.begin(work)


HANDLERS: Mapping[str, Handler] = {
    "disks.list": _list,
    "disks.aggregatedList": _list,
    "disks.get": _get,
    "disks.insert": _insert,
    "disks.delete": _delete,
    "disks.resize": _resize,
    "disks.setLabels": _set_labels,
}
