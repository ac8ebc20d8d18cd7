"""One job's page: what it does, how far it is, what it costs, its curves and logs, and what one can
do with it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.contents import Contents
from podyard.base.errors import PodyardError
from podyard.control.billing import job_progress
from podyard.control.jobs import curves as job_curve_files
from podyard.control.jobs import jobs, log_reader, type_change, views
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt, committed_ranges
from podyard.domain.gang import allowed_sizes
from podyard.domain.job import JOB, Job, JobState
from podyard.domain.job_history import CheckpointRecord, EvaluationRecord
from podyard.domain.log import LogLine
from podyard.http import context, job_sources, log_text, step_time
from podyard.http.objects import ObjectFiles
from podyard.pricing.current_card import default_rate_card
from podyard.web.jobs import copies as job_copy
from podyard.web.jobs import curves as job_curves
from podyard.web.jobs.advice import advise, phase_of, phases_of
from podyard.web.jobs.timeline import signs, timeline
from podyard.web.kit import commands, forms, live
from podyard.web.kit.charts import ChartMark
from podyard.web.kit.render import (
    NOT_KEPT,
    ConsoleRoute,
    form_of,
    fragment,
    page,
    project_url,
    see_other,
)

LOG_LINES_SHOWN = 100  # of the page; more come as the job writes them
SEARCH_CHARACTERS_MAX = 200
NUMBERS_SHOWN_MAX = 40  # rows of the table under the curves
EVALUATIONS_SHOWN_MAX = 50  # the newest
CHECKPOINTS_SHOWN_MAX = 50  # the newest
JOB_PARTS = (
    "job_state",
    "job_head",
    "job_now",
    "job_charts",
    "job_rest",
)  # each changes at its own pace
FEEDS = ("points", "curves", "log")  # what grows, and is sent piece by piece

router = APIRouter(prefix="/console/{project}/jobs", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class _Log:
    """The lines of a log that are shown. Bad values show all: they come from the address."""

    worker: int | None
    search: str

    @classmethod
    def of(cls, request: Request) -> _Log:
        worker, search = (request.query_params.get(name, "") for name in ("replica", "search"))
        return cls(_rank(worker), search.strip()[:SEARCH_CHARACTERS_MAX])

    @property
    def query(self) -> dict[str, str]:
        given = {"replica": "" if self.worker is None else str(self.worker), "search": self.search}
        return {name: value for name, value in given.items() if value}

    @property
    def line_filter(self) -> LineFilter:
        return LineFilter(worker=self.worker, search=self.search)


@dataclasses.dataclass(frozen=True, slots=True)
class LogFeed:
    """The newest lines of a job's log. The cursor is a place in it (log_reader)."""

    job: Job
    lines: Sequence[LogLine]
    name: str = "log"

    def since(self, cursor: str) -> tuple[Any, str]:
        fresh = log_reader.lines_after(self.lines, cursor)
        if not fresh:
            return None, cursor
        return {
            "html": fragment("job_lines.html", job=self.job, lines=fresh)
        }, log_reader.place_after(self.lines)


@router.get("/{zone}/{job_id}")
def show(request: Request, project: str, zone: str, job_id: str) -> Response:
    return _job_page(request, project, zone, job_id)


def _job_page(
    request: Request, project: str, zone: str, job_id: str, error: PodyardError | None = None
) -> Response:
    values = context.read(request, lambda uow: _job_values(uow, request, project, zone, job_id))
    status, text = (200, None) if error is None else (error.code.http_status, error.message)
    return page(
        request,
        "job.html",
        status=status,
        section="jobs",
        **values,
        drawn=True,
        resize_url=_resize_url(request, values["job"]),
        live=_live_url(values),
        feeds=FEEDS,
        error=text,
    )


