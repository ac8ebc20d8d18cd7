"""Zones and what they offer on Google's wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.tpu import convert
from podyard.api.tpu.call import Call
from podyard.base.errors import not_found
from podyard.control.compute import node_checks
from podyard.hardware import accelerator_types, runtime_versions


def _list_locations(call: Call) -> dict[str, Any]:
    call.read(lambda _uow: None)  # a project that is not there is refused
    zones = sorted(call.fleet.zones)
    return call.page("locations", [_location(call.project, zone) for zone in zones])


def _get_location(call: Call) -> dict[str, Any]:
    project, zone = call.place
    call.read(lambda _uow: None)
    return _location(project, node_checks.zone_of(call.fleet, zone).name)


def _location(project: str, zone: str) -> dict[str, Any]:
    return {"name": f"projects/{project}/locations/{zone}", "locationId": zone, "displayName": zone}


def _service_identity(call: Call) -> dict[str, Any]:
    """The account that Google's TPU service has in a project (format: gcloud's documents of service
    agents)."""
    _, zone = call.place
    node_checks.zone_of(call.fleet, zone)
    _, number = call.read(lambda _uow: None)
    return {"identity": {"email": f"service-{number}@cloud-tpu.iam.gserviceaccount.com"}}


def _accelerator_types(call: Call, zone: str) -> list[dict[str, Any]]:
    found = []
    for kind in call.fleet.offered_types(zone):
        item: dict[str, Any] = {"name": kind.name, "type": kind.name}
        if not convert.is_v1(call.version):
            offer = node_checks.zone_of(call.fleet, zone).offers[kind.generation.name]
            item["acceleratorConfigs"] = [
                {"type": kind.generation.wire_type, "topology": shape.topology.text}
                for shape in accelerator_types.shapes_of(kind)
                if offer.fits(shape)
            ]
        found.append(item)
    return found


def _runtime_versions(call: Call, zone: str) -> list[dict[str, Any]]:
    offers = node_checks.zone_of(call.fleet, zone).offers
    found = {
        version.version
        for offer in offers.values()
        for version in runtime_versions.runtime_versions_of(offer.generation)
    }
    return [{"name": version, "version": version} for version in sorted(found)]


def _tensorflow_versions(_call: Call, _zone: str) -> list[dict[str, Any]]:
    return [
        {"name": version, "version": version} for version in runtime_versions.TENSORFLOW_VERSIONS
    ]


Find = Callable[[Call, str], list[dict[str, Any]]]


def _list_offers(call: Call, find: Find) -> list[dict[str, Any]]:
    """Return what `find` finds in the zone of the path, or (`locations/-`) in each zone, with full
    names."""
    call.read(lambda _uow: None)  # a project that is not there is refused
    zones = (
        sorted(call.fleet.zones)
        if call.zone is None
        else [node_checks.zone_of(call.fleet, call.zone).name]
    )
    collection = call.method.id.partition(".")[0]
    return [
        {**item, "name": f"projects/{call.project}/locations/{zone}/{collection}/{item['name']}"}
        for zone in zones
        for item in find(call, zone)
    ]


def _list(find: Find) -> Callable[[Call], dict[str, Any]]:
    def handle(call: Call) -> dict[str, Any]:
        return call.page(call.method.id.partition(".")[0], _list_offers(call, find), by_name=False)

    return handle


def _get(find: Find) -> Callable[[Call], dict[str, Any]]:
    def handle(call: Call) -> dict[str, Any]:
        project, zone = call.place
        name = f"projects/{project}/locations/{zone}/{call.method.collection}/{call.id}"
        for item in _list_offers(call, find):
            if item["name"] == name:
                return item
        raise not_found(name)

    return handle


HANDLERS: Mapping[str, Callable[[Call], dict[str, Any]]] = {
    "list": _list_locations,
    "get": _get_location,
    "generateServiceIdentity": _service_identity,
    "acceleratorTypes.list": _list(_accelerator_types),
    "acceleratorTypes.get": _get(_accelerator_types),
    "runtimeVersions.list": _list(_runtime_versions),
    "runtimeVersions.get": _get(_runtime_versions),
    "tensorflowVersions.list": _list(_tensorflow_versions),
    "tensorflowVersions.get": _get(_tensorflow_versions),
}
