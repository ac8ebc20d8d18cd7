"""The queue: what waits, why, and when it is expected to start."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.control.access import identity
from podyard.control.compute import queue_view
from podyard.db.unit_of_work import UnitOfWork
from podyard.http import context
from podyard.web.commands import Command
from podyard.web.render import ConsoleRoute, page, project_url

router = APIRouter(prefix="/console/{project}/queue", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> list[queue_view.Waiting]:
        identity.project_row(uow, project)
        return queue_view.rows(uow, fleet, caller, project, None)

    rows = [{"item": item, **_place(item, project)} for item in context.read(request, body)]
    commands = [Command("podyard", f"podyard queue list --project {project}")]
    return page(request, "queue.html", section="queue", project=project, rows=rows, commands=commands)


def _place(item: queue_view.Waiting, project: str) -> dict[str, str]:
    """Where the console shows it: queued resources have no page of their own."""
    parts = item.name.split("/")
    section = {"node": "nodes", "job": "jobs"}.get(item.kind)
    url = project_url(project, section, parts[3], parts[-1]) if section else ""
    return {"id": parts[-1], "zone": parts[3], "url": url}
