"""Podyard's own REST for jobs: `/podyard/v1/projects/{p}/locations/{l}/jobs`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NotRequired, cast

from fastapi import APIRouter, Request, Response
from typing_extensions import TypedDict

from podyard.api import deps, job_clone, job_estimate, job_messages
from podyard.api.deps import Timestamp
from podyard.api.job_answers import FailureAnswer, JobAnswer, to_api_job
from podyard.api.job_messages import JobMessage, ResizeMessage, from_api_job, from_api_target
from podyard.base.contents import Contents
from podyard.base.errors import invalid
from podyard.control.billing import job_progress
from podyard.control.jobs import jobs, log_ranges, log_reader
from podyard.control.jobs.log_ranges import AskedRange, LogRange, LogStart
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt as AttemptRecord
from podyard.domain.job import Job, job_name
from podyard.domain.job_history import CheckpointRecord, JobFailure
from podyard.domain.log import STREAMS, LogLine
from podyard.domain.principal import Principal
from podyard.http import job_sources, log_text, step_time
from podyard.http.objects import ObjectFiles
from podyard.pricing.current_card import default_rate_card

router = APIRouter(
    prefix="/podyard/v1/projects/{project}/locations/{zone}/jobs", route_class=deps.Route
)

METRICS_PAGE_DEFAULT = 1000
METRICS_PAGE_MAX = 10_000
LOGS_PAGE_MAX = 1000  # more at once keep other clients waiting


JOB_ID: deps.Query = {
    "name": "jobId",
    "description": "Id of the new job; one is made when it is left out.",
    "schema": {"type": "string"},
}
WORKER: deps.Query = {
    "name": "worker",
    "description": "Number of the one worker.",
    "schema": {"type": "integer", "minimum": 0},
}
LINES: tuple[deps.Query, ...] = (
    WORKER,
    {
        "name": "attempt",
        "description": "Number of the one attempt.",
        "schema": {"type": "integer", "minimum": 0},
    },
    {
        "name": "search",
        "description": "Text that a line has, in any case.",
        "schema": {"type": "string"},
    },
    {
        "name": "stream",
        "description": "The one stream.",
        "schema": {"type": "string", "enum": list(STREAMS)},
    },
)
FROM: deps.Query = {
    "name": "from",
    "description": (
        "Where the page begins: after `pageToken`, before it, at `time`, at the "
        "first error, "
        "or at the end."
    ),
    "schema": {"type": "string", "enum": [str(start) for start in LogStart]},
}
TIME: deps.Query = {
    "name": "time",
    "description": "With `from=time`: platform time of the first line.",
    "schema": {"type": "string", "format": "date-time"},
}
CHECKPOINTS: deps.Query = {
    "name": "checkpoints",
    "description": "true: the files of checkpoints, too.",
    "schema": {"type": "boolean"},
}
ARTIFACT: deps.Query = {
    "name": "name",
    "description": "Name of the artifact.",
    "schema": {"type": "string"},
    "required": True,
}


SOURCE: deps.Query = {
    "name": "name",
    "description": "Name of the file: train.py, source.zip, source.tar.gz, package.whl.",
    "schema": {"type": "string"},
    "required": True,
}


class Uploaded(TypedDict):
    """`uri`: what run.source is to be."""

    uri: str


class JobList(deps.NextPage):
    jobs: list[JobAnswer]


class MetricPointAnswer(TypedDict):
    """Measurements of a training step. `metrics`: all of them by name; loss and accuracy are null
    if the job measures none."""

    step: int
    attempt: int
    loss: float | None
    accuracy: float | None
    metrics: dict[str, float]
    wallSeconds: float
    modelledSeconds: float


class PointList(deps.NextPage):
    metrics: list[MetricPointAnswer]


class LogLineAnswer(TypedDict):
    """`stream`: stdout, stderr, platform (what Podyard says) or stacks (those that were asked for).
    `slice`: of the worker, where the job has several."""

    time: Timestamp
    worker: int
    slice: NotRequired[int]
    attempt: int
    stream: str
    line: str


class LineList(deps.NextPage):
    """`more`: the next page has lines already now, or a search goes on there."""

    lines: list[LogLineAnswer]
    more: bool
    previousPageToken: NotRequired[str]


class StacksAnswer(TypedDict):
    nextPageToken: str


class Checkpoint(TypedDict):
    """`best`: of all that were kept, by the metric that the job watches."""

    step: int
    attempt: int
    name: str
    sha256: str
    createTime: Timestamp
    best: NotRequired[bool]


class Checkpoints(TypedDict):
    checkpoints: list[Checkpoint]


class EvaluationAnswer(TypedDict):
    step: int
    attempt: int
    metrics: dict[str, float]


class Evaluations(TypedDict):
    evaluations: list[EvaluationAnswer]


class Artifact(TypedDict):
    name: str
    bytes: int


class Artifacts(TypedDict):
    artifacts: list[Artifact]


class AttemptAnswer(TypedDict):
    """One life of the job's gang. It has an outcome, a reason and an end once it is over. `agents`:
    by rank, the
    agents that run its replicas."""

    attempt: int
    state: str
    resumeStep: int
    hosts: int
    globalBatch: int
    agents: list[str]
    startTime: Timestamp
    outcome: NotRequired[str]
    reason: NotRequired[str]
    endTime: NotRequired[Timestamp]


class Attempts(TypedDict):
    attempts: list[AttemptAnswer]


@router.post("", openapi_extra=deps.asks(JOB_ID), responses=deps.errors(429, 501))
def create(
    request: Request, project: str, zone: str, body: Annotated[deps.Body, JobMessage]
) -> JobAnswer:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.jobs.create", project, f"projects/{project}/locations/{zone}/jobs")
    source = job_clone.source_of(body, project)
    if source is not None:
        body = job_clone.fill_from(
            body, *deps.read(request, lambda uow: jobs.to_clone(uow, caller, project, *source))
        )
    message = deps.parse(JobMessage, body)
    asked, node = from_api_job(message), from_api_target(message, fleet, project, zone)
    asked = job_sources.look(request, asked)
    asked = step_time.with_step_time(request, project, zone, asked, node, message.stablehlo)
    job_id = request.query_params.get("jobId")
    answer = deps.write(
        request,
        lambda uow: _answer(
            uow, caller, jobs.create(uow, fleet, caller, project, zone, job_id, asked, node)
        ),
        rehearse=message.validate_only,
    )
    if message.validate_only:
        place = (request, project, zone)
        answer["estimate"] = job_estimate.estimate(
            *place, asked, node, message.stablehlo, answer["steps"]
        )
    return answer


@router.post(
    ":upload",
    openapi_extra=deps.asks(SOURCE)
    | {
        "requestBody": {
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            }
        }
    },
    responses=deps.errors(413, 429),
)
async def upload(request: Request, project: str, zone: str) -> Uploaded:  # noqa: ARG001
    """Stores the source of a job that will be submitted in the project's bucket for jobs."""
    name = request.query_params.get("name") or ""
    return {"uri": await job_sources.keep(request, project, name, request.stream())}


