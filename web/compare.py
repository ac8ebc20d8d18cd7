"""Runs next to each other: what they were asked to do, what came of it, and their curves over each
other."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.durations import duration_for_people
from podyard.base.money import money_text
from podyard.control.access import identity
from podyard.control.billing import job_progress
from podyard.control.jobs import job_list, jobs
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.job_fields import JOB_FIELDS
from podyard.domain.listing import ListQuery
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.web import formats
from podyard.web.charts import ChartLine
from podyard.web.job_curves import FIGURES_MAX, LINES_MAX, Figure, numbers_of
from podyard.web.job_page import figures_of
from podyard.web.render import NOT_KEPT, ConsoleRoute, page, project_url

RUNS_MAX = 5  # next to each other: two lines of each have ten colours
CHOICES_MAX = 30  # the newest jobs, to choose from

router = APIRouter(prefix="/console/{project}/compare", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class CompareRow:
    """One value of each run, "" where a run has none."""

    label: str
    values: Sequence[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclasses.dataclass(frozen=True, slots=True)
class ComparedRun:
    label: str
    job: Job
    url: str


@router.get("")
def show(request: Request, project: str) -> Response:
    values = context.read(request, lambda uow: _values(uow, request, project))
    return page(request, "compare.html", section="jobs", **values)


@router.get("/curves")
def curves(request: Request, project: str) -> Response:
    """The numbers of the page's charts, finer than they are drawn."""

    def body(uow: UnitOfWork) -> Mapping[str, Any]:
        return numbers_of(_figures(uow, request, _runs(uow, request, project)))

    numbers = json.dumps(context.read(request, body), separators=(",", ":")).encode()
    return Response(numbers, media_type="application/json", headers=NOT_KEPT)


def _values(uow: UnitOfWork, request: Request, project: str) -> dict[str, Any]:
    caller = context.principal(request)
    identity.project_row(uow, project)
    runs = _runs(uow, request, project)
    newest = job_list.list_page(uow, caller, project, ListQuery("created", descending=True)).rows[
        :CHOICES_MAX
    ]
    picked = [(run.job.zone, run.job.job_id) for run in runs]
    others = [job for job in newest if (job.zone, job.job_id) not in picked]
    url = project_url(project, "compare")
    settings = _settings([run.job for run in runs])
    return {
        "project": project,
        "runs": runs,
        "choices": [(job, True) for job in (run.job for run in runs)]
        + [(job, False) for job in others],
        "results": _results(uow, request, project, runs),
        "different": [row for row in settings if row.differs],
        "same": [row for row in settings if not row.differs],
        "figures": _figures(uow, request, runs),
        "marks": (),
        "url": url,
        "curves_url": f"{url}/curves?{urlencode([('job', '/'.join(place)) for place in picked])}",
        "most": RUNS_MAX,
    }


def _runs(uow: UnitOfWork, request: Request, project: str) -> list[ComparedRun]:
    """The jobs that the address names, as `zone/id`."""
    caller, found = context.principal(request), []
    for text in list(dict.fromkeys(request.query_params.getlist("job")))[:RUNS_MAX]:
        zone, _, job_id = text.partition("/")
        found.append(jobs.get(uow, caller, project, zone, job_id))
    names = [job.job_id for job in found]
    return [
        ComparedRun(
            job.job_id if names.count(job.job_id) == 1 else f"{job.zone}/{job.job_id}",
            job,
            project_url(project, "jobs", job.zone, job.job_id),
        )
        for job in found
    ]


def _settings(found: Sequence[Job]) -> list[CompareRow]:
    """What the jobs were asked to do."""
    rows = [
        CompareRow("Runs", [job.spec.title for job in found]),
        CompareRow("Type", [f"{job.accelerator_type} ({job.topology})" for job in found]),
        CompareRow("Zone", [job.zone for job in found]),
    ]
    names = dict.fromkeys(name for job in found for name in job.spec.arguments)
    rows += [
        CompareRow(name, [str(job.spec.arguments.get(name, "")) for job in found]) for name in names
    ]
    for field in JOB_FIELDS:
        if field.form is not None and field.form.label and field.form.trains is not False:
            values = [field.value_of(job.spec) for job in found]
            if any(value not in (None, {}) for value in values):
                texts = ["" if value in (None, {}) else field.as_text(value) for value in values]
                rows.append(CompareRow(field.form.label, texts))
    programs = [job.spec.run for job in found]
    if any(programs):
        rows.append(
            CompareRow("Program arguments", [" ".join(run.args) if run else "" for run in programs])
        )
    return rows


def _results(
    uow: UnitOfWork, request: Request, project: str, runs: Sequence[ComparedRun]
) -> list[CompareRow]:
    caller, found = context.principal(request), [run.job for run in runs]
    progress = job_progress.of_all(uow, default_rate_card(), caller, project, found)
    measured = []
    for job in found:
        newest = jobs.evaluations(uow, caller, project, job.zone, job.job_id)[-1:]
        evaluated = {name: value for one in newest for name, value in one.metrics.items()}
        told = {
            name: value for name, value in job.latest.items() if isinstance(value, (int, float))
        }
        measured.append(
            {name: value for name, value in (evaluated | told).items() if name != "step"}
        )
    names = dict.fromkeys(name for one in measured for name in one)
    return [
        CompareRow("State", [job.state for job in found]),
        CompareRow("Steps", [_steps(job) for job in found]),
        *(
            CompareRow(n, [formats.number(one[n]) if n in one else "" for one in measured])
            for n in names
        ),
        CompareRow(
            "Wall time", [duration_for_people(progress[job.job_key].wall_seconds) for job in found]
        ),
        CompareRow("Device time (modelled)", [_device_time(job) for job in found]),
        CompareRow("Cost", [_cost(progress[job.job_key]) for job in found]),
        CompareRow("Attempts", [str(job.attempt) for job in found]),
        CompareRow("Preemptions", [str(job.preemptions) for job in found]),
    ]


def _steps(job: Job) -> str:
    """Empty for a user's program that has told none."""
    return f"{job.steps_done:,}" if job.steps_done or job.spec.run is None else ""


def _device_time(job: Job) -> str:
    """Empty for a user's program that has run no module with an estimate."""
    is_known = job.modelled_seconds or job.spec.run is None
    return duration_for_people(job.modelled_seconds) if is_known else ""


def _cost(progress: job_progress.JobProgress) -> str:
    return "" if progress.cost is None else money_text(progress.cost)


def _figures(uow: UnitOfWork, request: Request, runs: Sequence[ComparedRun]) -> list[Figure]:
    """The same measure of all runs over each other, each line named by its run."""
    lines: dict[str, list[ChartLine]] = {}
    for run in runs:
        for figure in figures_of(uow, request, run.job)[0]:
            for line in figure.lines:
                name = run.label if line.name == figure.key else f"{run.label}: {line.name}"
                lines.setdefault(figure.key, []).append(ChartLine(name, line.points))
    return [Figure(key, found[:LINES_MAX]) for key, found in list(lines.items())[:FIGURES_MAX]]
