"""Podyard's own REST for reservations: Google's API only lists them; here the owner of the platform
makes them."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import Field, StrictInt, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.errors import invalid
from podyard.control.compute import reservations
from podyard.domain.reservation import ReservationUse

router = APIRouter(
    prefix="/podyard/v1/projects/{project}/locations/{zone}/reservations", route_class=deps.Route
)


class ReservationMessage(deps.Asked):
    generation: StrictStr
    size: StrictInt = Field(gt=0)
    capacity_units: StrictStr = "CHIPS"
    start_time: StrictStr | None = None
    end_time: StrictStr | None = None


class ReservationAnswer(TypedDict):
    """`size` and `used` are in `capacityUnits`, CHIPS or CORES."""

    name: str
    state: str
    generation: str
    capacityUnits: str
    size: int
    used: int
    createTime: Timestamp
    startTime: NotRequired[Timestamp]
    endTime: NotRequired[Timestamp]


class ReservationList(deps.NextPage):
    reservations: list[ReservationAnswer]


RESERVATION_ID: deps.Query = {
    "name": "reservationId",
    "description": "Id of the new reservation.",
    "schema": {"type": "string"},
    "required": True,
}


@router.post("", openapi_extra=deps.asks(RESERVATION_ID))
def create(
    request: Request, project: str, zone: str, body: Annotated[deps.Body, ReservationMessage]
) -> ReservationAnswer:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.reservations.create", project, f"projects/{project}/locations/{zone}")
    reservation_id = request.query_params.get("reservationId")
    if not reservation_id:
        raise invalid("reservationId is required", "reservationId")
    message = deps.parse(ReservationMessage, body)
    starts, ends = (
        deps.moment(message.start_time, "startTime"),
        deps.moment(message.end_time, "endTime"),
    )
    what = (message.generation, message.size, message.capacity_units, starts, ends)
    found = deps.write(
        request,
        lambda uow: reservations.create(uow, fleet, caller, project, zone, reservation_id, *what),
    )
    return _reservation_answer(found)


@router.get("", openapi_extra=deps.asks(*deps.PAGING))
def list_reservations(request: Request, project: str, zone: str) -> ReservationList:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    place = None if zone == "-" else zone
    found = deps.read(
        request, lambda uow: reservations.list_reservations(uow, fleet, caller, project, place)
    )
    page, token = deps.page_of(request, found, lambda item: item.reservation.name)
    return {"reservations": [_reservation_answer(item) for item in page], **deps.next_page(token)}


@router.get("/{reservation}")
def get(request: Request, project: str, zone: str, reservation: str) -> ReservationAnswer:
    caller = deps.principal(request)
    return _reservation_answer(
        deps.read(request, lambda uow: reservations.get(uow, caller, project, zone, reservation))
    )


@router.delete("/{reservation}")
def delete(request: Request, project: str, zone: str, reservation: str) -> deps.Empty:
    caller = deps.principal(request)
    deps.write(request, lambda uow: reservations.delete(uow, caller, project, zone, reservation))
    return {}


def _reservation_answer(use: ReservationUse) -> ReservationAnswer:
    found = use.reservation
    answer: ReservationAnswer = {
        "name": found.name,
        "state": found.state,
        "generation": found.generation,
        "capacityUnits": found.units,
        "size": found.size,
        "used": use.used,
        "createTime": found.created.rfc3339(),
    }
    if found.starts is not None:
        answer["startTime"] = found.starts.rfc3339()
    if found.ends is not None:
        answer["endTime"] = found.ends.rfc3339()
    return answer
