"""Podyard's own REST for jobs: `/podyard/v1/projects/{p}/locations/{l}/jobs`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from pydantic.alias_generators import to_camel

from podyard.api import deps
from podyard.api.tpu import convert
from podyard.api.tpu.messages import NodeMessage, SchedulingConfig
from podyard.base.errors import Code, invalid
from podyard.control import jobs
from podyard.domain.job import Job, JobSpec
from podyard.domain.node import NodeSpec
from podyard.domain.recipes import manifest_of

router = APIRouter(prefix="/podyard/v1/projects/{project}/locations/{zone}/jobs")

METRICS_PAGE_DEFAULT = 1000
METRICS_PAGE_MAX = 10_000
LOGS_PAGE_MAX = 1000
DEFAULT_MAX_FAILURES = 3
DEFAULT_MAX_PREEMPTIONS = 100  # a preemption is the platform's doing, so that a job may take many


class JobMessage(BaseModel):
    """What a client submits. Output-only fields of a Job are refused: they would promise what is not in its hand."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    recipe: StrictStr | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    node: StrictStr | None = None
    accelerator_type: StrictStr | None = None
    runtime_version: StrictStr | None = None
    scheduling_config: SchedulingConfig | None = None
    mode: StrictStr = "train"
    steps: StrictInt | None = None
    global_batch: StrictInt | None = None
    seed: StrictInt = 0
    checkpoint_every_steps: StrictInt | None = None
    max_failures: StrictInt = DEFAULT_MAX_FAILURES
    max_preemptions: StrictInt = DEFAULT_MAX_PREEMPTIONS
    execution: StrictStr = "real"
    replica_processes: StrictInt | None = None
    labels: dict[str, StrictStr] = Field(default_factory=dict)
    validate_only: StrictBool = False


async def _body(request: Request) -> Any:
    return deps.parse_json(await request.body())


@router.post("")
def create(request: Request, project: str, zone: str, body: Annotated[Any, Depends(_body)]) -> dict[str, Any]:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.jobs.create", project, f"projects/{project}/locations/{zone}/jobs")
    message = deps.parse(JobMessage, body)
    spec, node = from_api_job(message), _node(message, project, zone)
    job_id = request.query_params.get("jobId")
    return to_api_job(
        deps.write(request, lambda uow: jobs.create(uow, fleet, caller, project, zone, job_id, spec, node))
    )


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
            }
            for row in found
        ]
    }


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
                "startTime": row["started"].rfc3339(),
                **({"outcome": row["outcome"]} if row["outcome"] else {}),
                **({"endTime": row["ended"].rfc3339()} if row["ended"] else {}),
            }
            for row in found
        ]
    }


@router.get("/{job}")
def get(request: Request, project: str, zone: str, job: str) -> dict[str, Any]:
    caller = deps.principal(request)
    return to_api_job(deps.read(request, lambda uow: jobs.get(uow, caller, project, zone, job)))


def from_api_job(message: JobMessage) -> JobSpec:
    if message.recipe is None:
        raise invalid("recipe is required", "recipe")
    defaults = manifest_of(message.recipe)
    return JobSpec(
        recipe=message.recipe,
        arguments=message.arguments,
        mode=message.mode,
        steps=defaults.default_steps if message.steps is None else message.steps,
        global_batch=defaults.default_global_batch if message.global_batch is None else message.global_batch,
        seed=message.seed,
        checkpoint_every_steps=(
            defaults.default_checkpoint_every_steps
            if message.checkpoint_every_steps is None
            else message.checkpoint_every_steps
        ),
        max_failures=message.max_failures,
        max_preemptions=message.max_preemptions,
        execution=message.execution,
        replica_processes=message.replica_processes,
        labels=dict(message.labels),
    )


def to_api_job(job: Job) -> dict[str, Any]:
    spec = job.spec
    answer: dict[str, Any] = {
        "name": job.name,
        "state": job.state,
        "stateReason": job.state_reason,
        "recipe": spec.recipe,
        "arguments": dict(spec.arguments),
        "mode": spec.mode,
        "node": job.node_id,
        "acceleratorType": job.accelerator_type,
        "attempt": job.attempt,
        "failures": job.failures,
        "preemptions": job.preemptions,
        "stepsDone": job.steps_done,
        "steps": spec.steps,
        "globalBatch": spec.global_batch,
        "seed": spec.seed,
        "checkpointEverySteps": spec.checkpoint_every_steps,
        "maxFailures": spec.max_failures,
        "maxPreemptions": spec.max_preemptions,
        "execution": spec.execution,
        "labels": dict(spec.labels),
        "metrics": {"latest": dict(job.latest)},
        "wallSeconds": round(job.wall_seconds, 3),
        "modelledSeconds": job.modelled_seconds,
        "estimateModel": job.estimate_model,
        "createTime": job.created.rfc3339(),
    }
    if spec.replica_processes is not None:
        answer["replicaProcesses"] = spec.replica_processes
    if job.started is not None:
        answer["startTime"] = job.started.rfc3339()
    if job.ended is not None:
        answer["endTime"] = job.ended.rfc3339()
    if job.error_code is not None:
        answer["error"] = {
            "code": job.error_code,
            "status": Code(job.error_code).name,
            "message": job.error_message,
        }
    return answer


def _node(message: JobMessage, project: str, zone: str) -> str | NodeSpec:
    wants_new = message.accelerator_type or message.runtime_version or message.scheduling_config
    if message.node is not None:
        if wants_new:
            raise invalid("node excludes acceleratorType, runtimeVersion and schedulingConfig", "node")
        prefix = f"projects/{project}/locations/{zone}/nodes/"
        if "/" in message.node and not message.node.startswith(prefix):
            raise invalid(f"node must be an id, or a name that begins with {prefix}", "node")
        return message.node.removeprefix(prefix)
    if not message.accelerator_type:
        raise invalid("a job needs a node, or an acceleratorType and a runtimeVersion to make one", "node")
    return convert.from_api_node(
        NodeMessage(
            accelerator_type=message.accelerator_type,
            runtime_version=message.runtime_version,
            scheduling_config=message.scheduling_config,
        )
    )


def _number(request: Request, name: str, default: int, maximum: int) -> int:
    text = request.query_params.get(name) or str(default)
    if not text.isdigit():
        raise invalid(f"{name} {text!r} is not a number", name)
    return max(1, min(int(text), maximum))
