"""Cloud TPU API v2: nodes, operations, locations, accelerator types, runtime versions.

The paths, verbs and shapes are Google's; `convert.py` is the border. Handlers are plain functions that the server runs
in threads, since a unit of work blocks.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from podyard.api import deps
from podyard.api.tpu import convert
from podyard.api.tpu.messages import EmptyMessage, NodeMessage
from podyard.base.errors import invalid, not_found
from podyard.control import access, nodes, operations
from podyard.domain.operation import Operation
from podyard.hardware import runtime_versions

router = APIRouter(prefix="/v2/projects/{project}")


async def _body(request: Request) -> Any:
    return deps.parse_json(await request.body())


Body = Annotated[Any, Depends(_body)]


@router.get("/locations")
def list_locations(request: Request, project: str) -> dict[str, Any]:
    deps.principal(request).require("tpu.locations.list", project, f"projects/{project}")
    deps.read(request, lambda uow: access.project_row(uow, project))
    zones = sorted(deps.platform(request).fleet.zones.values(), key=lambda zone: zone.name)
    page, token = deps.paged(request, zones, lambda zone: zone.name)
    return _listed("locations", [_location(project, zone.name) for zone in page], token)


@router.get("/locations/{zone}")
def get_location(request: Request, project: str, zone: str) -> dict[str, Any]:
    deps.principal(request).require("tpu.locations.get", project, f"projects/{project}/locations/{zone}")
    return _location(project, nodes.zone_of(deps.platform(request).fleet, zone).name)


@router.post("/locations/{zone}/nodes")
def create_node(request: Request, project: str, zone: str, body: Body) -> dict[str, Any]:
    node_id = request.query_params.get("nodeId") or request.query_params.get("node_id")
    caller = deps.principal(request)
    caller.require("tpu.nodes.create", project, f"projects/{project}/locations/{zone}")
    if not node_id:
        raise invalid("nodeId is required", "nodeId")
    spec = convert.from_api_node(deps.parse(NodeMessage, body))
    fleet = deps.platform(request).fleet
    return _operation(request, project, lambda uow: nodes.create(uow, fleet, caller, project, zone, node_id, spec))


@router.get("/locations/{zone}/nodes")
def list_nodes(request: Request, project: str, zone: str) -> dict[str, Any]:
    fleet, caller = deps.platform(request).fleet, deps.principal(request)

    def body(uow: Any) -> tuple[Any, int]:
        found = nodes.list_nodes(uow, fleet, caller, project, None if zone == "-" else zone)
        return found, access.project_row(uow, project)["number"]

    found, number = deps.read(request, body)
    page, token = deps.paged(request, found, lambda node: node.name)
    return _listed("nodes", [convert.to_api_node(node, number) for node in page], token)


@router.post("/locations/{zone}/nodes/{node}:stop")
def stop_node(request: Request, project: str, zone: str, node: str, body: Body) -> dict[str, Any]:
    deps.parse(EmptyMessage, body)
    fleet, caller = deps.platform(request).fleet, deps.principal(request)
    return _operation(request, project, lambda uow: nodes.stop(uow, fleet, caller, project, zone, node))


@router.post("/locations/{zone}/nodes/{node}:start")
def start_node(request: Request, project: str, zone: str, node: str, body: Body) -> dict[str, Any]:
    deps.parse(EmptyMessage, body)
    fleet, caller = deps.platform(request).fleet, deps.principal(request)
    return _operation(request, project, lambda uow: nodes.start(uow, fleet, caller, project, zone, node))


@router.get("/locations/{zone}/nodes/{node}")
def get_node(request: Request, project: str, zone: str, node: str) -> dict[str, Any]:
    caller = deps.principal(request)

    def body(uow: Any) -> tuple[Any, int]:
        found = nodes.get(uow, caller, project, zone, node)
        return found, access.project_row(uow, project)["number"]

    return convert.to_api_node(*deps.read(request, body))


@router.patch("/locations/{zone}/nodes/{node}")
def patch_node(request: Request, project: str, zone: str, node: str, body: Body) -> dict[str, Any]:
    caller = deps.principal(request)
    caller.require("tpu.nodes.update", project, f"projects/{project}/locations/{zone}/nodes/{node}")
    mask = request.query_params.get("updateMask") or request.query_params.get("update_mask") or ""
    changes = convert.from_api_patch(deps.parse(NodeMessage, body), convert.from_api_mask(mask))
    return _operation(request, project, lambda uow: nodes.patch(uow, caller, project, zone, node, changes))


@router.delete("/locations/{zone}/nodes/{node}")
def delete_node(request: Request, project: str, zone: str, node: str) -> dict[str, Any]:
    fleet, caller = deps.platform(request).fleet, deps.principal(request)
    return _operation(request, project, lambda uow: nodes.delete(uow, fleet, caller, project, zone, node))


@router.get("/locations/{zone}/operations")
def list_operations(request: Request, project: str, zone: str) -> dict[str, Any]:
    caller = deps.principal(request)
    size, after = deps.page_size(request), deps.page_after(request)

    def body(uow: Any) -> tuple[list[Operation], str | None, int]:
        place = None if zone == "-" else zone
        page, following = operations.list_operations(uow, caller, project, place, size, after)
        return page, following, access.project_row(uow, project)["number"]

    page, following, number = deps.read(request, body)
    token = deps.page_token(following) if following else None
    return _listed("operations", [convert.to_api_operation(item, number) for item in page], token)


@router.post("/locations/{zone}/operations/{operation}:cancel")
def cancel_operation(request: Request, project: str, zone: str, operation: str, body: Body) -> dict[str, Any]:
    deps.parse(EmptyMessage, body)
    caller = deps.principal(request)
    deps.write(request, lambda uow: operations.cancel(uow, caller, project, zone, operation))
    return {}


@router.get("/locations/{zone}/operations/{operation}")
def get_operation(request: Request, project: str, zone: str, operation: str) -> dict[str, Any]:
    caller = deps.principal(request)

    def body(uow: Any) -> tuple[Operation, int]:
        found = operations.get(uow, caller, project, zone, operation)
        return found, access.project_row(uow, project)["number"]

    return convert.to_api_operation(*deps.read(request, body))


@router.delete("/locations/{zone}/operations/{operation}")
def delete_operation(request: Request, project: str, zone: str, operation: str) -> dict[str, Any]:
    caller = deps.principal(request)
    deps.write(request, lambda uow: operations.forget(uow, caller, project, zone, operation))
    return {}


@router.get("/locations/{zone}/acceleratorTypes")
def list_accelerator_types(request: Request, project: str, zone: str) -> dict[str, Any]:
    deps.principal(request).require("tpu.acceleratortypes.list", project, f"projects/{project}/locations/{zone}")
    items = _accelerator_types(request, project, zone)
    page, token = deps.paged(request, items, lambda item: str(item["name"]))
    return _listed("acceleratorTypes", page, token)


@router.get("/locations/{zone}/acceleratorTypes/{name}")
def get_accelerator_type(request: Request, project: str, zone: str, name: str) -> dict[str, Any]:
    full = f"projects/{project}/locations/{zone}/acceleratorTypes/{name}"
    deps.principal(request).require("tpu.acceleratortypes.get", project, full)
    return _named(_accelerator_types(request, project, zone), full)


@router.get("/locations/{zone}/runtimeVersions")
def list_runtime_versions(request: Request, project: str, zone: str) -> dict[str, Any]:
    deps.principal(request).require("tpu.runtimeversions.list", project, f"projects/{project}/locations/{zone}")
    items = _runtime_versions(request, project, zone)
    page, token = deps.paged(request, items, lambda item: str(item["name"]))
    return _listed("runtimeVersions", page, token)


@router.get("/locations/{zone}/runtimeVersions/{version}")
def get_runtime_version(request: Request, project: str, zone: str, version: str) -> dict[str, Any]:
    full = f"projects/{project}/locations/{zone}/runtimeVersions/{version}"
    deps.principal(request).require("tpu.runtimeversions.get", project, full)
    return _named(_runtime_versions(request, project, zone), full)


def _operation(request: Request, project: str, use_case: Any) -> dict[str, Any]:
    def body(uow: Any) -> tuple[Operation, int]:
        operation = use_case(uow)
        return operation, access.project_row(uow, project)["number"]

    return convert.to_api_operation(*deps.write(request, body))


def _listed(collection: str, items: list[dict[str, Any]], token: str | None) -> dict[str, Any]:
    """The collection's key is always there (Terraform's data sources assert it); the token only when more follows."""
    return {collection: items, **({"nextPageToken": token} if token else {})}


def _location(project: str, zone: str) -> dict[str, Any]:
    return {"name": f"projects/{project}/locations/{zone}", "locationId": zone}


def _accelerator_types(request: Request, project: str, zone: str) -> list[dict[str, Any]]:
    fleet = deps.platform(request).fleet
    nodes.zone_of(fleet, zone)
    parent = f"projects/{project}/locations/{zone}/acceleratorTypes"
    return [
        {
            "name": f"{parent}/{kind.name}",
            "type": kind.name,
            "acceleratorConfigs": [{"type": kind.generation.wire_type, "topology": kind.topology.text}],
        }
        for kind in fleet.offered_types(zone)
    ]


def _runtime_versions(request: Request, project: str, zone: str) -> list[dict[str, Any]]:
    offers = nodes.zone_of(deps.platform(request).fleet, zone).offers
    parent = f"projects/{project}/locations/{zone}/runtimeVersions"
    found = {
        version.version
        for generation in (offer.generation for offer in offers.values())
        for version in runtime_versions.runtime_versions_of(generation)
    }
    return [{"name": f"{parent}/{version}", "version": version} for version in sorted(found)]


def _named(items: list[dict[str, Any]], full: str) -> dict[str, Any]:
    for item in items:
        if item["name"] == full:
            return item
    raise not_found(full)
