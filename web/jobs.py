"""Pages of jobs: the list, one job, the form that submits one, and its cancellation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from podyard.base.contents import Contents
from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.control.billing import job_progress
from podyard.control.compute import nodes
from podyard.control.jobs import curves as job_curves
from podyard.control.jobs import jobs, views
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt, committed_ranges
from podyard.domain.job import JOB, JOB_MODES, Job
from podyard.domain.job_fields import Section, inputs
from podyard.domain.job_history import EvaluationRecord, MetricPoint
from podyard.domain.principal import Principal
from podyard.domain.recipes import RECIPES, is_program
from podyard.http import context, log_text, step_time
from podyard.pricing.current_card import default_rate_card
from podyard.web import charts, commands, job_form, live
from podyard.web.job_place import node_of, place_of
from podyard.web.render import ConsoleRoute, form_of, fragment, page, project_url, see_other

JOBS_SHOWN_MAX = 200
CHART_POINTS_MAX = 400  # more than the chart is wide in pixels on a phone
LOG_LINES_SHOWN = 300
EVALUATIONS_SHOWN_MAX = 50  # the newest
USUAL_CURVES = ("loss", "accuracy")  # of recipes
CURVES_SHOWN_MAX = 12
JOB_PARTS = ("job_head", "job_curve", "job_rest", "job_logs")  # templates that change each at their own pace

router = APIRouter(prefix="/console/{project}/jobs", route_class=ConsoleRoute)


@router.get("")
def job_list(request: Request, project: str) -> Response:
    values = context.read(request, lambda uow: _list_values(uow, context.principal(request), project))
    return page(request, "jobs.html", section="jobs", live=project_url(project, "jobs", "live"), **values)


@router.get("/live")
async def job_list_live(request: Request, project: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        values = _list_values(uow, context.principal(request), project)
        return {"jobs": fragment("jobs_part.html", **values)}, False

    return await live.stream(request, project, parts)


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
        job = context.write(request, lambda uow: jobs.create(uow, fleet, caller, project, zone, job_id, asked, node))
    except PodyardError as error:
        return _form_page(request, project, fields, error)
    return see_other(project_url(project, "jobs", job.zone, job.job_id))


def _form_page(request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None) -> Response:
    context.principal(request).require("podyard.jobs.create", project, f"projects/{project}/locations/-/jobs")
    found = place_of(request, project, fields)
    recipe, mode = RECIPES.get(fields.get("recipe", "")) or next(iter(RECIPES.values())), fields.get("mode") or "train"
    shown = {**found.fields, "recipe": recipe.name, "node": found.place}
    try:
        asked, (zone, target) = job_form.job_request(shown), node_of(shown)
        lines = job_form.submit_commands(project, zone, fields.get("job_id", "").strip(), asked, target)
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


@router.get("/{zone}/{job_id}")
def show(request: Request, project: str, zone: str, job_id: str, replica: str = "") -> Response:
    values = context.read(request, lambda uow: _job_values(uow, request, project, zone, job_id, _rank(replica)))
    return page(request, "job.html", section="jobs", **values, live=_live_url(values["job"], _rank(replica)))


@router.get("/{zone}/{job_id}/live")
async def show_live(request: Request, project: str, zone: str, job_id: str, replica: str = "") -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        values = _job_values(uow, request, project, zone, job_id, _rank(replica))
        found = {part: fragment(f"{part}.html", **values) for part in JOB_PARTS}
        return found, JOB.is_final(values["job"].state)

    return await live.stream(request, project, parts, variant=str(_rank(replica)))


@router.post("/{zone}/{job_id}/cancel")
async def cancel(request: Request, project: str, zone: str, job_id: str) -> Response:
    await form_of(request)
    return await context.in_thread(lambda: _cancel(request, project, zone, job_id))


def _cancel(request: Request, project: str, zone: str, job_id: str) -> Response:
    caller = context.principal(request)
    try:
        context.write(request, lambda uow: jobs.cancel(uow, caller, project, zone, job_id))
    except PodyardError as error:
        values = context.read(request, lambda uow: _job_values(uow, request, project, zone, job_id, None))
        status = error.code.http_status
        return page(request, "job.html", status=status, section="jobs", **values, error=error.message)
    return see_other(project_url(project, "jobs", zone, job_id))


@router.get("/{zone}/{job_id}/log")
def job_log(request: Request, project: str, zone: str, job_id: str) -> Response:
    chosen = LineFilter(worker=_rank(request.query_params.get("replica", "")))
    return log_text.log_text(request, project, zone, job_id, chosen)


def _rank(text: str) -> int | None:
    """The replica whose log is asked for; all of them (None) for anything that is not a rank."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _live_url(job: Job, replica: int | None) -> str | None:
    """None: the job has ended, so that nothing on its page will change."""
    if JOB.is_final(job.state):
        return None
    url = project_url(job.project, "jobs", job.zone, job.job_id, "live")
    return url if replica is None else f"{url}?replica={replica}"


