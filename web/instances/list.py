"""The list of instances: filtered, sorted and cut by the server; actions on the selected ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.control.billing.dashboard import node_costs
from podyard.control.billing.snapshots import snapshot
from podyard.control.compute.instances import views
from podyard.control.compute.node_list import COST
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.web.billing.common import read_again
from podyard.web.instances.actions import ACTIONS, InstanceAction
from podyard.web.instances.rows import rows_of
from podyard.web.kit import live
from podyard.web.kit.lists import ListColumn, ListView, selection_of
from podyard.web.kit.render import ConsoleRoute, fragment, page, project_url
from podyard.web.kit.selection import Bulk, act_on_selected

COLUMNS = (
    ListColumn("name", "Instance"),
    ListColumn("state", "Status"),
    ListColumn("zone", "Zone"),
    ListColumn("type", "Machine type"),
    ListColumn("chips", "Chips", sorts=False, is_number=True),
    ListColumn("model", "Provisioning"),
    ListColumn("ip", "Internal IP", sorts=False),
    ListColumn("group", "Group"),
    ListColumn("price", "Per hour", is_number=True),
    ListColumn("cost", "Cost so far", is_number=True),
    ListColumn("external", "External IP", sorts=False, usual=False),
    ListColumn("created", "Age", is_number=True, usual=False),
    ListColumn("by", "By", usual=False),
    ListColumn("labels", "Labels", sorts=False, usual=False),
)

router = APIRouter(prefix="/console/{project}/instances", route_class=ConsoleRoute)


@router.get("")
def show_list(request: Request, project: str) -> Response:
    values = read_again(request, lambda uow: _values(uow, request, project))
    return page(request, "instances/list.html", section="instances", wide=True, **values)


@router.get("/live")
async def show_live(request: Request, project: str) -> Response:
    return await live.stream_list(
        request,
        project,
        "instances",
        lambda uow: fragment("instances/rows.html", **_values(uow, request, project)),
    )


@router.post("/actions")
async def act(request: Request, project: str) -> Response:
    fields, picked = await selection_of(request)
    caller, fleet = context.principal(request), context.platform(request).fleet

    def act_by(action: InstanceAction) -> Callable[[str, str], object]:
        def body(zone: str, name: str) -> None:
            context.write(request, lambda uow: action.act(uow, fleet, caller, project, zone, name))

        return body

    verbs = {
        action.verb: Bulk(
            action.label, "instance", action.bulk_text, action.under_way, act_by(action)
        )
        for action in ACTIONS
        if action.bulk_text
    }
    url = project_url(project, "instances")
    return await context.in_thread(
        lambda: act_on_selected(request, project, url, fields, picked, verbs)
    )


def _values(uow: UnitOfWork, request: Request, project: str) -> dict[str, Any]:
    caller = context.principal(request)
    view = ListView(request, project_url(project, "instances"), COLUMNS, "name")
    costs: Mapping[str, int] = {}
    if view.query.sort == COST and caller.may("podyard.billing.view", project):
        costs = node_costs(snapshot(uow, default_rate_card(), caller, project))
    rows = views.list_page(uow, caller, project, view.query, costs)
    instances = view.take((rows, views.list_facets(uow, caller, project)))
    return {
        "project": project,
        "view": view,
        "live": view.live,
        "rows": rows_of(uow, caller, project, instances),
        "now": uow.now,
        "may_create": caller.may("compute.instances.create", project),
        "verbs": [
            (action.verb, action.label)
            for action in ACTIONS
            if action.bulk_text and caller.may(action.permission, project)
        ],
    }
