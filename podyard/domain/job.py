"""Jobs.

A job is a training, evaluation or prediction run on one node. Each try at it is an attempt; an
attempt is a gang of replicas, one process per group of hosts, all or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from podyard.base.clock import PlatformTime
from podyard.base.training_settings import USUAL_TRAINING, TrainingSettings
from podyard.domain.attempt import Attempt
from podyard.domain.job_fields import (
    DEFAULT_MAX_FAILURES,
    DEFAULT_MAX_PREEMPTIONS,
    PRIORITY_DEFAULT,
)
from podyard.domain.machine import Machine
from podyard.domain.user_program import UserProgram
from podyard.hardware.accelerator_types import AcceleratorType, kind_of


class JobState(StrEnum):
    QUEUED = "QUEUED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_S = JobState
JOB = Machine(
    "job",
    _S.QUEUED,
    {
        _S.QUEUED: {"prepare": _S.PREPARING, "cancel": _S.CANCELLED, "fail": _S.FAILED},
        _S.PREPARING: {
            "run": _S.RUNNING,
            "recover": _S.RECOVERING,
            "cancel": _S.CANCELLING,
            "fail": _S.FAILED,
        },
        _S.RUNNING: {
            "succeed": _S.SUCCEEDED,
            "recover": _S.RECOVERING,
            "cancel": _S.CANCELLING,
            "fail": _S.FAILED,
        },
        _S.RECOVERING: {"prepare": _S.PREPARING, "cancel": _S.CANCELLING, "fail": _S.FAILED},
        _S.CANCELLING: {"cancelled": _S.CANCELLED},
        _S.SUCCEEDED: {},
        _S.FAILED: {},
        _S.CANCELLED: {},
    },
)
WAITING_JOB_STATES = (_S.QUEUED, _S.RECOVERING)  # it has no attempt, or one that ends
ENDED_JOB_STATES = (_S.SUCCEEDED, _S.FAILED, _S.CANCELLED)
ACTIVE_JOB_STATES = tuple(state for state in JobState if state not in ENDED_JOB_STATES)

JOB_MODES = ("train", "evaluate", "predict", "export")
JOB_EXECUTIONS = ("real", "simulated")


@dataclasses.dataclass(frozen=True, slots=True)
class Elastic:
    """A job that goes on with fewer processes while its whole gang has no room, and grows back.

    `batch` keep: the global batch stays; scale: it shrinks with the hosts. `learning_rate` linear:
    it shrinks, too. `max_replicas`: it does not grow beyond; None: up to the whole gang.
    """

    min_replicas: int
    batch: str
    learning_rate: str
    max_replicas: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StartFrom:
    """The checkpoint of another job that a job begins with."""

    job_id: str
    job_key: str
    step: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fallback:
    """Another place for a job's node when there is no capacity before it. Empty: as it was asked
    for first."""

    zone: str
    accelerator_type: str = ""
    usage_class: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FormerType:
    """The type that a job had until its attempt `last_attempt`."""

    last_attempt: int
    accelerator_type: str
    topology: str


class JobFact(NamedTuple):
    """A line about a job on its page: a job with a link, pieces of code, a text."""

    label: str
    text: str = ""
    job_id: str = ""
    codes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """The terms that a job was asked for with. A field more is a row of `job_fields.JOB_FIELDS`,
    too.

    `step_seconds`: of `execution` simulated: what a step takes; None: what the timing model says of
    it. `replica_processes` None: one per host. `priority`: the higher goes first, and takes nodes
    and places of lower ones of its project. `run`: a user's own program, instead of a recipe.
    `time_limit_seconds`: of platform time that its attempts may take together; 0: no limit.
    `retry_delay_seconds`: between a failed attempt and the next; each further failure doubles it.
    `keep_node`: a node that was made for the job stays when it has ended. `autostop_seconds`: it
    stays until no job has run on it for so long; 0: it goes with the job.
    `fallbacks`: other places for that node, in this order. `num_nodes`: slices of the type that are
    made for it, and on whose hosts its program runs as one gang.
    """

    mode: str = "train"
    max_failures: int = DEFAULT_MAX_FAILURES
    max_preemptions: int = DEFAULT_MAX_PREEMPTIONS
    execution: str = "real"
    step_seconds: float | None = None
    replica_processes: int | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    training: TrainingSettings = USUAL_TRAINING
    elastic: Elastic | None = None
    priority: int = PRIORITY_DEFAULT
    time_limit_seconds: int = 0
    retry_delay_seconds: int = 0
    run: UserProgram | None = None
    keep_node: bool = False
    autostop_seconds: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    num_nodes: int = 1

    def node_ids(self, job_id: str) -> list[str]:
        """Of the nodes that are made for a job of this id: as the slices of a multislice with that
        prefix."""
        return [job_id] if self.num_nodes == 1 else slice_node_ids(f"{job_id}-0", self.num_nodes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(JobTerms):
    """A job as a user asks for it; None is what the recipe's manifest, or the job that it starts
    from, decides.

    `recipe` may be a program, "module:function". `start_from`: a job's id and a step, None for the
    newest.
    """

    recipe: str | None = None
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = None
    global_batch: int | None = None
    seed: int | None = None
    checkpoint_every_steps: int | None = None
    start_from: tuple[str, int | None] | None = None


def export_request(job_id: str, step: int | None) -> JobRequest:
    """Return the request for an export of a job's checkpoint, the newest without a step."""
    return JobRequest(mode="export", start_from=(job_id, step))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(JobTerms):
    """The work of a job: a request with everything decided. A program is carried in `recipe`: it
    has a colon. With `run` there is no recipe, and there are no steps that the platform knows.
    `next_type`: that of the nodes which are about to replace the job's; empty: none are.
    `former_types`: those that it had before its present one, the oldest first."""

    recipe: str
    arguments: Mapping[str, Any]
    steps: int
    global_batch: int
    seed: int
    checkpoint_every_steps: int
    start_from: StartFrom | None = None
    next_type: str = ""
    former_types: tuple[FormerType, ...] = ()

    @property
    def is_modelled(self) -> bool:
        """Return whether its steps pass by the platform clock, and nothing computes."""
        return self.execution == "simulated"

    @property
    def title(self) -> str:
        """Return what it runs, in a few words."""
        return self.recipe if self.run is None else self.run.title

    def facts(self) -> Iterator[JobFact]:
        if self.run is not None:
            yield JobFact("Runs", codes=(self.run.title, *self.run.args))
            if self.run.source is not None:
                yield JobFact("Source", codes=(self.run.source.uri,))
            if self.run.output:
                yield JobFact("Output", codes=(self.run.output,))
            if names := (*self.run.env, *self.run.secrets):
                yield JobFact("Environment", codes=names)
            return
        yield JobFact("Program" if ":" in self.recipe else "Recipe", f"{self.recipe}, {self.mode}")
        if self.step_seconds is not None:
            yield JobFact(
                "Simulated", f"a step takes {self.step_seconds:.6g} s on the platform clock"
            )
        if self.start_from is not None:
            yield JobFact(
                "Started from", f"step {self.start_from.step}", job_id=self.start_from.job_id
            )
        if self.elastic is not None:
            least, batch, rate = (
                self.elastic.min_replicas,
                self.elastic.batch,
                self.elastic.learning_rate,
            )
            replicas = f"{least:,} replica{'' if least == 1 else 's'}"
            yield JobFact("Elastic", f"from {replicas}; batch: {batch}, learning rate: {rate}")
        yield JobFact(
            "Arguments", codes=tuple(f"{name}={value}" for name, value in self.arguments.items())
        )
        yield JobFact("Batch, seed", f"{self.global_batch}, {self.seed}")

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> JobSpec:
        """Return what `dataclasses.asdict` made; what an older Podyard did not store is as
        usual."""
        elastic, start_from, run = (stored.get(name) for name in ("elastic", "start_from", "run"))
        nested = {
            "training": TrainingSettings.of_stored(stored.get("training", {})),
            "elastic": elastic and Elastic(**elastic),
            "start_from": start_from and StartFrom(**start_from),
            "fallbacks": tuple(Fallback(**one) for one in stored.get("fallbacks", ())),
            "run": run and UserProgram.of_stored(run),
            "former_types": tuple(FormerType(**one) for one in stored.get("former_types", ())),
        }
        return cls(**{**stored, **nested})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`owns_node`: its node was made for it. `latest`: the newest figures, and what the job says of
    itself. `created_by`: who submitted it; empty: nobody knows any more. `retry_at`: before it, no
    attempt follows one that has failed. `sweep_id`, `sweep_index`: the sweep that it is one of, and
    its number there.
    `pinned_steps`: of its checkpoints, once for each job that starts from one and has not ended.
    `node_zone`: of its node, if it is another one; `fallbacks_used`: how many of its fallbacks had
    their turn."""

    job_key: str
    project: str
    zone: str
    job_id: str
    state: JobState = JobState.QUEUED
    state_reason: str = ""
    version: int = 1
    spec: JobSpec
    node_key: str
    node_id: str
    accelerator_type: str
    topology: str
    owns_node: bool
    attempt: int = 0
    failures: int = 0
    preemptions: int = 0
    steps_done: int = 0
    latest: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    wall_seconds: float = 0.0
    modelled_seconds: float = 0.0
    estimate_model: str = "tpu-model"
    created: PlatformTime
    started: PlatformTime | None = None
    ended: PlatformTime | None = None
    error_code: int | None = None
    error_message: str | None = None
    created_by: str = ""
    retry_at: PlatformTime | None = None
    sweep_id: str = ""
    sweep_index: int | None = None
    pinned_steps: Sequence[int] = ()
    node_zone: str = ""
    fallbacks_used: int = 0

    @property
    def node_ids(self) -> list[str]:
        """Of its nodes, in the order of its slices."""
        return slice_node_ids(self.node_id, self.spec.num_nodes)

    @property
    def zone_of_node(self) -> str:
        return self.node_zone or self.zone

    @property
    def name(self) -> str:
        return job_name(self.project, self.zone, self.job_id)

    @property
    def kind(self) -> AcceleratorType:
        return kind_of(self.accelerator_type, self.topology)

    def kind_at(self, attempt: int) -> AcceleratorType:
        """Return the type that the job had in an attempt."""
        for one in self.spec.former_types:
            if attempt <= one.last_attempt:
                return kind_of(one.accelerator_type, one.topology)
        return self.kind

    @property
    def spec_with_former_type(self) -> JobSpec:
        """Return the spec for a job that leaves its type, which is then among the former ones."""
        if not self.attempt:
            return self.spec
        last = FormerType(self.attempt, self.accelerator_type, self.topology)
        return dataclasses.replace(self.spec, former_types=(*self.spec.former_types, last))

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_JOB_STATES

    @property
    def wants_own_node(self) -> bool:
        """Return whether a copy of the job gets nodes that are made for it. With autostop the first
        ones outlive the job, but not for long: no copy can count on them. Several slices are always
        made."""
        return self.owns_node or self.spec.autostop_seconds > 0 or self.spec.num_nodes > 1

    def slice_of(self, rank: int) -> int | None:
        """The number of the slice that a replica runs on; None where there is one slice only."""
        return rank // self.kind.host_count if self.spec.num_nodes > 1 else None

    @property
    def stop_reason(self) -> object:
        """Why the job ended its training before its steps, where it says so."""
        return self.latest.get("stopReason")

    def size_of(self, attempt: Attempt) -> tuple[int, int]:
        """(hosts, global batch) of an attempt of this job."""
        hosts, batch = attempt.host_count, attempt.global_batch
        return (
            self.kind_at(attempt.attempt).host_count if hosts is None else hosts,
            self.spec.global_batch if batch is None else batch,
        )


def slice_node_ids(first: str, num_nodes: int) -> list[str]:
    """Of all nodes of a job, by that of its first slice."""
    prefix = first.rpartition("-")[0]
    return [first] if num_nodes == 1 else [f"{prefix}-{index}" for index in range(num_nodes)]


def job_name(project: str, zone: str, job_id: str) -> str:
    return f"projects/{project}/locations/{zone}/jobs/{job_id}"


def objects_prefix(job_key: str) -> str:
    """Return what the names of a job's artefacts begin with, in the objects folder that all jobs
    share."""
    return f"jobs/{job_key}/"