@router.get("", openapi_extra=deps.asks(*deps.PAGING))
def list_jobs(request: Request, project: str, zone: str) -> JobList:
    caller = deps.principal(request)

    def body(uow: UnitOfWork) -> JobList:
        read = partial(jobs.page, uow, caller, project, None if zone == "-" else zone)
        page, token = deps.newest_page(request, [project, zone], read, jobs.mark_of)
        progress = job_progress.of_all(uow, default_rate_card(), caller, project, page)
        shown = [to_api_job(job, progress[job.job_key]) for job in page]
        return {"jobs": shown, **deps.next_page(token)}

    return deps.read(request, body)


@router.post("/{job}:cancel")
def cancel(request: Request, project: str, zone: str, job: str) -> JobAnswer:
    caller = deps.principal(request)
    return deps.write(
        request, lambda uow: _answer(uow, caller, jobs.cancel(uow, caller, project, zone, job))
    )


@router.post("/{job}:resize")
def resize(
    request: Request, project: str, zone: str, job: str, body: Annotated[deps.Body, ResizeMessage]
) -> JobAnswer:
    """Sets the type of a job's nodes, or how many processes an elastic job runs with at most."""
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.jobs.resize", project, job_name(project, zone, job))
    asked, place = deps.parse(ResizeMessage, body), (caller, project, zone, job)
    return deps.write(
        request,
        lambda uow: _answer(uow, caller, job_messages.resize_as_asked(uow, fleet, asked, *place)),
    )


@router.post("/{job}:stacks")
def stacks(request: Request, project: str, zone: str, job: str) -> StacksAnswer:
    """Asks every process of a running job what it is doing. The stacks come as lines of the log,
    after the token: those of a user's Python on stderr, those of recipes in the stream stacks, and
    what is known of other processes in the stream platform."""
    caller = deps.principal(request)
    place = deps.write(request, lambda uow: jobs.ask_stacks(uow, caller, project, zone, job))
    return {"nextPageToken": deps.page_token(place)}


