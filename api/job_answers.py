"""A job on the wire: how it is shown, and told to replicas."""

from __future__ import annotations

from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from podyard.api.deps import Timestamp
from podyard.api.job_estimate import EstimateAnswer
from podyard.base.errors import Code
from podyard.control.billing.job_progress import JobProgress
from podyard.domain.job import Fallback, Job, JobSpec, objects_prefix
from podyard.domain.recipes import is_program
from podyard.domain.training import elastic_json
from podyard.domain.user_program import ProgramFile, UserProgram
from podyard.pricing.machines import MachineCost

EXACT_DECIMALS = 12  # of an amount, as in the messages of bills


class BestOf(TypedDict):
    metric: str
    mode: str


class Stopping(BestOf):
    patience: int
    minDelta: float


class Training(TypedDict):
    """As `TrainingSettings.as_json` writes it."""

    accumulationSteps: int
    iterationsPerLoop: int
    evaluateEverySteps: int
    earlyStopping: Stopping | None
    checkpointName: str
    keepCheckpoints: int
    best: BestOf | None
    exportAtEnd: bool


class StartOfReplica(TypedDict):
    objectsPrefix: str
    step: int


class JobSteps(TypedDict):
    """The part of a job's spec that users and replicas see."""

    arguments: dict[str, Any]
    mode: str
    steps: int
    globalBatch: int
    seed: int
    checkpointEverySteps: int
    training: Training


class JobTask(JobSteps):
    """The part of the job's spec that a replica is told."""

    recipe: str
    startFrom: StartOfReplica | None


class ElasticAnswer(TypedDict):
    """As `elastic_json` writes it."""

    minReplicas: int
    maxReplicas: NotRequired[int]
    batch: str
    learningRate: str


class FileAnswer(TypedDict):
    """An object as it was when the job was submitted: `sha256` of its contents."""

    uri: str
    sha256: str
    bytes: int


class RunAnswer(TypedDict):
    """A user's own program. `secrets`: the names alone."""

    command: NotRequired[str]
    source: NotRequired[FileAnswer]
    entry: NotRequired[str]
    module: NotRequired[str]
    args: NotRequired[list[str]]
    setup: NotRequired[str]
    env: NotRequired[dict[str, str]]
    secrets: NotRequired[list[str]]
    files: NotRequired[dict[str, FileAnswer]]
    output: NotRequired[str]


class Metrics(TypedDict):
    """The newest figures: step, loss, accuracy, those of the last evaluation, and what the job says
    of itself."""

    latest: dict[str, float | str]


class StartedFrom(TypedDict):
    job: str
    step: int


class FallbackAnswer(TypedDict):
    location: str
    acceleratorType: NotRequired[str]
    usage: NotRequired[str]


class JobError(TypedDict):
    """`code` is a google.rpc.Code, `status` its name."""

    code: int
    status: str
    message: str | None


class FailureAnswer(TypedDict):
    """The last lines of the worker that has ended the last failed attempt: its traceback, or the
    end of its stderr."""

    attempt: int
    worker: int
    lines: list[str]


class MachineAnswer(TypedDict):
    """The use of one's own machines by the job's processes, in whole CPU seconds and GiB-seconds
    for each attempt. `cost` is missing when an attempt started before the card's first price."""

    cpuSeconds: int
    gibSeconds: int
    cost: NotRequired[str]


class ProgramRunAnswer(TypedDict):
    """`ProgramRun`: what a user's program has run in the newest attempt that ran any. Null: not
    known."""

    modules: list[dict[str, Any]]
    modulesLeftOut: int
    step: str
    stepReason: str
    steps: int | None
    stepSeconds: float | None
    seconds: float | None
    error: str