def _list_values(uow: UnitOfWork, caller: Principal, project: str) -> dict[str, Any]:
    identity.project_row(uow, project)
    found = jobs.list_jobs(uow, caller, project, None)
    shown = found[:JOBS_SHOWN_MAX]
    return {
        "project": project,
        "jobs": shown,
        "progress": job_progress.of_all(uow, default_rate_card(), caller, project, shown),
        "left_out": max(0, len(found) - JOBS_SHOWN_MAX),
    }


def _job_values(
    uow: UnitOfWork, request: Request, project: str, zone: str, job_id: str, replica: int | None
) -> dict[str, Any]:
    """Everything that a job's page shows, from one snapshot."""
    caller = context.principal(request)
    job = jobs.get(uow, caller, project, zone, job_id)
    files, chosen = log_text.files_of(request), LineFilter(worker=replica)
    history = views.history_of_job(uow, caller, project, zone, job_id, files, chosen, CHART_POINTS_MAX, LOG_LINES_SHOWN)
    lines = history.last_lines
    live_node = next(
        (n for n in nodes.list_nodes(uow, context.platform(request).fleet, caller, project, job.zone_of_node)
         if n.node_key == job.node_key), None
    )  # fmt: skip
    contents = Contents(context.platform(request).settings.contents_path)
    written, too_large = job_curves.event_curves(uow, caller, job, contents)
    curves = _curves(job, history.points)
    drawn = {**curves, **{name: _thin(values) for name, values in list(written.items())[:CURVES_SHOWN_MAX]}}
    return {
        "project": project,
        "job": job,
        "progress": job_progress.of(uow, default_rate_card(), caller, job),
        "over": JOB.is_final(job.state),
        "points": history.points,
        "curves": [(name, _chart(name, points)) for name, points in drawn.items()],
        "event_files_left_out": too_large,
        "curve_names": list(curves),
        "attempts": _attempts(jobs.attempts(uow, caller, project, zone, job_id), history.reached),
        "checkpoints": jobs.checkpoints(uow, caller, project, zone, job_id),
        **_evaluations(jobs.evaluations(uow, caller, project, zone, job_id)),
        "lines": lines,
        "lines_skipped": max(0, history.log_lines - len(lines)),
        "failure": jobs.failure(uow, caller, project, zone, job_id, files) if job.failures else None,
        "replicas": history.replica_ranks,
        "replica": replica,
        "node_url": project_url(project, "nodes", job.zone_of_node, job.node_id) if live_node else None,
        "job_url": project_url(project, "jobs", zone, job_id),
        "jobs_url": project_url(project, "jobs", zone),
        "may_cancel": JOB.allows(job.state, "cancel") and caller.may("podyard.jobs.cancel", project),
        "commands": commands.job_commands(project, zone, job_id),
    }


def _curves(job: Job, points: Sequence[MetricPoint]) -> dict[str, list[charts.ChartPoint]]:
    """What the job measures, by name: what recipes measure first. Without any points, a recipe shows where they will
    be."""
    usual = () if job.spec.run or job.spec.is_modelled or is_program(job.spec.recipe) else USUAL_CURVES
    found: dict[str, list[charts.ChartPoint]] = {name: [] for name in usual}
    for point in points:
        for name, value in point.metrics.items():
            if name in found or len(found) < CURVES_SHOWN_MAX:
                found.setdefault(name, []).append(charts.ChartPoint(point.step, value))
    return found


def _thin(values: Mapping[int, float]) -> list[charts.ChartPoint]:
    points = [charts.ChartPoint(step, values[step]) for step in sorted(values)]
    stride = max(1, -(-len(points) // CHART_POINTS_MAX))
    return points[::stride] + (points[-1:] if (len(points) - 1) % stride else [])


def _chart(name: str, points: Sequence[charts.ChartPoint]) -> Markup:
    return charts.line_chart(
        f"{name.capitalize()} by step",
        [charts.ChartLine(name, points)],
        x_name="step",
        y_name=f"{name.capitalize()} of the committed history",
        y_top=1.0 if name == "accuracy" else None,
    )


def _evaluations(measured: list[EvaluationRecord]) -> dict[str, Any]:
    """The newest evaluations first, and the names of all that they measure."""
    newest = measured[::-1][:EVALUATIONS_SHOWN_MAX]
    names = sorted({name for one in newest for name in one.metrics})
    return {"evaluations": newest, "measured": names, "evaluations_left_out": len(measured) - len(newest)}


def _attempts(
    sized: Sequence[tuple[Attempt, int, int]], reached: Mapping[int, int]
) -> list[tuple[Attempt, int, int, int]]:
    """Each attempt with its hosts, the steps it did and those of them that were lost: done again by a later attempt."""
    committed = {number: last for number, _, last in committed_ranges([attempt for attempt, _, _ in sized])}
    found = []
    for attempt, hosts, _ in sized:
        last_step = reached.get(attempt.attempt, attempt.resume_step)
        kept = committed.get(attempt.attempt, attempt.resume_step)
        found.append((attempt, hosts, last_step, 0 if kept is None else max(0, last_step - kept)))
    return found
