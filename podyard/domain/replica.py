"""A replica: one process of a job's gang, for one host or several that follow each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum

from podyard.base.clock import PlatformTime, RealTime
from podyard.domain.machine import Machine


class ReplicaState(StrEnum):
    """The last state that the agent or the replica has reported."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"


class Desired(StrEnum):
    """The state that a replica is to be in. YIELD: save its work and leave."""

    RUN = "RUN"
    YIELD = "YIELD"
    STOP = "STOP"


class ReplicaOutcome(StrEnum):
    """The end of a replica, by its own report. REFUSED: its job or its data is wrong, and another
    attempt would fail, too. RELEASED: its machine left, in order or lost (cut off, killed, frozen),
    and took it along."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    YIELDED = "YIELDED"
    REFUSED = "REFUSED"
    RELEASED = "RELEASED"


_S = ReplicaState
REPLICA = Machine(
    "replica",
    _S.PENDING,
    {
        _S.PENDING: {"start": _S.STARTING, "run": _S.RUNNING, "exit": _S.EXITED},
        _S.STARTING: {"run": _S.RUNNING, "exit": _S.EXITED},
        _S.RUNNING: {"exit": _S.EXITED},
        _S.EXITED: {},
    },
)
LIVE_REPLICA_STATES = (_S.PENDING, _S.STARTING, _S.RUNNING)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """`rank` counts from 0. `fence` is the number of its attempt. `token`: what it reports with,
    emptied at the end. `address`: where its peers meet it, once it has joined them. `cpu_micros`,
    `memory_kib_seconds`: what its process has taken of the machine, as it last said."""

    replica_id: str
    attempt_id: str
    job_key: str
    rank: int
    host_indices: Sequence[int]
    agent_id: str
    state: ReplicaState = ReplicaState.PENDING
    desired: Desired = Desired.RUN
    version: int = 1
    fence: int
    token: str
    address: str | None = None
    outcome: ReplicaOutcome | None = None
    reason: str = ""
    lease_until: RealTime | None = None
    cpu_micros: int | None = None
    memory_kib_seconds: int | None = None

    @property
    def is_live(self) -> bool:
        """Return whether its process may be on its chips."""
        return self.state is not ReplicaState.EXITED


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptUse:
    """The use of their machines by all replicas of an attempt so far: CPU time, and resident memory
    over time."""

    job_key: str
    started: PlatformTime
    cpu_micros: int
    memory_kib_seconds: int
