"""Podyard's own REST for jobs: `/podyard/v1/projects/{p}/locations/{l}/jobs`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from podyard.api import deps
from podyard.api.job_messages import JobMessage, from_api_job, from_api_target, to_api_job
from podyard.api.objects import ObjectFiles
from podyard.base.errors import invalid
from podyard.control import jobs

router = APIRouter(prefix="/podyard/v1/projects/{project}/locations/{zone}/jobs")

METRICS_PAGE_DEFAULT = 1000
METRICS_PAGE_MAX = 10_000
LOGS_PAGE_MAX = 1000


async def _body(request: Request) -> Any:
    return deps.parse_json(await request.body())


@router.post("")
def create(request: Request, project: str, zone: str, body: Annotated[Any, Depends(_body)]) -> dict[str, Any]:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.jobs.create", project, f"projects/{project}/locations/{zone}/jobs")
    message = deps.parse(JobMessage, body)
    asked, node = from_api_job(message), from_api_target(message, project, zone)
    job_id = request.query_params.get("jobId")
    job = deps.write(
        request,
        lambda uow: jobs.create(uow, fleet, caller, project, zone, job_id, asked, node),
        rehearse=message.validate_only,
    )
    return to_api_job(job)


@router.get("")
def list_jobs(request: Request, project: str, zone: str) -> dict[str, Any]:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: jobs.list_jobs(uow, caller, project, None if zone == "-" else zone))
    page, token = deps.paged(request, found, lambda job: job.name)
    return {"jobs": [to_api_job(job) for job in page], **({"nextPageToken": token} if token else {})}


@router.post("/{job}:cancel")
def cancel(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller = deps.principal(request)
    return to_api_job(deps.write(request, lambda uow: jobs.cancel(uow, caller, project, zone, job)))


@router.get("/{job}:metrics")
def metrics(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller = deps.principal(request)
    size = _number(request, "pageSize", METRICS_PAGE_DEFAULT, METRICS_PAGE_MAX)
    after = int(deps.page_after(request) or 0)
    found = deps.read(request, lambda uow: jobs.metrics(uow, caller, project, zone, job, after, size + 1))
    page = found[:size]
    token = {"nextPageToken": deps.page_token(str(page[-1].step))} if len(found) > size else {}
    points = [
        {
            "step": point.step,
            "attempt": point.attempt,
            "loss": point.loss,
            "accuracy": point.accuracy,
            "wallSeconds": point.wall_seconds,
            "modelledSeconds": point.modelled_seconds,
        }
        for point in page
    ]
    return {"metrics": points, **token}


@router.get("/{job}:logs")
def logs(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    """One page of lines after `pageToken`. A client that follows asks again with the token until the job has ended."""
    caller = deps.principal(request)
    worker_text = request.query_params.get("worker")
    if worker_text is not None and not worker_text.isdigit():
        raise invalid(f"worker {worker_text!r} is not a number", "worker")
    worker = None if worker_text is None else int(worker_text)
    after = int(deps.page_after(request) or 0)
    size = _number(request, "pageSize", LOGS_PAGE_MAX, LOGS_PAGE_MAX)
    lines = deps.read(
        request,
        lambda uow: jobs.logs(uow, caller, project, zone, job, worker=worker, after=after, limit=size),
    )
    entries = [
        {"time": line["at"].rfc3339(), "worker": line["rank"], "attempt": line["attempt"], "line": line["line"]}
        for line in lines
    ]
    return {"lines": entries, "nextPageToken": deps.page_token(str(after + len(lines)))}


@router.get("/{job}:checkpoints")
def checkpoints(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: jobs.checkpoints(uow, caller, project, zone, job))
    return {
        "checkpoints": [
            {
                "step": row["step"],
                "attempt": row["attempt"],
                "name": row["name"],
                "sha256": row["sha256"],
                "createTime": row["at"].rfc3339(),
                **({"best": True} if row["best"] else {}),
            }
            for row in found
        ]
    }


@router.get("/{job}:evaluations")
def evaluations(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: jobs.evaluations(uow, caller, project, zone, job))
    names = ("step", "attempt", "metrics")
    return {"evaluations": [{name: row[name] for name in names} for row in found]}


@router.get("/{job}:artifacts")
def artifacts(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller, objects = deps.principal(request), ObjectFiles(deps.platform(request).settings.objects_path)
    found = deps.read(request, lambda uow: jobs.artifacts(uow, caller, project, zone, job, objects))
    return {"artifacts": [{"name": name, "bytes": size} for name, size in found.items()]}


@router.get("/{job}:artifact")
def artifact(request: Request, project: str, zone: str, job: str) -> Response:
    caller, objects = deps.principal(request), ObjectFiles(deps.platform(request).settings.objects_path)
    name = request.query_params.get("name") or ""
    data = deps.read(request, lambda uow: jobs.artifact(uow, caller, project, zone, job, objects, name))
    return Response(data, media_type="application/octet-stream")


@router.get("/{job}:attempts")
def attempts(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: jobs.attempts(uow, caller, project, zone, job))
    return {
        "attempts": [
            {
                "attempt": row["attempt"],
                "state": row["state"],
                "resumeStep": row["resume_step"],
                "hosts": row["hosts"],
                "globalBatch": row["batch"],
                "startTime": row["started"].rfc3339(),
                **({"outcome": row["outcome"]} if row["outcome"] else {}),
                **({"reason": row["reason"]} if row["reason"] else {}),
                **({"endTime": row["ended"].rfc3339()} if row["ended"] else {}),
            }
            for row in found
        ]
    }


@router.get("/{job}")
def get(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller = deps.principal(request)
    return to_api_job(deps.read(request, lambda uow: jobs.get(uow, caller, project, zone, job)))


def _number(request: Request, name: str, default: int, maximum: int) -> int:
    text = request.query_params.get(name) or str(default)
    if not text.isdigit():
        raise invalid(f"{name} {text!r} is not a number", name)
    return max(1, min(int(text), maximum))
