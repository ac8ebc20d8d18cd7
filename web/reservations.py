"""Reservations: the list, the form that creates one, and deletion."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import PlatformTime
from podyard.base.durations import parse_duration
from podyard.base.errors import PodyardError, invalid
from podyard.control.access import identity
from podyard.control.compute import reservations
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import UsageClass
from podyard.domain.reservation import CapacityUnits, ReservationUse
from podyard.http import context
from podyard.web import forms
from podyard.web.commands import Command
from podyard.web.render import ConsoleRoute, form_of, page, project_url, see_other_with_notice

router = APIRouter(prefix="/console/{project}/queue/reservations", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    return _page(request, project, dict(request.query_params), None)


@router.post("")
async def create(request: Request, project: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _create(request, project, fields))


@router.post("/{zone}/{name}/delete")
async def delete(request: Request, project: str, zone: str, name: str) -> Response:
    await form_of(request)
    caller = context.principal(request)

    def answer() -> Response:
        try:
            context.write(request, lambda uow: reservations.delete(uow, caller, project, zone, name))
        except PodyardError as error:
            return _page(request, project, {}, error)
        return see_other_with_notice(project_url(project, "queue", "reservations"), f"Reservation {name} is deleted.")

    return await context.in_thread(answer)


def _create(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    zone, generation = fields.get("zone", ""), fields.get("generation", "")
    name = fields.get("name", "").strip()

    def body(uow: UnitOfWork) -> None:
        size = forms.whole(fields, "size", "Size", 0)
        ends = _end(fields.get("duration", "").strip(), uow.now)
        units = fields.get("units", "") or CapacityUnits.CHIPS
        reservations.create(uow, fleet, caller, project, zone, name, generation, size, units, ends=ends)

    try:
        context.write(request, body)
    except PodyardError as error:
        return _page(request, project, fields, error)
    return see_other_with_notice(project_url(project, "queue", "reservations"), f"Reservation {name} is created.")


def _end(text: str, now: PlatformTime) -> PlatformTime | None:
    try:
        return PlatformTime(now.nanos + parse_duration(text)) if text else None
    except ValueError as error:
        raise invalid(str(error), "duration") from None


def _page(request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> list[ReservationUse]:
        identity.project_row(uow, project)
        return reservations.list_reservations(uow, fleet, caller, project, None)

    zones = [
        zone.name
        for zone in fleet.zones.values()
        if any(UsageClass.RESERVED in offer.usage_classes for offer in zone.offers.values())
    ]
    generations = sorted({name for zone in zones for name in fleet.zones[zone].offers})
    return page(
        request,
        "reservations.html",
        status=200 if error is None else error.code.http_status,
        section="queue",
        project=project,
        rows=context.read(request, body),
        zones=zones,
        generations=generations,
        units=list(CapacityUnits),
        fields=fields,
        may_create=caller.may("podyard.reservations.create", project),
        may_delete=caller.may("podyard.reservations.delete", project),
        url=project_url(project, "queue", "reservations"),
        error=error.message if error else None,
        commands=[Command("podyard", f"podyard reservation list --project {project}")],
    )
