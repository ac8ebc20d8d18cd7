"""Compute Engine's disks (discovery document compute v1). A change is done when its operation's
name is known, so the name says all of it, and nothing keeps operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from podyard.api import deps
from podyard.api.json_body import parse_json
from podyard.base.errors import PodyardError, invalid, invalid_field
from podyard.control.compute import compute_projects, persistent_disks
from podyard.control.compute.persistent_disks import DiskRequest, ShownDisk
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.disk import Disk
from podyard.http import google, google_disks
from podyard.http.texts import check_description, check_labels

T = TypeVar("T")
router = APIRouter(include_in_schema=False)
_IN_ZONE = "/compute/{version}/projects/{project}/zones/{zone}"
_COPIED = ("sourceImage", "sourceSnapshot", "sourceDisk")


class DiskMessage(BaseModel):
    """Compute Engine's Disk; what else a client sends is left aside."""

    name: str
    type: str = ""
    sizeGb: str | int | None = None
    description: str = ""
    labels: dict[str, str] = {}
    sourceImage: str = ""
    sourceSnapshot: str = ""
    sourceDisk: str = ""


class DiskSizeMessage(BaseModel):
    sizeGb: str | int


class LabelsMessage(BaseModel):
    labels: dict[str, str] = {}
    labelFingerprint: str = ""


@router.get("/compute/{version}/projects/{project}/aggregated/disks")
def list_all(request: Request, project: str) -> Response:
    caller = deps.principal(request)

    def answer(found: Sequence[ShownDisk]) -> Response:
        return JSONResponse(google_disks.aggregated_list(project, found))

    return _read(request, lambda uow: persistent_disks.list_disks(uow, caller, project), answer)


@router.get(f"{_IN_ZONE}/disks")
def list_in_zone(request: Request, project: str, zone: str) -> Response:
    caller = deps.principal(request)

    def answer(found: Sequence[ShownDisk]) -> Response:
        mine = [shown for shown in found if shown.disk.zone == zone]
        return JSONResponse(google_disks.zone_list(project, zone, mine))

    return _read(request, lambda uow: persistent_disks.list_disks(uow, caller, project), answer)


@router.get(f"{_IN_ZONE}/disks/{{disk}}")
def get(request: Request, project: str, zone: str, disk: str) -> Response:
    caller = deps.principal(request)
    return _read(
        request,
        lambda uow: persistent_disks.get(uow, caller, project, zone, disk),
        lambda found: JSONResponse(google_disks.disk(found)),
    )


@router.post(f"{_IN_ZONE}/disks")
async def insert(request: Request, project: str, zone: str) -> Response:
    caller, fleet = deps.principal(request), deps.platform(request).fleet

    def use_case(data: bytes) -> Callable[[UnitOfWork], Disk]:
        wanted = _request(deps.parse(DiskMessage, parse_json(data)))
        return lambda uow: persistent_disks.create(uow, fleet, caller, project, zone, wanted)

    return await _change(request, "insert", use_case)


@router.delete(f"{_IN_ZONE}/disks/{{disk}}")
async def delete(request: Request, project: str, zone: str, disk: str) -> Response:
    caller = deps.principal(request)
    return await _change(
        request,
        "delete",
        lambda _: lambda uow: persistent_disks.delete(uow, caller, project, zone, disk),
    )


@router.post(f"{_IN_ZONE}/disks/{{disk}}/resize")
async def resize(request: Request, project: str, zone: str, disk: str) -> Response:
    caller = deps.principal(request)

    def use_case(data: bytes) -> Callable[[UnitOfWork], Disk]:
        size = _gigabytes(deps.parse(DiskSizeMessage, parse_json(data)).sizeGb)
        return lambda uow: persistent_disks.resize(uow, caller, project, zone, disk, size)

    return await _change(request, "resize", use_case)


@router.post(f"{_IN_ZONE}/disks/{{disk}}/setLabels")
async def set_labels(request: Request, project: str, zone: str, disk: str) -> Response:
    caller = deps.principal(request)

    def use_case(data: bytes) -> Callable[[UnitOfWork], Disk]:
        said = deps.parse(LabelsMessage, parse_json(data))
        check_labels(said.labels)
        return lambda uow: persistent_disks.set_labels(
            uow, caller, project, zone, disk, said.labels, said.labelFingerprint
        )

    return await _change(request, "setLabels", use_case)


@router.get(f"{_IN_ZONE}/operations/{google.DISK_OPERATION}{{verb}}-{{disk}}")
@router.post(f"{_IN_ZONE}/operations/{google.DISK_OPERATION}{{verb}}-{{disk}}/wait")
def get_operation(request: Request, project: str, zone: str, verb: str, disk: str) -> Response:
    caller = deps.principal(request)
    return _read(
        request,
        lambda uow: compute_projects.get(uow, caller, project),
        lambda _: JSONResponse(google_disks.operation(project, zone, verb, disk, caller.email)),
    )


def _request(said: DiskMessage) -> DiskRequest:
    for name in _COPIED:
        if getattr(said, name):
            raise invalid(
                f"{name}: disks of Podyard hold nothing and are made blank: leave it out", name
            )
    check_labels(said.labels)
    check_description(said.description)
    size = None if said.sizeGb is None else _gigabytes(said.sizeGb)
    return DiskRequest(said.name, said.type.rpartition("/")[2], size, said.description, said.labels)


def _gigabytes(said: str | int) -> int:
    try:
        return int(said)
    except ValueError:
        raise invalid_field(f"sizeGb {said!r} is not a whole number of GB", "size_gb") from None


def _read(
    request: Request, use_case: Callable[[UnitOfWork], T], answer: Callable[[T], Response]
) -> Response:
    try:
        return answer(deps.read(request, use_case))
    except PodyardError as error:
        return error_response(error)


async def _change(
    request: Request, verb: str, use_case: Callable[[bytes], Callable[[UnitOfWork], Disk]]
) -> Response:
    """`use_case`: of the body. The operation that it answers is DONE."""
    caller, data = deps.principal(request), await request.body()

    def act() -> Response:
        try:
            changed = deps.write(request, use_case(data))
        except PodyardError as error:
            return error_response(error)
        return JSONResponse(
            google_disks.operation(changed.project, changed.zone, verb, changed.name, caller.email)
        )

    return await to_thread.run_sync(act)


def error_response(error: PodyardError) -> Response:
    """Compute Engine's envelope has `errors` as well."""
    if isinstance(error, compute_projects.StaleFingerprint | persistent_disks.StaleLabels):
        return JSONResponse(
            google.envelope(error.code, error.message, "conditionNotMet", 412)[1], 412
        )
    reason = {404: "notFound", 403: "forbidden", 409: "alreadyExists"}.get(
        error.code.http_status, "invalid"
    )
    if isinstance(error, persistent_disks.InUse):
        reason = "resourceInUseByAnotherResource"
    status, body = google.envelope(error.code, error.message, reason)
    return JSONResponse(body, status)
