"""The form that submits a job."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.control.jobs import jobs
from podyard.domain.job import JOB_MODES
from podyard.domain.job_fields import Section, inputs
from podyard.domain.recipes import RECIPES
from podyard.http import context, step_time
from podyard.web import job_form
from podyard.web.job_place import node_of, place_of
from podyard.web.render import ConsoleRoute, form_of, page, project_url, see_other

router = APIRouter(prefix="/console/{project}/jobs", route_class=ConsoleRoute)


@router.get("/new")
def submit_form(request: Request, project: str) -> Response:
    return _form_page(request, project, dict(request.query_params), None)


@router.post("/new")
async def submit(request: Request, project: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _submit(request, project, fields))


def _submit(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    try:
        asked = job_form.job_request(fields)
        zone, node = node_of(fields)
        job_id = fields.get("job_id", "").strip() or None
        asked = step_time.with_step_time(request, project, zone, asked, node)
        job = context.write(
            request, lambda uow: jobs.create(uow, fleet, caller, project, zone, job_id, asked, node)
        )
    except PodyardError as error:
        return _form_page(request, project, fields, error)
    return see_other(project_url(project, "jobs", job.zone, job.job_id))


def _form_page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    context.principal(request).require(
        "podyard.jobs.create", project, f"projects/{project}/locations/-/jobs"
    )
    found = place_of(request, project, fields)
    recipe, mode = (
        RECIPES.get(fields.get("recipe", "")) or next(iter(RECIPES.values())),
        fields.get("mode") or "train",
    )
    shown = {**found.fields, "recipe": recipe.name, "node": found.place}
    try:
        asked, (zone, target) = job_form.job_request(shown), node_of(shown)
        lines = job_form.submit_commands(
            project, zone, fields.get("job_id", "").strip(), asked, target
        )
        doubt = None
    except PodyardError as wrong:
        doubt, lines = wrong, []
    return page(
        request,
        "job_new.html",
        status=refusal.code.http_status if (refusal := error or doubt) else 200,
        section="jobs",
        project=project,
        places=found.places,
        more_places=found.more,
        place=found.place,
        node=found.node,
        choice=found.choice,
        recipes=list(RECIPES),
        recipe=recipe,
        modes=JOB_MODES,
        mode=mode,
        fields=fields,
        inputs={section: inputs(section, mode) for section in job_form.INPUTS},
        more_open=any(fields.get(field.name) for field, _ in inputs(Section.MORE, mode)),
        error=error.message if error else None,
        doubt=doubt.message if doubt and not error else None,
        price=found.price,
        no_price=found.no_price,
        commands=lines,
        form_url=project_url(project, "jobs", "new"),
    )
