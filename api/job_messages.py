"""A job on the wire: what a client submits, and how a job is shown."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, cast

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.api.job_estimate import EstimateAnswer
from podyard.api.tpu import convert, reader
from podyard.base.errors import Code, invalid
from podyard.base.training_settings import USUAL_TRAINING, Best, EarlyStopping, TrainingSettings
from podyard.control.billing.job_progress import JobProgress
from podyard.domain.fleet import Fleet
from podyard.domain.job import Elastic, Job, JobRequest, JobSpec, objects_prefix
from podyard.domain.job_fields import DEFAULT_MAX_FAILURES, DEFAULT_MAX_PREEMPTIONS, PRIORITY_DEFAULT
from podyard.domain.node import NodeSpec
from podyard.domain.recipes import check_program, is_program, manifest_of
from podyard.domain.training import elastic_json, usual_rate, usual_way
from podyard.domain.user_program import ProgramFile, UserProgram
from podyard.http import step_time
from podyard.http.texts import check_labels
from podyard.pricing.machines import MachineCost

EXACT_DECIMALS = 12  # of an amount, as in the messages of bills


class _JobMessage(deps.Asked):
    model_config = ConfigDict(strict=True)


class BestMessage(_JobMessage):
    metric: StrictStr
    mode: StrictStr | None = None


class EarlyStoppingMessage(BestMessage):
    patience: StrictInt
    min_delta: float = 0.0


class TrainingMessage(_JobMessage):
    accumulation_steps: StrictInt = 1
    iterations_per_loop: StrictInt = 1
    evaluate_every_steps: StrictInt = 0
    early_stopping: EarlyStoppingMessage | None = None
    checkpoint_name: StrictStr = USUAL_TRAINING.checkpoint_name
    keep_checkpoints: StrictInt = USUAL_TRAINING.keep_checkpoints
    best: BestMessage | None = None
    export_at_end: StrictBool = False


class ElasticMessage(_JobMessage):
    min_replicas: StrictInt
    batch: StrictStr = "keep"
    learning_rate: StrictStr | None = None


class StartFromMessage(_JobMessage):
    job: StrictStr
    step: StrictInt | None = None


class RunMessage(_JobMessage):
    """A user's own program. `files`: path on the host -> gs:// object."""

    command: StrictStr = ""
    source: StrictStr | None = None
    entry: StrictStr = ""
    module: StrictStr = ""
    args: list[StrictStr] = Field(default_factory=list)
    setup: StrictStr = ""
    env: dict[str, StrictStr] = Field(default_factory=dict)
    secrets: dict[str, StrictStr] = Field(default_factory=dict)
    files: dict[str, StrictStr] = Field(default_factory=dict)
    output: StrictStr = ""


class JobMessage(_JobMessage):
    """What a client submits. Output-only fields of a Job are refused: they would promise what is not in its hand.
    `clone_of`: a job, by its id or its name, that says what the body does not say (`job_clone`)."""

    recipe: StrictStr | None = None
    program: StrictStr | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    node: StrictStr | None = None
    accelerator_type: StrictStr | None = None
    runtime_version: StrictStr | None = None
    scheduling_config: dict[str, Any] | None = None
    mode: StrictStr = "train"
    steps: StrictInt | None = None
    global_batch: StrictInt | None = None
    seed: StrictInt | None = None
    checkpoint_every_steps: StrictInt | None = None
    max_failures: StrictInt = DEFAULT_MAX_FAILURES
    max_preemptions: StrictInt = DEFAULT_MAX_PREEMPTIONS
    execution: StrictStr = "real"
    step_seconds: float | None = None
    stablehlo: StrictStr | None = None
    replica_processes: StrictInt | None = None
    labels: dict[str, StrictStr] = Field(default_factory=dict)
    training: TrainingMessage = Field(default_factory=TrainingMessage)
    elastic: ElasticMessage | None = None
    start_from: StartFromMessage | None = None
    priority: StrictInt = PRIORITY_DEFAULT
    time_limit_seconds: StrictInt = 0
    retry_delay_seconds: StrictInt = 0
    run: RunMessage | None = None
    keep_node: StrictBool = False
    clone_of: StrictStr | None = None
    validate_only: StrictBool = False


class ResizeMessage(_JobMessage):
    """`replicas`: the most processes that the job is to run with; "max" for its whole gang."""

    replicas: StrictInt | Literal["max"]


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
    """What users see of a job's spec, and replicas too."""

    arguments: dict[str, Any]
    mode: str
    steps: int
    globalBatch: int
    seed: int
    checkpointEverySteps: int
    training: Training


class JobTask(JobSteps):
    """What a replica is told of the job's spec."""

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
    """The newest figures: step, loss, accuracy, those of the last evaluation, and what the job says of itself."""

    latest: dict[str, float | str]


class StartedFrom(TypedDict):
    job: str
    step: int


class JobError(TypedDict):
    """`code` is a google.rpc.Code, `status` its name."""

    code: int
    status: str
    message: str | None


class FailureAnswer(TypedDict):
    """What the worker wrote last that has ended the last failed attempt: its traceback, or the end of its stderr."""

    attempt: int
    worker: int
    lines: list[str]


class MachineAnswer(TypedDict):
    """What the job's processes took of one's own machines, in whole CPU seconds and GiB-seconds for each attempt.
    `cost` is missing when an attempt started before the card's first price."""

    cpuSeconds: int
    gibSeconds: int
    cost: NotRequired[str]