@router.get("/{job}:metrics", openapi_extra=deps.asks(*deps.PAGING))
def metrics(request: Request, project: str, zone: str, job: str) -> PointList:
    caller = deps.principal(request)
    size = min(deps.number(request, "pageSize", 0) or METRICS_PAGE_DEFAULT, METRICS_PAGE_MAX)
    after = deps.page_after_number(request)
    found = deps.read(
        request, lambda uow: jobs.metrics(uow, caller, project, zone, job, after, size + 1)
    )
    page = found[:size]
    token = deps.page_token(str(page[-1].step)) if len(found) > size else None
    points: list[MetricPointAnswer] = [
        {
            "step": point.step,
            "attempt": point.attempt,
            "loss": point.metrics.get("loss"),
            "accuracy": point.metrics.get("accuracy"),
            "metrics": dict(point.metrics),
            "wallSeconds": point.wall_seconds,
            "modelledSeconds": point.modelled_seconds,
        }
        for point in page
    ]
    return {"metrics": points, **deps.next_page(token)}


@router.get("/{job}:logs", openapi_extra=deps.asks(*LINES, FROM, TIME, *deps.PAGING))
def logs(request: Request, project: str, zone: str, job: str) -> LineList:
    """One page of lines after `pageToken`. A client that follows asks again with the token until
    the job has ended.

    `from` opens the log elsewhere: `time` (with `time`), `error` (a few lines before the first
    one), `end`, or `before` with the token of a page. `previousPageToken` with `from=before` is the
    page before this one."""
    caller, chosen = deps.principal(request), _filter_of(request)
    place = deps.page_after(request) or ""
    if not log_reader.is_place(place):
        raise deps.foreign_token()
    size = min(deps.number(request, "pageSize", 0) or LOGS_PAGE_MAX, LOGS_PAGE_MAX)
    files, asked = log_text.files_of(request), _range_of(request, place)

    def body(uow: UnitOfWork) -> tuple[Job, LogRange]:
        found = log_ranges.read(uow, caller, project, zone, job, files, chosen, asked, size)
        return jobs.get(uow, caller, project, zone, job), found

    of_job, found = deps.read(request, body)
    page = found.page
    entries: list[LogLineAnswer] = [_line(of_job, line) for line in page.lines]
    answer: LineList = {
        "lines": entries,
        "more": page.more,
        "nextPageToken": deps.page_token(page.place),
    }
    if found.earlier:
        answer["previousPageToken"] = deps.page_token(found.first)
    return answer


def _line(job: Job, line: LogLine) -> LogLineAnswer:
    answer: LogLineAnswer = {
        "time": line.at.rfc3339(),
        "worker": line.rank,
        "attempt": line.attempt,
        "stream": line.stream,
        "line": line.line,
    }
    if (of_slice := job.slice_of(line.rank)) is not None:
        answer["slice"] = of_slice
    return answer


@router.get(
    "/{job}:logText",
    openapi_extra=deps.asks(*LINES),
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def job_log_text(request: Request, project: str, zone: str, job: str) -> Response:
    """All lines up to now, as text to keep: each with its time, [attempt.worker] and its stream."""
    return log_text.log_text(request, project, zone, job, _filter_of(request))


def _range_of(request: Request, place: str) -> AskedRange:
    start = request.query_params.get("from", LogStart.PLACE)
    if start not in tuple(LogStart):
        raise invalid(f"unknown from {start[:40]!r}: use {', '.join(LogStart)}", "from")
    at = deps.moment(request.query_params.get("time"), "time")
    if (at is None) == (start == LogStart.TIME):
        raise invalid(
            "from=time requires time, such as 2026-03-01T09:00:00Z; nothing else takes it", "time"
        )
    return AskedRange(LogStart(start), place, at)


def _filter_of(request: Request) -> LineFilter:
    given = request.query_params
    stream = given.get("stream")
    if stream is not None and stream not in STREAMS:
        raise invalid(f"unknown stream {stream[:40]!r}: use {', '.join(STREAMS)}", "stream")
    worker, attempt = (
        deps.number(request, name, 0) if name in given else None for name in ("worker", "attempt")
    )
    return LineFilter(worker, attempt, given.get("search", ""), stream)


@router.get("/{job}:checkpoints")
def checkpoints(request: Request, project: str, zone: str, job: str) -> Checkpoints:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: jobs.checkpoints(uow, caller, project, zone, job))
    return {"checkpoints": [to_api_checkpoint(saved) for saved in found]}


