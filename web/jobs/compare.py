"""Runs next to each other: what they were asked to do, what came of it, and their curves over each
other."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.durations import duration_for_people
from podyard.base.money import money_text
from podyard.control.access import identity
from podyard.control.billing import job_progress
from podyard.control.jobs import job_list, jobs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.job_fields import JOB_FIELDS
from podyard.domain.listing import ListQuery
from podyard.domain.training import MORE_IS_BETTER, usual_way
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.web.jobs.curves import FIGURES_MAX, LINES_MAX, Figure, numbers_of
from podyard.web.jobs.page import figures_of
from podyard.web.kit import formats
from podyard.web.kit.charts import ChartLine
from podyard.web.kit.render import NOT_KEPT, ConsoleRoute, page, project_url

RUNS_MAX = 5  # next to each other: two lines of each have ten colours
CHOICES_MAX = 30  # the newest jobs, to choose from

NO_TIME = "0s"  # of a limit or a wait: there is none
_LOSSES = ("loss", "error", "perplexity")  # less of these is better
ONLY = "only"  # of the address: rows that differ, and no others

N = TypeVar("N")
router = APIRouter(prefix="/console/{project}/compare", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class CompareRow:
    """One value of each run, "" where a run has none. `best`: indexes of the runs with the best
    value, where it is known which is better and the runs differ."""

    label: str
    values: Sequence[str]
    best: frozenset[int] = frozenset()

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
    only = ONLY in request.query_params
    chosen = [("job", "/".join(place)) for place in picked]
    return {
        "project": project,
        "runs": runs,
        "choices": [(job, True) for job in (run.job for run in runs)]
        + [(job, False) for job in others],
        "results": _results(uow, request, project, runs),
        "settings": settings,
        "only": only,
        "toggle_url": f"{url}?{urlencode([*chosen, *([] if only else [(ONLY, '1')])])}",
        "figures": _figures(uow, request, runs),
        "marks": (),
        "url": url,
        "curves_url": f"{url}/curves?{urlencode(chosen)}",
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
    """Return what the jobs were asked to do."""
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
                texts = ["" if text == NO_TIME else text for text in texts]
                unit = f" ({field.form.unit})" if field.form.unit else ""
                rows.append(CompareRow(field.form.label + unit, texts))
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
            CompareRow(
                _metric_label(n),
                [formats.number(one[n]) if n in one else "" for one in measured],
                _best([one.get(n) for one in measured], _way(n)),
            )
            for n in names
        ),
        _least(
            "Wall time", [progress[job.job_key].wall_seconds for job in found], duration_for_people
        ),
        CompareRow("Device time (modelled)", [_device_time(job) for job in found]),
        _least("Cost", [progress[job.job_key].cost for job in found], money_text),
        CompareRow("Attempts", [str(job.attempt) for job in found]),
        CompareRow("Preemptions", [str(job.preemptions) for job in found]),
    ]


def _least(label: str, values: Sequence[N | None], show: Callable[[N], str]) -> CompareRow:
    """Return the row of a figure of which less is better."""
    texts = ["" if value is None else show(value) for value in values]
    return CompareRow(label, texts, _best(values, "min"))


def _best(values: Sequence[Any], way: str) -> frozenset[int]:
    known = [value for value in values if value is not None]
    if not way or len(set(known)) < 2:
        return frozenset()
    best = min(known) if way == "min" else max(known)
    return frozenset(index for index, value in enumerate(values) if value == best)


def _way(metric: str) -> str:
    """Return whether less or more of a metric is better; "" for those of unknown meaning."""
    name = metric.lower()
    return usual_way(name) if any(part in name for part in (*MORE_IS_BETTER, *_LOSSES)) else ""


def _metric_label(name: str) -> str:
    """`Validation loss` for `val_loss`, `Test accuracy` for `testAccuracy`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
    return re.sub(r"^val ", "validation ", words).capitalize()


def _steps(job: Job) -> str:
    """Empty for a user's program that has told none."""
    return f"{job.steps_done:,}" if job.steps_done or job.spec.run is None else ""


def _device_time(job: Job) -> str:
    """Empty for a user's program that has run no module with an estimate."""
    is_known = job.modelled_seconds or job.spec.run is None
    return duration_for_people(job.modelled_seconds) if is_known else ""


def _figures(uow: UnitOfWork, request: Request, runs: Sequence[ComparedRun]) -> list[Figure]:
    """The same measure of all runs over each other, each line named by its run."""
    lines: dict[str, list[ChartLine]] = {}
    for run in runs:
        for figure in figures_of(uow, request, run.job)[0]:
            for line in figure.lines:
                name = run.label if line.name == figure.key else f"{run.label}: {line.name}"
                lines.setdefault(figure.key, []).append(ChartLine(name, line.points))
    return [Figure(key, found[:LINES_MAX]) for key, found in list(lines.items())[:FIGURES_MAX]]
