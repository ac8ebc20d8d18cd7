"""The snapshot for a decision about jobs, and the plan that comes of it (`scheduler/jobs.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.clock import PlatformTime
from podyard.domain.attempt import Attempt, AttemptOutcome
from podyard.domain.gang import GangSize
from podyard.domain.job import Job
from podyard.domain.node import NodeState


@dataclasses.dataclass(frozen=True, slots=True)
class JobSlice:
    """A node that a job runs on. `reclaim`: when it is taken back."""

    node_key: str
    node_id: str
    state: NodeState
    wait_reason: str = ""
    reclaim: PlatformTime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ActiveJob:
    """A job that has not ended. `attempt`: the one that has not ended, and `places`: its live
    replicas by agent.

    `slices`: its nodes, in order. `retry_at`: of the job, as long as it is to come.
    """

    job: Job
    attempt: Attempt | None
    places: Mapping[str, int]
    slices: tuple[JobSlice, ...]
    retry_at: PlatformTime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class JobSnapshot:
    """`free`: places for replicas on each agent that lives; below 0 where one has more than it may
    run, and 0 on one that is being drained.

    `companies`: of each agent the company whose agents may run one gang; "" where it is not named.
    `draining`: agents that take nothing new. `shares`: the weight of a project among those that
    want places; 1 where it is not named.
    """

    jobs: tuple[ActiveJob, ...] = ()
    free: Mapping[str, int] = dataclasses.field(default_factory=dict)
    companies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class StartGang:
    """The next attempt at a job. `agents`: of each replica, by rank. `reason`: what is said if the
    gang is smaller than it might be, and empty for a whole one."""

    job: Job
    size: GangSize
    agents: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class LeaveGang:
    """An attempt that is to leave: its end counts as `outcome`."""

    attempt: Attempt
    outcome: AttemptOutcome
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class JobPlan:
    """The actions of a plan, in this order. `ends`: gangs that stop at once. `yields`: those that
    are asked to save and to leave. `reasons`: why a job waits."""

    ends: tuple[LeaveGang, ...] = ()
    starts: tuple[StartGang, ...] = ()
    yields: tuple[LeaveGang, ...] = ()
    reasons: tuple[tuple[Job, str], ...] = ()
