"""The form that creates an instance: its price, the room for it, and the same by command."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.control.compute.instances import create as instances
from podyard.control.compute.instances import views
from podyard.control.compute.rooms import RoomView
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.instances.instance import CPUS_PER_REGION_MAX, InstanceSpec, ProvisioningModel
from podyard.domain.principal import Principal
from podyard.http import context
from podyard.web.instances import commands
from podyard.web.instances.form import (
    DEFAULT_RUN_TIME,
    InstanceChoice,
    choose,
    instance_spec,
)
from podyard.web.kit.formats import count
from podyard.web.kit.render import ConsoleRoute, form_of, page, project_url, see_other
from podyard.web.nodes.create import quota_note

ROOM_SHOWN_MAX = 8  # the probe counts no further
SECONDS_PER_HOUR = 3600
FIELDS = (
    "name",
    "run_time",
    "boot_gb",
    "data_gb",
    "startup_script",
    "labels",
    "description",
    "internal_only",
)

router = APIRouter(prefix="/console/{project}/instances/new", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceRoom:
    """The room for an instance in one zone. `text`: how many there are, or why there is none."""

    zone: str
    is_free: bool
    text: str


@router.get("")
def create_form(request: Request, project: str) -> Response:
    return _page(request, project, dict(request.query_params), None)


@router.post("")
async def create(request: Request, project: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _create(request, project, fields))


def _create(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    zone, name = fields.get("zone", ""), fields.get("name", "").strip()
    try:
        spec = instance_spec(fields)
        context.write(
            request,
            lambda uow: instances.insert(uow, fleet, caller, project, zone, name, spec),
        )
    except PodyardError as error:
        return _page(request, project, fields, error)
    return see_other(project_url(project, "instances", zone, name))


def _page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    caller.require("compute.instances.create", project, f"projects/{project}")

    def body(uow: UnitOfWork) -> tuple[InstanceChoice, Sequence[InstanceRoom]]:
        identity.project_row(uow, project)
        choice = choose(fleet, fields, uow.now)
        return choice, _rooms(uow, fleet, caller, project, choice)

    choice, rooms = context.read(request, body)
    values = {name: fields.get(name, "") for name in FIELDS}
    if choice.model is ProvisioningModel.FLEX_START and "run_time" not in fields:
        values |= {"run_time": DEFAULT_RUN_TIME}
    try:
        spec, doubt = instance_spec({**values, **choice.fields}), None
    except PodyardError as wrong:  # the commands are shown without what is wrong
        plain = {"run_time": DEFAULT_RUN_TIME, **choice.fields}
        spec, doubt = instance_spec(plain), wrong
    refusal = error or doubt
    return page(
        request,
        "instances/new.html",
        status=refusal.code.http_status if refusal else 200,
        section="instances",
        project=project,
        choice=choice,
        fields=values,
        rooms=rooms,
        room=next(one for one in rooms if one.zone == choice.zone),
        error=error.message if error else None,
        run_nanos=_run_nanos(choice, spec),
        doubt=doubt.message if doubt and not error else None,
        commands=commands.create_instance(project, choice.zone, values["name"].strip(), spec),
        form_url=project_url(project, "instances", "new"),
    )


def _run_nanos(choice: InstanceChoice, spec: InstanceSpec) -> int | None:
    """The price of the whole run time; None without a price, or an end."""
    seconds = spec.scheduling.max_run_seconds
    if choice.price is None or seconds is None:
        return None
    return round(choice.price.total_nanos_per_hour * seconds / SECONDS_PER_HOUR)


def _rooms(
    uow: UnitOfWork, fleet: Fleet, caller: Principal, project: str, choice: InstanceChoice
) -> list[InstanceRoom]:
    """Of every zone that offers the machine type so, the chosen one first."""
    if choice.machine.has_chips:
        rooms = _rooms_with_chips(RoomView(uow, fleet, caller, project), choice)
    else:
        rooms = _rooms_without_chips(uow, caller, project, choice)
    return sorted(rooms, key=lambda room: room.zone != choice.zone)


def _rooms_with_chips(view: RoomView, choice: InstanceChoice) -> list[InstanceRoom]:
    kind = choice.machine.kind()
    rooms = []
    for one in view.rooms(kind, choice.usage_class):
        room = one.room
        text = _room_text(room.nodes)
        if not one.quota.allows(kind):
            text = quota_note(one)
        elif not room.nodes:
            text = room.reason or "No room now."
        rooms.append(InstanceRoom(one.zone, one.is_free, text))
    return rooms


def _room_text(instances: int) -> str:
    if instances >= ROOM_SHOWN_MAX:
        return f"{ROOM_SHOWN_MAX} or more fit now."
    return f"{instances} {'fits' if instances == 1 else 'fit'} now."


def _rooms_without_chips(
    uow: UnitOfWork, caller: Principal, project: str, choice: InstanceChoice
) -> list[InstanceRoom]:
    needed = choice.machine.cpus or 0
    left = {
        region: views.cpus_left(uow, caller, project, region)
        for region in dict.fromkeys(map(region_of, choice.zones))
    }
    return [
        InstanceRoom(
            zone,
            needed <= (free := left[region_of(zone)]),
            f"{free} of {count(CPUS_PER_REGION_MAX, 'processor')} of the quota are left.",
        )
        for zone in choice.zones
    ]