class JobAnswer(JobSteps):
    """A job. It has a recipe, a program, or what it runs; times, error and start are there once they are known.

    `wallSeconds`: real seconds of all attempts, up to now. `stepsPerSecond` and `remainingSeconds` (real seconds at
    that speed): while the job is RUNNING and has done a step. `cost`: US dollars so far of the job's seconds on its
    node, before commitments and credits, for callers with podyard.billing.view; `costEstimated`: it still grows.
    `machine`: with a machine card only. `estimate`: in the answer to a request with validateOnly.
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
    stepsDone: int
    maxFailures: int
    maxPreemptions: int
    execution: str
    stepSeconds: NotRequired[float]
    priority: int
    timeLimitSeconds: NotRequired[int]
    retryDelaySeconds: NotRequired[int]
    keepNode: NotRequired[bool]
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
    modelledSeconds: float
    estimateModel: str
    createTime: Timestamp
    createdBy: NotRequired[str]
    replicaProcesses: NotRequired[int]
    startFrom: NotRequired[StartedFrom]
    startTime: NotRequired[Timestamp]
    endTime: NotRequired[Timestamp]
    error: NotRequired[JobError]
    estimate: NotRequired[EstimateAnswer]


def from_api_job(message: JobMessage) -> JobRequest:
    start = message.start_from
    check_labels(message.labels)
    return JobRequest(
        recipe=_recipe(message),
        arguments=message.arguments,
        mode=message.mode,
        steps=message.steps,
        global_batch=message.global_batch,
        seed=message.seed,
        checkpoint_every_steps=message.checkpoint_every_steps,
        max_failures=message.max_failures,
        max_preemptions=message.max_preemptions,
        execution=message.execution,
        step_seconds=message.step_seconds,
        replica_processes=message.replica_processes,
        labels=dict(message.labels),
        training=_training(message.training),
        elastic=None if message.elastic is None else _elastic(message.elastic),
        start_from=None if start is None else (start.job, start.step),
        priority=message.priority,
        time_limit_seconds=message.time_limit_seconds,
        retry_delay_seconds=message.retry_delay_seconds,
        run=None if message.run is None else _run(message.run),
        keep_node=message.keep_node,
    )


def _run(message: RunMessage) -> UserProgram:
    values = message.model_dump(exclude={"source", "files", "args"})
    source = None if message.source is None else ProgramFile(uri=message.source)
    mounts = tuple(ProgramFile(uri=uri, target=target) for target, uri in message.files.items())
    return UserProgram(**values, args=tuple(message.args), source=source, mounts=mounts)


def _recipe(message: JobMessage) -> str | None:
    if message.stablehlo is not None:
        if message.program is not None or message.recipe is not None:
            raise invalid("specify one of recipe, program and stablehlo", "stablehlo")
        return None
    if message.program is not None:
        if message.recipe is not None:
            raise invalid("specify either recipe or program, not both", "program")
        return check_program(message.program)
    if message.recipe is not None and message.execution == "simulated":
        return step_time.estimated_name(message.recipe)
    if message.recipe is not None:
        return manifest_of(message.recipe).name
    if message.start_from is None and message.run is None:
        raise invalid("recipe, program or run is required", "recipe")
    return None


def _training(message: TrainingMessage) -> TrainingSettings:
    stopping, best = message.early_stopping, message.best
    values = message.model_dump(exclude={"early_stopping", "best"})
    if stopping is not None:
        way = stopping.mode or usual_way(stopping.metric)
        values["early_stopping"] = EarlyStopping(stopping.metric, way, stopping.patience, stopping.min_delta)
    if best is not None:
        values["best"] = Best(best.metric, best.mode or usual_way(best.metric))
    return TrainingSettings(**values)


def _elastic(message: ElasticMessage) -> Elastic:
    return Elastic(message.min_replicas, message.batch, message.learning_rate or usual_rate(message.batch))


def machine_json(cost: MachineCost) -> MachineAnswer:
    answer: MachineAnswer = {"cpuSeconds": cost.cpu_seconds, "gibSeconds": cost.gib_seconds}
    if cost.amount is not None:
        answer["cost"] = cost.amount.text(EXACT_DECIMALS)
    return answer


def to_api_job(job: Job, progress: JobProgress) -> JobAnswer:
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
        "stepsDone": job.steps_done,
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
        "modelledSeconds": job.modelled_seconds,
        "estimateModel": job.estimate_model,
        "createTime": job.created.rfc3339(),
    }
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
    if spec.keep_node:
        answer["keepNode"] = True
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


def to_api_run(run: UserProgram) -> RunAnswer:
    """What is empty is left out."""
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
        "startFrom": None if start is None else {"objectsPrefix": objects_prefix(start.job_key), "step": start.step},
    }


def from_api_target(message: JobMessage, fleet: Fleet, project: str, zone: str) -> str | NodeSpec:
    """The id of the node to run on, or the node to create for the job."""
    wants_new = message.accelerator_type or message.runtime_version or message.scheduling_config
    if message.node is not None:
        if wants_new:
            raise invalid("node cannot be combined with acceleratorType, runtimeVersion or schedulingConfig", "node")
        prefix = f"projects/{project}/locations/{zone}/nodes/"
        if "/" in message.node and not message.node.startswith(prefix):
            raise invalid(f"node must be an id, or a name that begins with {prefix}", "node")
        return message.node.removeprefix(prefix)
    if not message.accelerator_type:
        raise invalid("node is required, or acceleratorType and runtimeVersion to create one", "node")
    node: dict[str, Any] = {"acceleratorType": message.accelerator_type}
    if message.runtime_version:
        node["runtimeVersion"] = message.runtime_version
    if message.scheduling_config is not None:
        node["schedulingConfig"] = reader.read("v2", "SchedulingConfig", message.scheduling_config, "schedulingConfig")
    fleet.zone(zone)
    return convert.from_api_node("v2", node, lambda name: fleet.type_named(zone, name))
