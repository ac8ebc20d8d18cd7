"""Reservations: the list, the form that creates one, and deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import PlatformTime
from podyard.base.durations import parse_duration
from podyard.base.errors import PodyardError, invalid
from podyard.control.compute import queue_lists, reservations
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import UsageClass
from podyard.domain.reservation import CapacityUnits
from podyard.hardware.generations import GENERATIONS
from podyard.http import context
from podyard.web.kit import forms
from podyard.web.kit.commands import Command
from podyard.web.kit.lists import ListColumn, ListView
from podyard.web.kit.render import ConsoleRoute, change, form_of, page, project_url

COLUMNS = (
    ListColumn("name", "Name"),
    ListColumn("state", "State"),
    ListColumn("zone", "Zone"),
    ListColumn("generation", "Generation"),
    ListColumn("used", "Used", sorts=False, is_number=True),
    ListColumn("size", "Size", is_number=True),
    ListColumn("created", "From"),
    ListColumn("until", "Until", sorts=False),
)

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

    def body(uow: UnitOfWork) -> None:
        reservations.delete(uow, caller, project, zone, name)

    return await context.in_thread(
        lambda: _change(request, project, body, {}, f"Reservation {name} is deleted.")
    )


def _create(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    zone, generation = fields.get("zone", ""), fields.get("generation", "")
    name = fields.get("name", "").strip()

    def body(uow: UnitOfWork) -> None:
        size = forms.whole(fields, "size", "Size", 0)
        ends = _end(fields.get("duration", "").strip(), uow.now)
        units = fields.get("units", "") or CapacityUnits.CHIPS
        reservations.create(
            uow, fleet, caller, project, zone, name, generation, size, units, ends=ends
        )

    return _change(request, project, body, fields, f"Reservation {name} is created.")


def _change(
    request: Request,
    project: str,
    body: Callable[[UnitOfWork], None],
    fields: Mapping[str, str],
    notice: str,
) -> Response:
    url = project_url(project, "queue", "reservations")
    return change(request, body, url, notice, lambda error: _page(request, project, fields, error))


def _end(text: str, now: PlatformTime) -> PlatformTime | None:
    try:
        return PlatformTime(now.nanos + parse_duration(text)) if text else None
    except ValueError as error:
        raise invalid(str(error), "duration") from None


def _page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    view = ListView(request, project_url(project, "queue", "reservations"), COLUMNS, "name")
    rows = view.take(
        context.read(
            request, lambda uow: queue_lists.reservation_page(uow, caller, project, view.query)
        )
    )
    zones = [
        zone.name
        for zone in fleet.zones.values()
        if any(UsageClass.RESERVED in offer.usage_classes for offer in zone.offers.values())
    ]
    offered = {name for zone in zones for name in fleet.zones[zone].offers}
    generations = [name for name in GENERATIONS if name in offered]
    return page(
        request,
        "reservations.html",
        status=200 if error is None else error.code.http_status,
        section="queue",
        project=project,
        wide=True,
        view=view,
        rows=rows,
        zones=zones,
        generations=generations,
        units=list(CapacityUnits),
        fields=fields,
        may_create=caller.may("podyard.reservations.create", project),
        may_delete=caller.may("podyard.reservations.delete", project),
        url=view.url,
        error=error.message if error else None,
        commands=[Command("podyard", f"podyard reservation list --project {project}")],
    )