@router.get("/{job}:evaluations")
def evaluations(request: Request, project: str, zone: str, job: str) -> Evaluations:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: jobs.evaluations(uow, caller, project, zone, job))
    shown: list[EvaluationAnswer] = [
        {"step": one.step, "attempt": one.attempt, "metrics": dict(one.metrics)} for one in found
    ]
    return {"evaluations": shown}


@router.get("/{job}:artifacts", openapi_extra=deps.asks(CHECKPOINTS))
def artifacts(request: Request, project: str, zone: str, job: str) -> Artifacts:
    caller, objects = (
        deps.principal(request),
        ObjectFiles(deps.platform(request).settings.objects_path),
    )
    every = request.query_params.get("checkpoints") == "true"
    found = deps.read(
        request,
        lambda uow: jobs.artifacts(
            uow, caller, project, zone, job, objects, with_checkpoints=every
        ),
    )
    return {"artifacts": [{"name": name, "bytes": size} for name, size in found.items()]}


@router.get(
    "/{job}:artifact",
    openapi_extra=deps.asks(ARTIFACT),
    responses={200: {"content": {"application/octet-stream": {"schema": {}}}}},
)
def artifact(request: Request, project: str, zone: str, job: str) -> Response:
    caller, objects = (
        deps.principal(request),
        ObjectFiles(deps.platform(request).settings.objects_path),
    )
    contents = Contents(deps.platform(request).settings.contents_path)
    name = request.query_params.get("name") or ""
    data = deps.read(
        request, lambda uow: jobs.artifact(uow, caller, project, zone, job, objects, contents, name)
    )
    return Response(data, media_type="application/octet-stream")


@router.get("/{job}:attempts")
def attempts(request: Request, project: str, zone: str, job: str) -> Attempts:
    caller = deps.principal(request)

    def body(uow: UnitOfWork) -> Attempts:
        found = jobs.attempts(uow, caller, project, zone, job)
        agents = jobs.agents_of(uow, [attempt for attempt, _, _ in found])
        return {"attempts": [to_api_attempt(*item, agents[item[0].attempt_id]) for item in found]}

    return deps.read(request, body)


@router.get("/{job}")
def get(request: Request, project: str, zone: str, job: str) -> JobAnswer:
    caller = deps.principal(request)
    files = log_text.files_of(request)

    def body(uow: UnitOfWork) -> JobAnswer:
        answer = _answer(uow, caller, jobs.get(uow, caller, project, zone, job))
        failure = (
            jobs.failure(uow, caller, project, zone, job, files) if answer["failures"] else None
        )
        return answer if failure is None else _with_failure(answer, failure)

    return deps.read(request, body)


def _with_failure(answer: JobAnswer, failure: JobFailure) -> JobAnswer:
    """Return what has gone wrong stands first, where `podyard job describe` shows it."""
    first = {name: answer[name] for name in ("name", "state", "stateReason")}
    lines: FailureAnswer = {
        "attempt": failure.attempt,
        "worker": failure.worker,
        "lines": failure.lines,
    }
    return cast(JobAnswer, {**first, "failure": lines, **answer})


def _answer(uow: UnitOfWork, caller: Principal, job: Job) -> JobAnswer:
    return to_api_job(job, job_progress.of(uow, default_rate_card(), caller, job))


def to_api_checkpoint(saved: CheckpointRecord) -> Checkpoint:
    answer: Checkpoint = {
        "step": saved.step,
        "attempt": saved.attempt,
        "name": saved.name,
        "sha256": saved.sha256,
        "createTime": saved.at.rfc3339(),
    }
    if saved.best:
        answer["best"] = True
    return answer


def to_api_attempt(
    attempt: AttemptRecord, hosts: int, batch: int, agents: list[str]
) -> AttemptAnswer:
    answer: AttemptAnswer = {
        "attempt": attempt.attempt,
        "state": attempt.state,
        "resumeStep": attempt.resume_step,
        "hosts": hosts,
        "globalBatch": batch,
        "agents": agents,
        "startTime": attempt.started.rfc3339(),
    }
    if attempt.outcome:
        answer["outcome"] = attempt.outcome
    if attempt.reason:
        answer["reason"] = attempt.reason
    if attempt.ended:
        answer["endTime"] = attempt.ended.rfc3339()
    return answer