class JobAnswer(JobSteps):
    """A job. It has a recipe, a program, or what it runs; times, error and start are there once
    they are known.

    `wallSeconds`: real seconds of all attempts, up to now. `stepsPerSecond` and `remainingSeconds`
    (real seconds at that speed): while the job is RUNNING and has done a step. `cost`: US dollars
    so far of the job's seconds on its nodes, before commitments and credits, for callers with
    podyard.billing.view; `costEstimated`: it still grows. `numNodes`, `nodes`: of a job on several
    slices; `node` is the first one. `machine`: with a machine card only. `estimate`: in the answer
    to a request with validateOnly.
    """

    name: str
    state: str
    stateReason: str
    failure: NotRequired[FailureAnswer]
    recipe: NotRequired[str]
    program: NotRequired[str]
    run: NotRequired[RunAnswer]
    node: str
    acceleratorType: str
    attempt: int
    failures: int
    preemptions: int
    stepsDone: NotRequired[int]
    maxFailures: int
    maxPreemptions: int
    execution: str
    stepSeconds: NotRequired[float]
    priority: int
    timeLimitSeconds: NotRequired[int]
    retryDelaySeconds: NotRequired[int]
    keepNode: NotRequired[bool]
    autostopSeconds: NotRequired[int]
    fallbacks: NotRequired[list[FallbackAnswer]]
    nodeZone: NotRequired[str]
    numNodes: NotRequired[int]
    nodes: NotRequired[list[str]]
    sweep: NotRequired[str]
    elastic: ElasticAnswer | None
    labels: dict[str, str]
    metrics: Metrics
    wallSeconds: float
    stepsPerSecond: NotRequired[float]
    remainingSeconds: NotRequired[float]
    cost: NotRequired[str]
    costEstimated: NotRequired[bool]
    machine: NotRequired[MachineAnswer]
    modelledSeconds: NotRequired[float]
    programRun: NotRequired[ProgramRunAnswer]
    estimateModel: str
    createTime: Timestamp
    createdBy: NotRequired[str]
    replicaProcesses: NotRequired[int]
    startFrom: NotRequired[StartedFrom]
    startTime: NotRequired[Timestamp]
    endTime: NotRequired[Timestamp]
    error: NotRequired[JobError]
    estimate: NotRequired[EstimateAnswer]


def machine_json(cost: MachineCost) -> MachineAnswer:
    answer: MachineAnswer = {"cpuSeconds": cost.cpu_seconds, "gibSeconds": cost.gib_seconds}
    if cost.amount is not None:
        answer["cost"] = cost.amount.text(EXACT_DECIMALS)
    return answer


