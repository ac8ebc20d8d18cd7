"""Jobs, attempts and replicas.

A job is a training, evaluation or prediction run on one node. Each try at it is an attempt; an attempt is a gang of
replicas, one process per group of hosts, all or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.machine import Machine

JOB = Machine(
    "job",
    "QUEUED",
    {
        "QUEUED": {"prepare": "PREPARING", "cancel": "CANCELLED", "fail": "FAILED"},
        "PREPARING": {"run": "RUNNING", "recover": "RECOVERING", "cancel": "CANCELLING", "fail": "FAILED"},
        "RUNNING": {"succeed": "SUCCEEDED", "recover": "RECOVERING", "cancel": "CANCELLING", "fail": "FAILED"},
        "RECOVERING": {"prepare": "PREPARING", "cancel": "CANCELLING", "fail": "FAILED"},
        "CANCELLING": {"cancelled": "CANCELLED"},
        "SUCCEEDED": {},
        "FAILED": {},
        "CANCELLED": {},
    },
)

ATTEMPT = Machine(
    "attempt",
    "STARTING",
    {
        "STARTING": {"run": "RUNNING", "end": "ENDING"},
        "RUNNING": {"end": "ENDING"},
        "ENDING": {"ended": "ENDED"},
        "ENDED": {},
    },
)

# `desired` (RUN or STOP) is a column of its own; the state is what the agent or the replica last said.
REPLICA = Machine(
    "replica",
    "PENDING",
    {
        "PENDING": {"start": "STARTING", "run": "RUNNING", "exit": "EXITED"},
        "STARTING": {"run": "RUNNING", "exit": "EXITED"},
        "RUNNING": {"exit": "EXITED"},
        "EXITED": {},
    },
)

HOST = Machine(
    "host",
    "VIRTUAL",
    {
        "VIRTUAL": {"materialise": "RUNNING", "remove": "REMOVED"},
        "RUNNING": {"stop": "VIRTUAL", "remove": "REMOVED"},
        "REMOVED": {},
    },
)

JOB_MODES = ("train", "evaluate", "predict")
JOB_EXECUTIONS = ("real", "simulated")


@dataclasses.dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user asks for. Steps and batch are filled from the recipe's manifest when the user gives none."""

    recipe: str
    arguments: Mapping[str, Any]
    mode: str
    steps: int
    global_batch: int
    seed: int
    checkpoint_every_steps: int
    max_failures: int
    max_preemptions: int
    execution: str
    replica_processes: int | None  # None: one process per host
    labels: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """One try: `attempt` counts from 1, `resume_step` is the checkpoint it started from (0: from the beginning)."""

    attempt_id: str
    job_key: str
    attempt: int
    state: str
    version: int
    resume_step: int
    resume_name: str | None
    outcome: str | None
    reason: str
    started: PlatformTime
    ended: PlatformTime | None


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    job_key: str
    project: str
    zone: str
    job_id: str
    state: str
    state_reason: str
    version: int
    spec: JobSpec
    node_key: str
    node_id: str
    accelerator_type: str
    topology: str
    owns_node: bool
    attempt: int
    failures: int
    preemptions: int
    steps_done: int
    latest: Mapping[str, float]
    wall_seconds: float
    modelled_seconds: float
    estimate_model: str
    created: PlatformTime
    started: PlatformTime | None
    ended: PlatformTime | None
    error_code: int | None
    error_message: str | None

    @property
    def name(self) -> str:
        return job_name(self.project, self.zone, self.job_id)


@dataclasses.dataclass(frozen=True, slots=True)
class Replica:
    """One process of an attempt, on one agent, for the hosts `host_indices` of the slice. `fence` is its lease's."""

    replica_id: str
    attempt_id: str
    job_key: str
    rank: int
    host_indices: Sequence[int]
    agent_id: str
    state: str
    desired: str
    version: int
    fence: int
    address: str | None
    outcome: str | None
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class MetricPoint:
    step: int
    attempt: int
    loss: float
    accuracy: float
    wall_seconds: float
    modelled_seconds: float


def job_name(project: str, zone: str, job_id: str) -> str:
    return f"projects/{project}/locations/{zone}/jobs/{job_id}"


def committed_ranges(attempts: Sequence[Attempt]) -> list[tuple[int, int, int | None]]:
    """The committed step history: (attempt, first step, last step or None) per attempt, ascending.

    Each attempt is cut at the checkpoint that the next one resumed from; what lies beyond the cut is lost work.
    """
    ordered = sorted(attempts, key=lambda a: a.attempt)
    ranges: list[tuple[int, int, int | None]] = []
    for index, attempt in enumerate(ordered):
        first = attempt.resume_step + 1
        last = min((later.resume_step for later in ordered[index + 1 :]), default=None)
        if last is None or last >= first:
            ranges.append((attempt.attempt, first, last))
    return ranges
