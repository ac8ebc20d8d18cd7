"""The form that submits a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.base.money import NANOS_PER_UNIT, SECONDS_PER_HOUR
from podyard.control.jobs import jobs
from podyard.domain.job import JOB_MODES, JobRequest
from podyard.domain.job_fields import Section, inputs
from podyard.domain.recipes import RECIPES
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.http import context, step_time
from podyard.http.step_time import StepEstimate
from podyard.pricing.sku import Price
from podyard.web.jobs import form as job_form
from podyard.web.jobs.create_program import memory_text
from podyard.web.jobs.place import JobPlace, node_of, place_of
from podyard.web.kit.render import ConsoleRoute, form_of, page, project_url, see_other


@dataclasses.dataclass(frozen=True, slots=True)
class JobEstimate:
    """A job's training on the real type of its node. `price`: of the node; None: there is none.
    `why_not`: why there is no estimate."""

    kind: AcceleratorType
    steps: int
    step: StepEstimate
    price: Price | None
    why_not: str = ""

    @property
    def seconds(self) -> float:
        return self.steps * self.step.seconds

    @property
    def cost(self) -> Fraction | None:
        """US dollars of the node for so long."""
        if self.price is None:
            return None
        per_hour = Fraction(self.price.total_nanos_per_hour, NANOS_PER_UNIT)
        return Fraction(self.seconds) * per_hour / SECONDS_PER_HOUR

    @property
    def memory(self) -> str:
        return memory_text(self.step, self.kind)


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


def _estimate(asked: JobRequest, kind: AcceleratorType, price: Price | None) -> JobEstimate:
    """Return what the form's job takes. Blocks for a second where nobody has asked for it yet."""
    assert asked.recipe is not None
    steps = RECIPES[asked.recipe].default_steps if asked.steps is None else asked.steps
    arguments = {name: value for name, value in asked.arguments.items() if value != ""}
    try:
        of_types = step_time.estimates(asked.recipe, arguments, asked.global_batch, [kind.name])
    except PodyardError as error:
        return JobEstimate(kind, steps, StepEstimate(), price, error.message)
    step = of_types[kind.name]
    if asked.step_seconds is not None:
        step = dataclasses.replace(step, seconds=asked.step_seconds)
    return JobEstimate(kind, steps, step, price, step.error)


def _kind(place: JobPlace) -> AcceleratorType:
    if place.node is None:
        return kind_of(place.choice.accelerator_type, "")
    return kind_of(place.node.accelerator_type, place.node.topology)


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
        asked, doubt, lines = None, wrong, []
    estimate = None
    if asked is not None and mode == "train" and fields.get("estimate"):
        estimate = _estimate(asked, _kind(found), found.price)
    return page(
        request,
        "job_new.html",
        status=refusal.code.http_status if (refusal := error or doubt) else 200,
        section="jobs",
        project=project,
        places=found.places,
        creators=found.creators,
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
        estimate=estimate,
        can_estimate=asked is not None and mode == "train",
        form_url=project_url(project, "jobs", "new"),
    )
