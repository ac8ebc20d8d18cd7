"""Podyard's own REST for sweeps: `/podyard/v1/projects/{p}/locations/{l}/sweeps`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Request
from pydantic import Field, StrictInt
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.job_answers import EXACT_DECIMALS, has_steps
from podyard.api.job_messages import JobMessage, from_api_job, from_api_target
from podyard.base.errors import invalid
from podyard.base.money import Amount
from podyard.control.billing import job_progress
from podyard.control.jobs import sweeps
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.principal import Principal
from podyard.domain.sweep import JOB_VALUES, best_of, differing_values, rows_of, sweep_name
from podyard.domain.training import WAYS, usual_way
from podyard.http import job_sources, step_time
from podyard.pricing.current_card import default_rate_card

router = APIRouter(
    prefix="/podyard/v1/projects/{project}/locations/{zone}/sweeps", route_class=deps.Route
)

METRIC_USUAL = "loss"
SWEEP_ID: deps.Query = {
    "name": "sweepId",
    "description": "Id of the new sweep. Its jobs are named SWEEP-0, SWEEP-1 and so on.",
    "schema": {"type": "string"},
    "required": True,
}
METRIC: deps.Query = {
    "name": "metric",
    "description": (
        "Metric by which the best job is found, such as accuracy or val_loss:min (default: loss)."
    ),
    "schema": {"type": "string"},
}


class SweepMessage(JobMessage):
    """A job, and the values that differ: lists of which every combination is tried, and rows of a
    table. Names are
    those of arguments, or seed, steps and globalBatch."""

    values: dict[str, list[Any]] = Field(default_factory=dict)
    rows: list[dict[str, Any]] = Field(default_factory=list)
    parallel: StrictInt = 1


class SweepJob(TypedDict):
    job: str
    state: str
    values: dict[str, Any]
    stepsDone: NotRequired[int]
    steps: int
    latest: dict[str, float | str]
    cost: NotRequired[str]


class SweepAnswer(TypedDict):
    """`best`: the job with the best newest value of `metric`; missing while there is none. `cost`:
    of all jobs so far, for callers with podyard.billing.view."""

    name: str
    jobs: list[SweepJob]
    metric: str
    mode: str
    best: NotRequired[str]
    cost: NotRequired[str]


class SweepSummary(TypedDict):
    name: str
    jobs: int
    ended: int


class SweepList(deps.NextPage):
    sweeps: list[SweepSummary]


@router.post("", openapi_extra=deps.asks(SWEEP_ID), responses=deps.errors(429, 501))
def create(
    request: Request, project: str, zone: str, body: Annotated[deps.Body, SweepMessage]
) -> SweepAnswer:
    """Submits a job for each row of values, all of them or none."""
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.jobs.create", project, f"projects/{project}/locations/{zone}/sweeps")
    message = deps.parse(SweepMessage, body)
    if message.clone_of is not None:
        raise invalid("a sweep cannot be a clone: give the settings of its jobs", "cloneOf")
    base = {
        name: value for name, value in body.items() if name not in ("values", "rows", "parallel")
    }
    messages = [
        deps.parse(JobMessage, _with(base, row)) for row in rows_of(message.values, message.rows)
    ]
    asked = [job_sources.look(request, from_api_job(one)) for one in messages]
    node = from_api_target(message, fleet, project, zone)
    asked = [
        step_time.with_step_time(request, project, zone, one, node, message.stablehlo)
        for one in asked
    ]
    sweep_id = request.query_params.get("sweepId") or ""

    def body_of_unit(uow: UnitOfWork) -> SweepAnswer:
        made = sweeps.create(
            uow, fleet, caller, project, zone, sweep_id, asked, node, message.parallel
        )
        return _answer(
            uow, caller, project, zone, sweep_id, made, METRIC_USUAL, usual_way(METRIC_USUAL)
        )

    return deps.write(request, body_of_unit, rehearse=message.validate_only)


@router.get("", openapi_extra=deps.asks(*deps.PAGING))
def list_sweeps(request: Request, project: str, zone: str) -> SweepList:
    caller = deps.principal(request)
    found = deps.read(
        request, lambda uow: sweeps.list_sweeps(uow, caller, project, None if zone == "-" else zone)
    )
    listed: list[SweepSummary] = [
        {"name": sweep_name(project, where, sweep_id), "jobs": count, "ended": ended}
        for where, sweep_id, count, ended in found
    ]
    page, token = deps.page_of(request, listed, lambda item: item["name"])
    return {"sweeps": page, **deps.next_page(token)}


@router.post("/{sweep}:cancel")
def cancel(request: Request, project: str, zone: str, sweep: str) -> SweepAnswer:
    """Cancels the jobs that have not ended."""
    caller = deps.principal(request)

    def body(uow: UnitOfWork) -> SweepAnswer:
        left = sweeps.cancel(uow, caller, project, zone, sweep)
        return _answer(
            uow, caller, project, zone, sweep, left, METRIC_USUAL, usual_way(METRIC_USUAL)
        )

    return deps.write(request, body)


@router.get("/{sweep}", openapi_extra=deps.asks(METRIC))
def get(request: Request, project: str, zone: str, sweep: str) -> SweepAnswer:
    """The jobs with their values and results in one table."""
    caller = deps.principal(request)
    metric, _, way = (request.query_params.get("metric") or METRIC_USUAL).partition(":")
    way = way or usual_way(metric)
    if way not in WAYS:
        raise invalid(f"metric must be NAME, NAME:min or NAME:max, got {metric}:{way}", "metric")

    def body(uow: UnitOfWork) -> SweepAnswer:
        found = sweeps.get(uow, caller, project, zone, sweep)
        return _answer(uow, caller, project, zone, sweep, found, metric, way)

    return deps.read(request, body)


def _with(base: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The body of one job. A user's program gets its values as arguments, and a command as
    variables."""
    run = base.get("run")
    if isinstance(run, dict):
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in row.items()
        }
        if run.get("command"):
            return {**base, "run": {**run, "env": {**(run.get("env") or {}), **texts}}}
        given = [f"--{name}={text}" for name, text in texts.items()]
        return {**base, "run": {**run, "args": [*(run.get("args") or []), *given]}}
    own = {name: value for name, value in row.items() if name in JOB_VALUES}
    arguments = {name: value for name, value in row.items() if name not in JOB_VALUES}
    return {**base, **own, "arguments": {**(base.get("arguments") or {}), **arguments}}


def _answer(  # noqa: PLR0913
    uow: UnitOfWork,
    caller: Principal,
    project: str,
    zone: str,
    sweep_id: str,
    found: Sequence[Job],
    metric: str,
    way: str,
) -> SweepAnswer:
    progress = job_progress.of_all(uow, default_rate_card(), caller, project, found)
    costs: list[Amount] = []
    answer: SweepAnswer = {
        "name": sweep_name(project, zone, sweep_id),
        "jobs": [],
        "metric": metric,
        "mode": way,
    }
    for job, values in zip(found, differing_values(found), strict=True):
        row: SweepJob = {
            "job": job.job_id,
            "state": job.state,
            "values": values,
            "steps": job.spec.steps,
            "latest": dict(job.latest),
        }
        if has_steps(job):
            row["stepsDone"] = job.steps_done
        cost = progress[job.job_key].cost
        if cost is not None:
            row["cost"] = cost.text(EXACT_DECIMALS)
            costs.append(cost)
        answer["jobs"].append(row)
    best = best_of(found, metric, way)
    if best is not None:
        answer["best"] = best.job_id
    if costs:
        answer["cost"] = sum(costs, Amount(0)).text(EXACT_DECIMALS)
    return answer
