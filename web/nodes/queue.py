"""The queue: what waits, why, and when it is expected to start."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.control.compute import queue_lists, queue_view
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.listing import Facet, RowPage
from podyard.http import context
from podyard.web.kit.commands import Command
from podyard.web.kit.lists import ListColumn, ListView
from podyard.web.kit.places import resource_url
from podyard.web.kit.render import ConsoleRoute, page, project_url

router = APIRouter(prefix="/console/{project}/queue", route_class=ConsoleRoute)


COLUMNS = (
    ListColumn("name", "Name"),
    ListColumn("position", "Position", is_number=True),
    ListColumn("kind", "Kind"),
    ListColumn("zone", "Zone"),
    ListColumn("type", "Type"),
    ListColumn("priority", "Priority", is_number=True),
    ListColumn("since", "Since"),
    ListColumn("start", "Expected start", sorts=False),
    ListColumn("reason", "Why it waits", sorts=False),
)


@router.get("")
def show(request: Request, project: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    view = ListView(request, project_url(project, "queue"), COLUMNS, "position")

    def body(uow: UnitOfWork) -> tuple[RowPage[queue_view.Waiting], list[Facet]]:
        return queue_lists.waiting_page(uow, fleet, caller, project, view.query)

    rows = [{"item": item, **_place(item)} for item in view.take(context.read(request, body))]
    commands = [Command("podyard", f"podyard queue list --project {project}")]
    return page(
        request,
        "queue.html",
        section="queue",
        wide=True,
        project=project,
        view=view,
        rows=rows,
        commands=commands,
    )


def _place(item: queue_view.Waiting) -> dict[str, str]:
    """Return where the console shows it: queued resources have no page of their own."""
    parts = item.name.split("/")
    return {"id": parts[-1], "zone": parts[3], "url": resource_url(item.name)}