@router.get("/{zone}/{job_id}/live")
async def show_live(request: Request, project: str, zone: str, job_id: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        values = _job_values(uow, request, project, zone, job_id)
        job = values["job"]
        found = {part: fragment(f"{part}.html", **values, drawn=False) for part in JOB_PARTS}
        feeds = (
            job_curves.PointFeed(values["points"]),
            job_curves.CurveFeed(values["figures"], values["marks"], values["curve_names"]),
            LogFeed(job, values["lines"]),
        )
        return live.Parts(found, JOB.is_final(job.state), feeds)

    return await live.stream(request, project, parts, variant=urlencode(_Log.of(request).query))


@router.get("/{zone}/{job_id}/curves")
def curves(request: Request, project: str, zone: str, job_id: str) -> Response:
    """The numbers of the page's charts, finer than they are drawn."""

    def body(uow: UnitOfWork) -> Mapping[str, Any]:
        job = jobs.get(uow, context.principal(request), project, zone, job_id)
        figures, marks = figures_of(uow, request, job)
        return job_curves.numbers_of(figures, marks)

    numbers = json.dumps(context.read(request, body), separators=(",", ":")).encode()
    return Response(numbers, media_type="application/json", headers=NOT_KEPT)


@router.get("/{zone}/{job_id}/log")
def job_log(request: Request, project: str, zone: str, job_id: str) -> Response:
    return log_text.log_text(request, project, zone, job_id, _Log.of(request).line_filter)


@router.post("/{zone}/{job_id}/{verb}")
async def act(request: Request, project: str, zone: str, job_id: str, verb: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _act(request, project, zone, job_id, verb, fields))


def _act(
    request: Request, project: str, zone: str, job_id: str, verb: str, fields: Mapping[str, str]
) -> Response:
    caller = context.principal(request)
    shown = (project, zone, job_id)
    try:
        if verb == "cancel":
            context.write(request, lambda uow: jobs.cancel(uow, caller, project, zone, job_id))
        elif verb == "resize":
            count = forms.whole_if_given(fields, "replicas", "Processes")
            context.write(
                request, lambda uow: jobs.resize(uow, caller, project, zone, job_id, count)
            )
        elif verb == "again":
            shown = (project, zone, _submit_again(request, project, zone, job_id).job_id)
        else:
            return see_other(project_url(project, "jobs", zone, job_id))
    except PodyardError as error:
        return _job_page(request, project, zone, job_id, error)
    return see_other(project_url(shown[0], "jobs", *shown[1:]))


def _submit_again(request: Request, project: str, zone: str, job_id: str) -> Job:
    caller, fleet = context.principal(request), context.platform(request).fleet
    job, spec = context.read(request, lambda uow: jobs.to_clone(uow, caller, project, zone, job_id))
    node = spec if job.wants_own_node else job.node_id
    asked = job_sources.look(request, job_copy.request_of(job))
    asked = step_time.with_step_time(request, project, zone, asked, node)
    return context.write(
        request, lambda uow: jobs.create(uow, fleet, caller, project, zone, None, asked, node)
    )


def _rank(text: str) -> int | None:
    """The replica whose log is asked for; all of them (None) for anything that is not a rank."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _live_url(values: Mapping[str, Any]) -> str | None:
    """With the cursors of what the page shows. None: the job has ended, so that nothing on its page
    will change."""
    if values["over"]:
        return None
    figures = job_curves.CurveFeed(values["figures"], values["marks"], values["curve_names"])
    seen = {
        "log": log_reader.place_after(values["lines"]),
        "points": job_curves.cursor_after(values["points"]),
    }
    return (
        f"{values['job_url']}/live?"
        f"{urlencode({**values['log'].query, **seen, figures.name: figures.digest()})}"
    )


def figures_of(
    uow: UnitOfWork, request: Request, job: Job
) -> tuple[list[job_curves.Figure], list[ChartMark]]:
    """A job's curves, as fine as they are sent, and the marks in them."""
    caller, place = context.principal(request), (job.project, job.zone, job.job_id)
    history = views.curve_of_job(uow, caller, *place, job_curves.POINTS_SENT_MAX)
    tried = [attempt for attempt, _, _ in jobs.attempts(uow, caller, *place)]
    written, _ = _event_curves(uow, request, job)
    found = job_curves.figures_of(
        job, history.points, jobs.evaluations(uow, caller, *place), written
    )
    return found, job_curves.marks_of(tried, history.reached)


def _event_curves(
    uow: UnitOfWork, request: Request, job: Job
) -> tuple[dict[str, dict[int, float]], int]:
    contents = Contents(context.platform(request).settings.contents_path)
    return job_curve_files.event_curves(uow, context.principal(request), job, contents)


def _job_values(
    uow: UnitOfWork, request: Request, project: str, zone: str, job_id: str
) -> dict[str, Any]:
    """Everything that a job's page shows, from one snapshot."""
    caller, log = context.principal(request), _Log.of(request)
    place = (uow, caller, project, zone, job_id)
    job, node = jobs.to_clone(*place)
    files, objects = (
        log_text.files_of(request),
        ObjectFiles(context.platform(request).settings.objects_path),
    )
    history = views.history_of_job(
        *place, files, log.line_filter, job_curves.POINTS_DRAWN_MAX, LOG_LINES_SHOWN
    )
    sized = jobs.attempts(*place)
    tried = [attempt for attempt, _, _ in sized]
    written, too_large = _event_curves(uow, request, job)
    evaluations = jobs.evaluations(*place)
    checkpoints = jobs.checkpoints(*place)
    failure = jobs.failure(*place, files) if job.failures else None
    progress = job_progress.of(uow, default_rate_card(), caller, job)
    over = JOB.is_final(job.state)
    return {
        "project": project,
        "job": job,
        "progress": progress,
        "over": over,
        "phases": phases_of(job),
        "phase": phase_of(job, tried, history.reached),
        "advice": advise(job, failure) if job.state is JobState.FAILED else "",
        "points": history.points,
        "numbers": job_curves.thin(history.points, NUMBERS_SHOWN_MAX),
        "figures": job_curves.figures_of(job, history.points, evaluations, written),
        "marks": job_curves.marks_of(tried, history.reached),
        "event_files_left_out": too_large,
        "curve_names": job_curves.names_of(job, history.points),
        "timeline": timeline(job, tried, checkpoints, uow.now),
        "signs": signs(tried, checkpoints),
        "attempts": _attempts(sized, history.reached),
        **_checkpoints(checkpoints, job, project, zone),
        "artifacts": jobs.artifacts(*place, objects),
        "artifact_url": f"{_api_url(project, zone, job_id)}:artifact",
        **_evaluations(evaluations),
        "lines": history.last_lines,
        "lines_skipped": max(0,
            history.log_lines - len(history.last_lines)) if not log.search else 0,
        "failure": failure,
        "replicas": history.replica_ranks,
        "log": log,
        "log_query": urlencode(log.query),
        "node_links": _node_links(uow, request, job),
        "job_url": project_url(project, "jobs", zone, job_id),
        "jobs_url": project_url(project, "jobs", zone),
        "compare_url": (
            f"{project_url(project, 'compare')}?{urlencode({'job': f'{zone}/{job_id}'})}"
        ),
        "clone_url": _clone_url(job, node) if job_copy.has_form(job) else None,
        "may_submit": caller.may("podyard.jobs.create", project),
        "may_cancel": JOB.allows(job.state, "cancel") and caller.may("podyard.jobs.cancel",
            project),
        "sizes": [size.process_count for size in allowed_sizes(job.spec, job.kind)]
        if job.spec.elastic and not over and caller.may("podyard.jobs.resize", project) else [],
        "commands": commands.job_commands(project, zone, job_id),
    }  # fmt: skip


def _api_url(project: str, zone: str, job_id: str) -> str:
    return f"/podyard/v1/projects/{project}/locations/{zone}/jobs/{job_id}"


def _resize_url(request: Request, job: Job) -> str | None:
    """None for a job that keeps its type, and for callers who may not resize it."""
    may = context.principal(request).may("podyard.jobs.resize", job.project)
    if not may or type_change.keeps_type(job) is not None:
        return None
    return project_url(job.project, "jobs", job.zone, job.job_id, "type")


def _clone_url(job: Job, node: Any) -> str:
    form = "program" if job.spec.run is not None else "new"
    return f"{project_url(job.project, 'jobs', form)}?{urlencode(job_copy.form_fields(job, node))}"


def _node_links(uow: UnitOfWork, request: Request, job: Job) -> list[tuple[str, str | None]]:
    """(id, address) of the job's nodes; None: the node is gone."""
    context.principal(request).require(
        "tpu.nodes.list", job.project, f"projects/{job.project}/locations/-"
    )
    return [
        (
            node.node_id,
            project_url(job.project, "nodes", job.zone_of_node, node.node_id)
            if node.live_name
            else None,
        )
        for node in jobs.nodes_of(uow, job)
    ]


def _checkpoints(
    found: Sequence[CheckpointRecord], job: Job, project: str, zone: str
) -> dict[str, Any]:
    """Other modes start from a checkpoint; what was simulated has no parameters to take away or to
    start from."""
    start = {} if job.spec.is_modelled else {
        saved.step: f"{project_url(project, 'jobs', 'new')}?"
        + urlencode({"mode": "evaluate", "start_from": f"{job.job_id}@{saved.step}", "zone": zone})
        for saved in found[:CHECKPOINTS_SHOWN_MAX]
    }  # fmt: skip
    return {"checkpoints": found[:CHECKPOINTS_SHOWN_MAX], "start_urls": start}


def _evaluations(measured: Sequence[EvaluationRecord]) -> dict[str, Any]:
    """The newest evaluations first, and the names of all that they measure."""
    newest = measured[::-1][:EVALUATIONS_SHOWN_MAX]
    names = sorted({name for one in newest for name in one.metrics})
    return {
        "evaluations": newest,
        "measured": names,
        "evaluations_left_out": len(measured) - len(newest),
    }


def _attempts(
    sized: Sequence[tuple[Attempt, int, int]], reached: Mapping[int, int]
) -> list[tuple[Attempt, int, int, int]]:
    """Each attempt with its hosts, the steps it did and those of them that were lost: done again by
    a later attempt."""
    committed = {
        number: last for number, _, last in committed_ranges([attempt for attempt, _, _ in sized])
    }
    found = []
    for attempt, hosts, _ in sized:
        last_step = reached.get(attempt.attempt, attempt.resume_step)
        kept = committed.get(attempt.attempt, attempt.resume_step)
        found.append((attempt, hosts, last_step, 0 if kept is None else max(0, last_step - kept)))
    return found
