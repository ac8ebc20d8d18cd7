"""The list of jobs: filtered, sorted and cut by the server; cancellation of the selected ones."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.control.billing import job_progress
from podyard.control.jobs import job_list, jobs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.web.kit import live
from podyard.web.kit.lists import ListColumn, ListView, selection_of
from podyard.web.kit.render import ConsoleRoute, fragment, page, project_url
from podyard.web.kit.selection import Bulk, act_on_selected

COLUMNS = (
    ListColumn("name", "Job"),
    ListColumn("state", "State"),
    ListColumn("steps", "Steps", is_number=True),
    ListColumn("recipe", "Recipe", sorts=False),
    ListColumn("zone", "Zone", usual=False),
    ListColumn("node", "Node"),
    ListColumn("type", "Type"),
    ListColumn("accuracy", "Accuracy", sorts=False, is_number=True),
    ListColumn("time", "Wall time", is_number=True),
    ListColumn("left", "Time left", sorts=False, is_number=True),
    ListColumn("cost", "Cost", sorts=False, is_number=True),
    ListColumn("attempt", "Attempt", is_number=True, usual=False),
    ListColumn("created", "Created", is_number=True),
    ListColumn("by", "By", usual=False),
    ListColumn("labels", "Labels", sorts=False, usual=False),
)

router = APIRouter(prefix="/console/{project}/jobs", route_class=ConsoleRoute)


@router.get("")
def show_list(request: Request, project: str) -> Response:
    values = context.read(request, lambda uow: _values(uow, request, project))
    return page(request, "jobs.html", section="jobs", wide=True, live=values["view"].live, **values)


@router.get("/live")
async def show_live(request: Request, project: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        return live.Parts({"jobs": fragment("jobs_part.html", **_values(uow, request, project))})

    return await live.stream(request, project, parts, variant=str(request.query_params))


@router.post("/actions")
async def act(request: Request, project: str) -> Response:
    fields, picked = await selection_of(request)
    caller = context.principal(request)

    def cancel(zone: str, job_id: str) -> None:
        context.write(request, lambda uow: jobs.cancel(uow, caller, project, zone, job_id))

    text = "They stop as soon as their processes have ended. What they have saved stays."
    verbs = {"cancel": Bulk("Cancel", "job", text, "cancelled", cancel)}
    url = project_url(project, "jobs")
    return await context.in_thread(
        lambda: act_on_selected(request, project, url, fields, picked, verbs)
    )


def _values(uow: UnitOfWork, request: Request, project: str) -> dict[str, Any]:
    caller = context.principal(request)
    view = ListView(request, project_url(project, "jobs"), COLUMNS, "-created")
    found = job_list.list_page(uow, caller, project, view.query)
    view.before, view.after = found.before, found.after
    view.offer(job_list.list_facets(uow, caller, project))
    return {
        "project": project,
        "view": view,
        "rows": found.rows,
        "now": uow.now,
        "progress": job_progress.of_all(uow, default_rate_card(), caller, project, found.rows),
        "verbs": [("cancel", "Cancel")] if caller.may("podyard.jobs.cancel", project) else [],
    }
