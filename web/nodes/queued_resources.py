"""Queued resources: the list with what can be done to one, and the form that requests one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.durations import duration_text, parse_duration
from podyard.base.errors import PodyardError, invalid
from podyard.control.access import identity
from podyard.control.compute import queue_lists, queued_resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.operation import Operation
from podyard.domain.queued_resource import (
    QUEUED_RESOURCE,
    NodeRequest,
    QueuedResource,
    QueuedResourceSpec,
)
from podyard.http import context
from podyard.web.kit import forms
from podyard.web.kit.commands import Command, line
from podyard.web.kit.lists import ListColumn, ListView
from podyard.web.kit.render import (
    ConsoleRoute,
    change,
    form_of,
    page,
    project_url,
    see_other_with_notice,
)

_TIERS: Mapping[UsageClass, Mapping[str, Any]] = {
    UsageClass.ON_DEMAND: {},
    UsageClass.SPOT: {"spot": {}},
    UsageClass.PREEMPTIBLE: {"bestEffort": {}},
    UsageClass.RESERVED: {"guaranteed": {"reserved": True}},
}
_SWITCHES = {
    UsageClass.SPOT: ["--spot"],
    UsageClass.PREEMPTIBLE: ["--best-effort"],
    UsageClass.RESERVED: ["--reserved"],
}

COLUMNS = (
    ListColumn("name", "Name"),
    ListColumn("state", "State"),
    ListColumn("zone", "Zone"),
    ListColumn("type", "Type"),
    ListColumn("usage", "Usage"),
    ListColumn("nodes", "Nodes", sorts=False),
    ListColumn("created", "Created", is_number=True),
)

router = APIRouter(prefix="/console/{project}/queue/resources", route_class=ConsoleRoute)


@router.get("")
def show_list(request: Request, project: str) -> Response:
    return _list_page(request, project, None)


@router.get("/new")
def create_form(request: Request, project: str) -> Response:
    return _form_page(request, project, dict(request.query_params), None)


@router.post("/new")
async def create(request: Request, project: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _create(request, project, fields))


@router.post("/{zone}/{name}/{verb}")
async def act(request: Request, project: str, zone: str, name: str, verb: str) -> Response:
    await form_of(request)
    return await context.in_thread(lambda: _act(request, project, zone, name, verb))


def _create(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    zone, name = fields.get("zone", ""), fields.get("name", "").strip()

    def body(uow: UnitOfWork) -> Operation:
        return queued_resources.create_or_keep_refused(
            uow, fleet, caller, project, zone, name, _spec(project, zone, name, fields)
        )

    try:
        operation = context.write(request, body)
    except PodyardError as error:
        return _form_page(request, project, fields, error)
    refusal = operation.error_message
    notice = (
        f"{name} was refused: {refusal}" if refusal else f"Queued resource {name} is requested."
    )
    return see_other_with_notice(project_url(project, "queue", "resources"), notice)


def _act(request: Request, project: str, zone: str, name: str, verb: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> None:
        if verb == "delete":
            queued_resources.delete(uow, fleet, caller, project, zone, name, force=True)
        elif verb == "reset":
            queued_resources.reset(uow, fleet, caller, project, zone, name)
        else:
            raise invalid(f"unknown action {verb!r}: use delete or reset", "verb")

    done = "is being deleted" if verb == "delete" else "waits in the queue again"
    url, notice = project_url(project, "queue", "resources"), f"Queued resource {name} {done}."
    return change(request, body, url, notice, lambda error: _list_page(request, project, error))


def _list_page(request: Request, project: str, error: PodyardError | None) -> Response:
    caller, url = context.principal(request), project_url(project, "queue", "resources")
    view = ListView(request, url, COLUMNS, "name")
    found = view.take(
        context.read(request, lambda uow: queue_lists.queued_page(uow, caller, project, view.query))
    )
    return page(
        request,
        "queued_resources.html",
        status=200 if error is None else error.code.http_status,
        section="queue",
        wide=True,
        project=project,
        view=view,
        rows=[(one, _verbs(one, caller.may, project)) for one in found],
        may_create=caller.may("tpu.queuedresources.create", project),
        url=url,
        error=error.message if error else None,
        commands=[Command("podyard", f"podyard qr list --project {project}")],
    )


def _verbs(found: QueuedResource, may: Any, project: str) -> list[str]:
    return [
        verb
        for verb in ("reset", "delete")
        if QUEUED_RESOURCE.allows(found.state, verb) and may(f"tpu.queuedresources.{verb}", project)
    ]


def _form_page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    caller.require("tpu.queuedresources.create", project, f"projects/{project}/locations/-")

    def now(uow: UnitOfWork) -> Any:
        identity.project_row(uow, project)
        return uow.now

    choice = forms.choose(fleet, fields, context.read(request, now))
    name = fields.get("name", "").strip()
    words = ["podyard", "qr", "create", name or "NAME"]
    flags = [
        ("--project", project),
        ("--zone", choice.zone),
        ("--accelerator-type", choice.accelerator_type),
    ]
    flags.append(("--runtime-version", choice.runtime_version))
    count = fields.get("count", "").strip() or "1"
    flags.append(("--node-id", name or "NAME") if count == "1" else ("--node-count", count))
    return page(
        request,
        "queued_resource_new.html",
        status=200 if error is None else error.code.http_status,
        section="queue",
        project=project,
        choice=choice,
        fields=fields,
        error=error.message if error else None,
        form_url=project_url(project, "queue", "resources", "new"),
        commands=[
            Command("podyard", line(words, flags, _SWITCHES.get(UsageClass(choice.usage), [])))
        ],
    )


def _spec(project: str, zone: str, name: str, fields: Mapping[str, str]) -> QueuedResourceSpec:
    """Return what the form asks for, as record and as the message that Google's clients would have
    sent."""
    node = forms.node_spec(fields)
    count = forms.whole(fields, "count", "Number of slices", 1)
    reservation = fields.get("reservation", "").strip()
    if reservation and node.usage_class is not UsageClass.RESERVED:
        raise invalid("a reservation is for usage class reserved", "reservation")
    reservation_name = (
        f"projects/{project}/locations/{zone}/reservations/{reservation}" if reservation else ""
    )
    message: dict[str, Any] = {
        "tpu": {
            "nodeSpec": [_node_message(f"projects/{project}/locations/{zone}", name, count, node)]
        },
        **_TIERS[node.usage_class],
    }
    if reservation_name:
        message["reservationName"] = reservation_name
    until = _nanos(fields, "until")
    if until is not None:
        message["queueingPolicy"] = {"validUntilDuration": duration_text(until)}
    names = [name] if count == 1 else [f"{name}-{index}" for index in range(count)]
    return QueuedResourceSpec(
        nodes=tuple(NodeRequest(each, node, index, count) for index, each in enumerate(names)),
        usage_class=node.usage_class,
        reservation_name=reservation_name,
        given=message,
        valid_until_seconds=None if until is None else until / 1e9,
    )


def _node_message(parent: str, name: str, count: int, node: NodeSpec) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "acceleratorType": node.accelerator_type,
        "runtimeVersion": node.runtime_version,
    }
    if node.labels:
        wire["labels"] = dict(node.labels)
    several = {"multisliceParams": {"nodeCount": count, "nodeIdPrefix": name}}
    return {"parent": parent, "node": wire, **({"nodeId": name} if count == 1 else several)}


def _nanos(fields: Mapping[str, str], name: str) -> int | None:
    """Nanoseconds of a duration; None for an empty field."""
    text = fields.get(name, "").strip()
    try:
        return parse_duration(text) if text else None
    except ValueError as error:
        raise invalid(str(error), name) from None
