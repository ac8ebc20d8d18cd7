"""Podyard's own REST for reservations: Google's API only lists them; here the owner of the platform makes them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr
from pydantic.alias_generators import to_camel

from podyard.api import deps
from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.control import reservations
from podyard.domain.reservation import Reservation

router = APIRouter(prefix="/podyard/v1/projects/{project}/locations/{zone}/reservations")


class ReservationMessage(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")
    generation: StrictStr
    size: StrictInt = Field(gt=0)
    capacity_units: StrictStr = "CHIPS"
    start_time: StrictStr | None = None
    end_time: StrictStr | None = None


async def _body(request: Request) -> Any:
    return deps.parse_json(await request.body())


Body = Annotated[Any, Depends(_body)]


@router.post("")
def create(request: Request, project: str, zone: str, body: Body) -> dict[str, Any]:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.reservations.create", project, f"projects/{project}/locations/{zone}")
    reservation_id = request.query_params.get("reservationId")
    if not reservation_id:
        raise invalid("reservationId is required", "reservationId")
    message = deps.parse(ReservationMessage, body)
    starts, ends = _moment(message.start_time, "startTime"), _moment(message.end_time, "endTime")
    what = (message.generation, message.size, message.capacity_units, starts, ends)
    found = deps.write(
        request, lambda uow: reservations.create(uow, fleet, caller, project, zone, reservation_id, *what)
    )
    return _shown(found)


@router.get("")
def list_reservations(request: Request, project: str, zone: str) -> dict[str, Any]:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    place = None if zone == "-" else zone
    found = deps.read(request, lambda uow: reservations.list_reservations(uow, fleet, caller, project, place))
    page, token = deps.paged(request, found, lambda item: item.name)
    return {"reservations": [_shown(item) for item in page], **({"nextPageToken": token} if token else {})}


@router.get("/{reservation}")
def get(request: Request, project: str, zone: str, reservation: str) -> dict[str, Any]:
    caller = deps.principal(request)
    return _shown(deps.read(request, lambda uow: reservations.get(uow, caller, project, zone, reservation)))


@router.delete("/{reservation}")
def delete(request: Request, project: str, zone: str, reservation: str) -> dict[str, Any]:
    caller = deps.principal(request)
    deps.write(request, lambda uow: reservations.delete(uow, caller, project, zone, reservation))
    return {}


def _moment(text: str | None, field: str) -> PlatformTime | None:
    try:
        return None if text is None else PlatformTime.from_rfc3339(text)
    except ValueError as error:
        raise invalid(str(error), field) from None


def _shown(found: Reservation) -> dict[str, Any]:
    times = {"createTime": found.created, "startTime": found.starts, "endTime": found.ends}
    return {
        "name": found.name,
        "state": found.state,
        "generation": found.generation,
        "capacityUnits": found.units,
        "size": found.size,
        "used": found.used,
        **{name: moment.rfc3339() for name, moment in times.items() if moment is not None},
    }
