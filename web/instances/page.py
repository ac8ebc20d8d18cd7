"""The page of one instance, and what can be done to it."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base import boxes
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError, not_found
from podyard.base.money import Amount
from podyard.control.compute import hosts
from podyard.control.compute.instances import life, views
from podyard.db.compute import hosts as host_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host_record import HostRecord
from podyard.domain.instances.instance import Instance, status_of
from podyard.domain.node import NodeState
from podyard.domain.usage import UsageRecord
from podyard.hardware.topology import NO_TOPOLOGY
from podyard.http import context
from podyard.pricing.amounts import total
from podyard.web.instances import commands
from podyard.web.instances.actions import ACTIONS, BY_VERB
from podyard.web.instances.rows import rows_of
from podyard.web.kit import live
from podyard.web.kit.render import (
    ConsoleRoute,
    error_page,
    form_of,
    fragment,
    page,
    project_url,
    see_other,
)
from podyard.web.nodes.nodes import HOST_WORDS
from podyard.web.nodes.slice_picture import slice_picture

# templates that change each at their own pace
PARTS = ("head", "cost", "serial", "rest", "history")
RECORDS_SHOWN_MAX = 50  # of usage: stopped and started as often, the newest first
# Of state changes, whose states are those of the row that an instance is a host of.
STATUSES = {state.value: status_of(state, has_hosts=False, queues=False) for state in NodeState}
SERIAL = "compute.instances.getSerialPortOutput"

router = APIRouter(prefix="/console/{project}/instances", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class UsageLine:
    """A usage record in times and money; `end`: the second after its last."""

    start: PlatformTime
    end: PlatformTime
    record: UsageRecord
    amount: Amount


@dataclasses.dataclass(frozen=True, slots=True)
class SliceMember:
    """An instance of a slice, with its host; None: it has none."""

    instance: Instance
    host: HostRecord | None

    @property
    def state(self) -> str:
        """The state of its host, in words."""
        if self.host is None:
            return "–"
        return HOST_WORDS.get(self.host.state, self.host.state.capitalize())


@router.get("/{zone}/{instance}")
def show(request: Request, project: str, zone: str, instance: str) -> Response:
    values = context.read(request, lambda uow: _values(uow, request, project, zone, instance))
    url = project_url(project, "instances", zone, instance)
    return page(request, "instances/page.html", section="instances", **values, live=f"{url}/live")


@router.get("/{zone}/{instance}/live")
async def show_live(request: Request, project: str, zone: str, instance: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        try:
            values = _values(uow, request, project, zone, instance)
        except PodyardError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            url = project_url(project, "instances")
            gone = fragment("gone.html", text=f"Instance {instance} is gone.", url=url)
            return live.Parts({**dict.fromkeys(map(_part, PARTS), ""), _part("head"): gone}, True)
        return live.Parts(
            {_part(one): fragment(f"instances/{one}.html", **values) for one in PARTS}
        )

    return await live.stream(request, project, parts)


def _part(name: str) -> str:
    """The name of a part in the page."""
    return f"instance-{name}"


@router.post("/{zone}/{instance}/{verb}")
async def act(request: Request, project: str, zone: str, instance: str, verb: str) -> Response:
    await form_of(request)
    return await context.in_thread(lambda: _act(request, project, zone, instance, verb))


def _act(request: Request, project: str, zone: str, name: str, verb: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    action = BY_VERB.get(verb)
    if action is None:
        raise not_found(request.url.path)
    try:
        context.write(request, lambda uow: action.act(uow, fleet, caller, project, zone, name))
    except PodyardError as error:
        return _refusal(request, project, zone, name, error)
    place = () if verb == "delete" else (zone, name)
    return see_other(project_url(project, "instances", *place))


def _refusal(request: Request, project: str, zone: str, name: str, error: PodyardError) -> Response:
    """The instance's page with the reason on top; without an instance, the reason alone."""
    status = error.code.http_status
    try:
        values = context.read(request, lambda uow: _values(uow, request, project, zone, name))
    except PodyardError:
        return error_page(request, status, "That did not work", error.message)
    return page(
        request,
        "instances/page.html",
        status=status,
        section="instances",
        **values,
        error=error.message,
        live=None,
    )


def _values(
    uow: UnitOfWork, request: Request, project: str, zone: str, name: str
) -> dict[str, Any]:
    """Everything that an instance's page shows, from one snapshot."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    details = views.details(uow, caller, project, zone, name)
    instance = details.instance
    (row,) = rows_of(uow, caller, project, [instance])
    node = instance.node
    by_index = {host.host_index: host for host in host_rows.of_node(uow, node.node_key)}
    own = by_index.get(instance.row.host_index)
    records = row.usage.records if row.usage else ()
    return {
        "project": project,
        "row": row,
        "one": instance,
        "node": node,
        "machine": row.spec.machine,
        "topology": "" if node.topology == NO_TOPOLOGY else node.topology,
        "members": [SliceMember(one, by_index.get(one.row.host_index)) for one in details.members],
        "host": SliceMember(instance, own),
        "boxed": (boxes.BOXED, boxes.BOXED_WITHOUT_ROOT),
        "details": details,
        "programs": hosts.programs(uow, node.node_key),
        "picture": slice_picture(uow, fleet, node.node_key, node.node_id),
        "usage_lines": [_line(record) for record in records[: -RECORDS_SHOWN_MAX - 1 : -1]],
        "usage_lines_more": max(0, len(records) - RECORDS_SHOWN_MAX),
        "actions": [action for action in ACTIONS if action.is_open(instance, caller)],
        "dialogs": ACTIONS,
        "sees_serial": caller.may(SERIAL, project),
        "serial": _serial(uow, request, project, zone, name),
        "has_external_ip": row.spec.interfaces[0].has_external_ip,
        "connect": commands.connect_commands(instance),
        "statuses": STATUSES,
        "commands": commands.instance_commands(project, zone, name),
    }


def _serial(uow: UnitOfWork, request: Request, project: str, zone: str, name: str) -> list[str]:
    """Lines of its console; none for who may not read it."""
    caller = context.principal(request)
    if not caller.may(SERIAL, project):
        return []
    prefix = f"{name} "
    text = life.serial_output(uow, caller, project, zone, name)
    return [line.removeprefix(prefix) for line in text.splitlines()]


def _line(record: UsageRecord) -> UsageLine:
    start = record.start_second * NANOS_PER_SECOND
    end = start + record.seconds * NANOS_PER_SECOND
    return UsageLine(PlatformTime(start), PlatformTime(end), record, total([record]))
