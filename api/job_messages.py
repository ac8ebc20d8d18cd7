"""A job on the wire: what a client submits."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from podyard.api import deps
from podyard.api.tpu import convert, reader
from podyard.base.errors import invalid
from podyard.base.training_settings import USUAL_TRAINING, Best, EarlyStopping, TrainingSettings
from podyard.control.jobs import jobs, type_change
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.job import Elastic, Fallback, Job, JobRequest
from podyard.domain.job_fields import (
    DEFAULT_MAX_FAILURES,
    DEFAULT_MAX_PREEMPTIONS,
    PRIORITY_DEFAULT,
)
from podyard.domain.node import NodeSpec
from podyard.domain.principal import Principal
from podyard.domain.recipes import check_program, manifest_of
from podyard.domain.training import usual_rate, usual_way
from podyard.domain.user_program import ProgramFile, UserProgram
from podyard.http.texts import check_labels


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


class FallbackMessage(_JobMessage):
    """Another place for the created node. `usage`: on-demand, preemptible, spot or reserved."""

    location: StrictStr
    accelerator_type: StrictStr = ""
    usage: StrictStr = ""


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
    """A job as a client submits it. Output-only fields of a Job are refused: they would promise
    what is not in its hand. `clone_of`: a job, by its id or its name, that says what the body does
    not say (`job_clone`)."""

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
    autostop_seconds: StrictInt = 0
    fallbacks: list[FallbackMessage] = Field(default_factory=list)
    num_nodes: StrictInt = 1
    clone_of: StrictStr | None = None
    validate_only: StrictBool = False


class ResizeMessage(_JobMessage):
    """One of both. `replicas`: the most processes that the job is to run with; "max" for its whole
    gang. `acceleratorType`: of the nodes that it goes on on."""

    replicas: StrictInt | Literal["max"] | None = None
    accelerator_type: StrictStr | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.replicas is None) == (self.accelerator_type is None):
            raise ValueError("set either replicas or acceleratorType")
        return self


def resize_as_asked(
    uow: UnitOfWork,
    fleet: Fleet,
    message: ResizeMessage,
    caller: Principal,
    project: str,
    zone: str,
    job_id: str,
) -> Job:
    """Resize a job to the type or to the number of processes that the message names."""
    place = (caller, project, zone, job_id)
    if message.accelerator_type is not None:
        return type_change.resize(uow, fleet, *place, message.accelerator_type)
    return jobs.resize(uow, *place, None if message.replicas == "max" else message.replicas)


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
        autostop_seconds=message.autostop_seconds,
        fallbacks=tuple(
            Fallback(one.location, one.accelerator_type, one.usage) for one in message.fallbacks
        ),
        num_nodes=message.num_nodes,
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
        values["early_stopping"] = EarlyStopping(
            stopping.metric, way, stopping.patience, stopping.min_delta
        )
    if best is not None:
        values["best"] = Best(best.metric, best.mode or usual_way(best.metric))
    return TrainingSettings(**values)


def _elastic(message: ElasticMessage) -> Elastic:
    return Elastic(
        message.min_replicas, message.batch, message.learning_rate or usual_rate(message.batch)
    )


def from_api_target(message: JobMessage, fleet: Fleet, project: str, zone: str) -> str | NodeSpec:
    """The id of the node to run on, or the node to create for the job."""
    wants_new = message.accelerator_type or message.runtime_version or message.scheduling_config
    if message.node is not None:
        if wants_new:
            raise invalid(
                "node cannot be combined with acceleratorType, runtimeVersion or schedulingConfig",
                "node",
            )
        prefix = f"projects/{project}/locations/{zone}/nodes/"
        if "/" in message.node and not message.node.startswith(prefix):
            raise invalid(f"node must be an id, or a name that begins with {prefix}", "node")
        return message.node.removeprefix(prefix)
    if not message.accelerator_type:
        raise invalid("node is required, or acceleratorType to create one", "node")
    usual = fleet.type_named(zone, message.accelerator_type).generation.runtime_version_default
    node: dict[str, Any] = {
        "acceleratorType": message.accelerator_type,
        "runtimeVersion": message.runtime_version or usual,
    }
    if message.scheduling_config is not None:
        node["schedulingConfig"] = reader.read(
            "v2", "SchedulingConfig", message.scheduling_config, "schedulingConfig"
        )
    fleet.zone(zone)
    return convert.from_api_node("v2", node, lambda name: fleet.type_named(zone, name))
