"""Managed groups: the list, and one with its instances, its size and the state of its slice."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import Code, PodyardError, not_found
from podyard.control.compute.instances import groups, views
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.instances.group import GroupRow, ManagedGroup
from podyard.domain.listing import Facet, RowPage
from podyard.domain.principal import Principal
from podyard.http import context
from podyard.web.instances import commands
from podyard.web.instances.rows import ListedInstance, rows_of
from podyard.web.kit import forms, live
from podyard.web.kit.lists import ListColumn, ListView
from podyard.web.kit.places import resource_url
from podyard.web.kit.render import (
    ConsoleRoute,
    error_page,
    form_of,
    fragment,
    page,
    project_url,
    see_other_with_notice,
)

COLUMNS = (
    ListColumn("name", "Group"),
    ListColumn("state", "State", sorts=False),
    ListColumn("zone", "Zone or region"),
    ListColumn("template", "Template", sorts=False),
    ListColumn("topology", "Topology", sorts=False),
    ListColumn("running", "Running", sorts=False, is_number=True),
    ListColumn("size", "Target size", is_number=True),
    ListColumn("created", "Age", is_number=True),
    ListColumn("by", "By", usual=False),
)
PARTS = ("group_head", "group_rest")

router = APIRouter(prefix="/console/{project}/instance-groups", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class ListedGroup:
    group: ManagedGroup

    @property
    def url(self) -> str:
        return resource_url(self.group.row.path)

    @property
    def template(self) -> str:
        return self.group.row.spec.template.rpartition("/")[2]

    @property
    def running(self) -> int:
        return sum(one.status == "RUNNING" for one in self.group.instances)

    @property
    def state(self) -> str:
        """Of its slice, if it is one; else whether all of its instances run."""
        if self.group.row.spec.topology and self.group.row.target_size:
            return self.group.topology_state
        return "STABLE" if self.group.is_stable else "UPDATING"


@router.get("")
def show_list(request: Request, project: str) -> Response:
    caller = context.principal(request)
    view = ListView(request, project_url(project, "instance-groups"), COLUMNS, "name")

    def body(uow: UnitOfWork) -> tuple[tuple[RowPage[ManagedGroup], list[Facet]], Any]:
        rows = views.group_page(uow, caller, project, view.query)
        return (rows, views.group_facets(uow, caller, project)), uow.now

    rows, now = context.read(request, body)
    return page(
        request,
        "instances/groups.html",
        section="instances",
        wide=True,
        project=project,
        view=view,
        rows=[ListedGroup(group) for group in view.take(rows)],
        now=now,
    )


@router.get("/{place}/{name}")
def show(request: Request, project: str, place: str, name: str) -> Response:
    return _page(request, project, place, name, None)


@router.get("/{place}/{name}/live")
async def show_live(request: Request, project: str, place: str, name: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        try:
            values = _values(uow, request, project, place, name)
        except PodyardError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            url = project_url(project, "instance-groups")
            gone = fragment("gone.html", text=f"Group {name} is gone.", url=url)
            return live.Parts({PARTS[0]: gone, PARTS[1]: ""}, over=True)
        return live.Parts({one: fragment(f"instances/{one}.html", **values) for one in PARTS})

    return await live.stream(request, project, parts)


@router.post("/{place}/{name}/{verb}")
async def act(request: Request, project: str, place: str, name: str, verb: str) -> Response:
    fields = await form_of(request)
    size = fields.get("size", "")
    return await context.in_thread(lambda: _act(request, project, (place, name), verb, size))


def _act(request: Request, project: str, of: tuple[str, str], verb: str, size: str) -> Response:
    """`of`: zone or region, and name."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    place, name = of

    def body(uow: UnitOfWork) -> None:
        if verb == "delete":
            groups.delete(uow, fleet, caller, project, place, name)
        elif verb == "resize":
            wanted = forms.whole({"size": size}, "size", "Target size", 0)
            groups.resize(uow, fleet, caller, project, place, name, wanted)
        else:
            raise not_found(request.url.path)

    try:
        context.write(request, body)
    except PodyardError as error:
        return _page(request, project, place, name, error)
    if verb == "delete":
        url = project_url(project, "instance-groups")
        return see_other_with_notice(url, f"Group {name} and its instances are being deleted.")
    url = project_url(project, "instance-groups", place, name)
    return see_other_with_notice(url, f"The target size of {name} is {size.strip() or 0}.")


def _page(
    request: Request, project: str, place: str, name: str, error: PodyardError | None
) -> Response:
    """The group's page, with the reason of a refusal on top; without a group, the reason alone."""
    try:
        values = context.read(request, lambda uow: _values(uow, request, project, place, name))
    except PodyardError:
        if error is None:
            raise
        return error_page(request, error.code.http_status, "That did not work", error.message)
    url = project_url(project, "instance-groups", place, name)
    return page(
        request,
        "instances/group.html",
        status=200 if error is None else error.code.http_status,
        section="instances",
        **values,
        error=error.message if error else None,
        live=f"{url}/live" if error is None else None,
    )


def _values(
    uow: UnitOfWork, request: Request, project: str, place: str, name: str
) -> dict[str, Any]:
    caller = context.principal(request)
    group = groups.get(uow, caller, project, place, name)
    row, hosts = group.row, views.full_size(uow, caller, group)
    may_change = caller.may("compute.instanceGroupManagers.update", project)
    return {
        "project": project,
        "item": ListedGroup(group),
        "row": row,
        "group": group,
        "hosts": hosts,
        "instances": _instances(uow, caller, group),
        "errors": groups.list_errors(uow, caller, project, place, name),
        "other_size": _other_size(row, hosts),
        "may_resize": may_change,
        "may_delete": caller.may("compute.instanceGroupManagers.delete", project),
        "commands": commands.group_commands(row, _other_size(row, hosts)),
    }


def _instances(uow: UnitOfWork, caller: Principal, group: ManagedGroup) -> list[ListedInstance]:
    """None for who may not list instances."""
    project = group.row.project
    if not caller.may("compute.instances.list", project):
        return []
    return rows_of(uow, caller, project, group.instances)


def _other_size(row: GroupRow, hosts: int) -> int:
    """The size that it is most likely resized to: nothing, and back to the whole slice."""
    return 0 if row.target_size else hosts