def to_api_job(job: Job, progress: JobProgress) -> JobAnswer:  # noqa: C901, PLR0912
    spec = job.spec
    answer: JobAnswer = {
        "name": job.name,
        "state": job.state,
        "stateReason": job.state_reason,
        "arguments": dict(spec.arguments),
        "mode": spec.mode,
        "node": job.node_id,
        "acceleratorType": job.accelerator_type,
        "attempt": job.attempt,
        "failures": job.failures,
        "preemptions": job.preemptions,
        "steps": spec.steps,
        "globalBatch": spec.global_batch,
        "seed": spec.seed,
        "checkpointEverySteps": spec.checkpoint_every_steps,
        "maxFailures": spec.max_failures,
        "maxPreemptions": spec.max_preemptions,
        "execution": spec.execution,
        "priority": spec.priority,
        "training": cast(Training, spec.training.as_json()),
        "elastic": cast(ElasticAnswer | None, elastic_json(spec.elastic)),
        "labels": dict(spec.labels),
        "metrics": {"latest": dict(job.latest)},
        "wallSeconds": round(progress.wall_seconds, 3),
        "estimateModel": job.estimate_model,
        "createTime": job.created.rfc3339(),
    }
    _add_progress(answer, job, progress)
    if job.created_by:
        answer["createdBy"] = job.created_by
    if progress.steps_per_second is not None and progress.seconds_left is not None:
        answer["stepsPerSecond"] = round(progress.steps_per_second, 3)
        answer["remainingSeconds"] = round(progress.seconds_left, 3)
    if progress.cost is not None:
        answer["cost"] = progress.cost.text(EXACT_DECIMALS)
        answer["costEstimated"] = progress.is_estimated
    if progress.machine is not None:
        answer["machine"] = machine_json(progress.machine)
    if spec.run is not None:
        answer["run"] = to_api_run(spec.run)
    elif is_program(spec.recipe):
        answer["program"] = spec.recipe
    else:
        answer["recipe"] = spec.recipe
    if spec.time_limit_seconds:
        answer["timeLimitSeconds"] = spec.time_limit_seconds
    if spec.retry_delay_seconds:
        answer["retryDelaySeconds"] = spec.retry_delay_seconds
    if spec.step_seconds is not None:
        answer["stepSeconds"] = spec.step_seconds
    if spec.fallbacks:
        answer["fallbacks"] = [to_api_fallback(one) for one in spec.fallbacks[:-1]]
    if job.node_zone:
        answer["nodeZone"] = job.node_zone
    if spec.num_nodes > 1:
        answer["numNodes"] = spec.num_nodes
        answer["nodes"] = job.node_ids
    if spec.keep_node:
        answer["keepNode"] = True
    if spec.autostop_seconds:
        answer["autostopSeconds"] = spec.autostop_seconds
    if job.sweep_id:
        answer["sweep"] = job.sweep_id
    if spec.replica_processes is not None:
        answer["replicaProcesses"] = spec.replica_processes
    if spec.start_from is not None:
        answer["startFrom"] = {"job": spec.start_from.job_id, "step": spec.start_from.step}
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


def has_steps(job: Job) -> bool:
    """Return True if it is known how far a job is: of a user's program once it has printed a step,
    or has run a training step."""
    return job.spec.run is None or job.steps_done > 0


def _add_progress(answer: JobAnswer, job: Job, progress: JobProgress) -> None:
    """Add the steps that are done and their modelled time; of a user's program, what is known."""
    if progress.run is not None:
        answer["programRun"] = cast(ProgramRunAnswer, progress.run.to_answer())
    if has_steps(job):
        answer["stepsDone"] = progress.steps_done
    if job.spec.run is None or job.modelled_seconds:
        answer["modelledSeconds"] = job.modelled_seconds


def to_api_run(run: UserProgram) -> RunAnswer:
    """Return what is empty is left out."""
    shown = {
        **{name: getattr(run, name) for name in ("command", "entry", "module", "setup", "output")},
        "source": None if run.source is None else _file(run.source),
        "args": list(run.args),
        "env": dict(run.env),
        "secrets": list(run.secrets),
        "files": {mount.target: _file(mount) for mount in run.mounts},
    }
    return cast(RunAnswer, {name: value for name, value in shown.items() if value})


def _file(file: ProgramFile) -> FileAnswer:
    return {"uri": file.uri, "sha256": file.digest, "bytes": file.bytes}


def to_api_fallback(one: Fallback) -> FallbackAnswer:
    answer: FallbackAnswer = {"location": one.zone}
    if one.accelerator_type:
        answer["acceleratorType"] = one.accelerator_type
    if one.usage_class:
        answer["usage"] = one.usage_class
    return answer


def to_api_task(spec: JobSpec, global_batch: int) -> JobTask:
    """`global_batch`: of the gang, which may be smaller than the job's."""
    start = spec.start_from
    return {
        "recipe": spec.recipe,
        "arguments": dict(spec.arguments),
        "mode": spec.mode,
        "steps": spec.steps,
        "globalBatch": global_batch,
        "seed": spec.seed,
        "checkpointEverySteps": spec.checkpoint_every_steps,
        "training": cast(Training, spec.training.as_json()),
        "startFrom": None
        if start is None
        else {"objectsPrefix": objects_prefix(start.job_key), "step": start.step},
    }
