"""Zones, regions, what they offer, and public images, on the wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from podyard.api.compute.call import Answer, ComputeCall, Handler, page
from podyard.api.compute.resources import show_quota
from podyard.api.wire.row_lists import RowList
from podyard.control.compute.instances import region_quotas
from podyard.domain.compute import catalogue, images
from podyard.domain.compute.catalogue import OfferedMachine, OfferedType
from podyard.domain.compute.images import PublicImage
from podyard.domain.compute.place import WHOLE_PROJECT, ComputePlace, link
from podyard.domain.compute.refusal import resource_not_found
from podyard.domain.disk import DISK_GB_MAX, DISK_GB_MIN
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.lists.pages import Order, RowMark, RowQuery, cut_listed

_BEGINNING = "1969-12-31T16:00:00.000-08:00"  # as Google says of what was never made
_DISKS_MAX = 128  # of one instance (cloud.google.com/compute/docs/disks)


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogueItem:
    """One thing of a list that no database has, as it is shown."""

    place: ComputePlace
    name: str
    shown: Answer


def _mark(item: CatalogueItem, order: Order) -> RowMark:
    value = item.place.name if order is Order.PLACE else item.name
    return RowMark(value, f"{item.name} {item.place.name}")


def _page(call: ComputeCall, items: Sequence[CatalogueItem]) -> Answer:
    def rows(_uow: object, query: RowQuery) -> list[CatalogueItem]:
        return cut_listed(query, items, _mark)

    return page(call, RowList(rows, _mark, lambda item: item.shown, lambda item: item.place))


def _item(
    call: ComputeCall, place: ComputePlace, path: str, kind: str, more: Answer
) -> CatalogueItem:
    """`path`: below the project."""
    whole, name = f"projects/{call.project}/{path}", path.rpartition("/")[2]
    shown: Answer = {
        "kind": f"compute#{kind}",
        "id": str(catalogue.number_of(whole)),
        "creationTimestamp": _BEGINNING,
        "name": name,
        "selfLink": link(whole),
        **more,
    }
    return CatalogueItem(place, name, shown)


def _get(items: Callable[[ComputeCall], Sequence[CatalogueItem]]) -> Handler:
    def handle(call: ComputeCall) -> Answer:
        call.read(lambda _uow: None)  # a project that is not there is refused
        for item in items(call):
            if item.name == call.id:
                return item.shown
        raise resource_not_found(call.path)

    return handle


def _list(items: Callable[[ComputeCall], Sequence[CatalogueItem]]) -> Handler:
    return lambda call: _page(call, items(call))


def _zones(call: ComputeCall) -> list[CatalogueItem]:
    return [
        _item(
            call,
            WHOLE_PROJECT,
            f"zones/{zone}",
            "zone",
            {
                "description": zone,
                "status": "UP",
                "region": link(f"projects/{call.project}/regions/{region_of(zone)}"),
            },
        )
        for zone in sorted(call.fleet.zones)
    ]


def _regions(call: ComputeCall) -> list[CatalogueItem]:
    regions = catalogue.regions(call.fleet)
    uses = call.read(lambda uow: region_quotas.quotas(uow, call.project, list(regions)))
    return [
        _item(
            call,
            WHOLE_PROJECT,
            f"regions/{region}",
            "region",
            {
                "description": region,
                "status": "UP",
                "quotas": [show_quota(use) for use in uses.get(region, ())],
                "zones": [link(f"projects/{call.project}/zones/{zone}") for zone in zones],
            },
        )
        for region, zones in regions.items()
    ]


def _offers(
    call: ComputeCall, offered: Callable[[Fleet, str], Sequence[catalogue.T]]
) -> list[catalogue.T]:
    return catalogue.of_zones(call.fleet, call.names.get("zone"), offered)


def _machine_types(call: ComputeCall) -> list[CatalogueItem]:
    return [_machine(call, machine) for machine in _offers(call, catalogue.machines)]


def _machine(call: ComputeCall, machine: OfferedMachine) -> CatalogueItem:
    row = machine.type
    more: Answer = {
        "description": row.description,
        "guestCpus": row.cpus,
        "memoryMb": row.memory_mib,
        "isSharedCpu": row.shared_cpu,
        "architecture": "X86_64",
        "maximumPersistentDisks": _DISKS_MAX,
        "maximumPersistentDisksSizeGb": str(DISK_GB_MAX),
        "zone": machine.zone,
    }
    if row.has_chips:
        chips = {"guestAcceleratorType": row.accelerator, "guestAcceleratorCount": row.chips}
        more |= {"accelerators": [chips]}
    path = f"zones/{machine.zone}/machineTypes/{row.name}"
    return _item(call, machine.place, path, "machineType", more)


def _accelerator_types(call: ComputeCall) -> list[CatalogueItem]:
    return [
        _type(call, one, "acceleratorType", {"maximumCardsPerInstance": one.most})
        for one in _offers(call, catalogue.accelerators)
    ]


def _disk_types(call: ComputeCall) -> list[CatalogueItem]:
    sizes = f"{DISK_GB_MIN}GB-{DISK_GB_MAX}GB"
    return [
        _type(call, one, "diskType", {"defaultDiskSizeGb": str(one.most), "validDiskSize": sizes})
        for one in _offers(call, catalogue.disk_types)
    ]


def _type(call: ComputeCall, one: OfferedType, kind: str, more: Answer) -> CatalogueItem:
    path = f"zones/{one.zone}/{kind}s/{one.name}"
    zone = link(f"projects/{call.project}/zones/{one.zone}")
    fields = {"description": one.description, "zone": zone, **more}
    return _item(call, one.place, path, kind, fields)


def _show_image(image: PublicImage) -> Answer:
    return {
        "kind": "compute#image",
        "id": str(catalogue.number_of(image.path)),
        "creationTimestamp": image.creation_time,
        "name": image.name,
        "description": image.description,
        "family": image.family,
        "status": "READY",
        "sourceType": "RAW",
        "architecture": image.architecture,
        "diskSizeGb": str(image.disk_gb),
        "selfLink": link(image.path),
    }


def _images(call: ComputeCall) -> Answer:
    there = images.images_of(call.project)
    return _page(call, [CatalogueItem(WHOLE_PROJECT, one.name, _show_image(one)) for one in there])


def _image(call: ComputeCall) -> Answer:
    return _show_image(images.find_image(call.project, call.id))


def _newest_image(call: ComputeCall) -> Answer:
    return _show_image(images.find_image(call.project, "", call.id))


HANDLERS: Mapping[str, Handler] = {
    "zones.list": _list(_zones),
    "zones.get": _get(_zones),
    "regions.list": _list(_regions),
    "regions.get": _get(_regions),
    "images.list": _images,
    "images.get": _image,
    "images.getFromFamily": _newest_image,
    **{
        f"{collection}.{name}": make(items)
        for collection, items in (
            ("machineTypes", _machine_types),
            ("acceleratorTypes", _accelerator_types),
            ("diskTypes", _disk_types),
        )
        for name, make in (("list", _list), ("aggregatedList", _list), ("get", _get))
    },
}
