"""Compute Engine's wire: the project with its metadata, which `gcloud compute tpus tpu-vm ssh`
reads; disks; empty lists; and everything else refused and recorded (discovery document compute
v1)."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from podyard.api import deps, unserved
from podyard.api.compute.disks import error_response
from podyard.api.compute.disks import router as disks
from podyard.api.json_body import parse_json
from podyard.base.errors import PodyardError
from podyard.control.compute import compute_projects
from podyard.http import google
from podyard.http.texts import check_metadata

router = APIRouter()
router.include_router(disks)


class MetadataItem(BaseModel):
    key: str
    value: str = ""


class MetadataMessage(BaseModel):
    """Compute Engine's Metadata; what else a client sends is left aside, as Google does with
    `kind`."""

    fingerprint: str | None = None
    items: list[MetadataItem] = []


@router.get("/compute/{version}/projects/{project}")
def get_project(request: Request, project: str) -> Response:
    caller = deps.principal(request)
    try:
        found = deps.read(request, lambda uow: compute_projects.get(uow, caller, project))
    except PodyardError as error:
        return error_response(error)
    return JSONResponse(
        google.project(project, str(found.number), found.metadata, found.fingerprint)
    )


@router.post("/compute/{version}/projects/{project}/setCommonInstanceMetadata")
async def set_metadata(request: Request, project: str) -> Response:
    caller, data = deps.principal(request), await request.body()

    def act() -> Response:
        try:
            message = deps.parse(MetadataMessage, parse_json(data))
            items = {item.key: item.value for item in message.items}
            check_metadata(items)
            found = deps.write(
                request,
                lambda uow: compute_projects.set_metadata(
                    uow, caller, project, items, message.fingerprint
                ),
            )
        except PodyardError as error:
            return error_response(error)
        name = f"{google.METADATA_OPERATION}{found.digest}"
        return JSONResponse(google.metadata_operation(project, name, caller.email))

    return await to_thread.run_sync(act)


@router.get("/compute/{version}/projects/{project}/global/operations/{operation}")
@router.post("/compute/{version}/projects/{project}/global/operations/{operation}/wait")
def get_operation(request: Request, project: str, operation: str) -> Response:
    """Of setting metadata: such an operation has ended before its name is known."""
    caller = deps.principal(request)
    if not operation.startswith(google.METADATA_OPERATION):
        return _empty(request)
    try:
        deps.read(request, lambda uow: compute_projects.get(uow, caller, project))
    except PodyardError as error:
        return error_response(error)
    return JSONResponse(google.metadata_operation(project, operation, caller.email))


@router.api_route(
    "/compute/{path:path}",
    methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    include_in_schema=False,
)
def other(request: Request) -> Response:
    return _empty(request)


def _empty(request: Request) -> Response:
    """As an empty project answers; what it has no answer for is refused and recorded."""
    deps.principal(request)
    zones = tuple(deps.platform(request).fleet.zones)
    status, body = google.Google(zones).answer(
        google.COMPUTE_HOST, request.method, request.url.path
    )
    if status == 501:
        return unserved.refuse(request, google.COMPUTE_HOST, request.url.path)
    return JSONResponse(body, status)
