"""An attempt: one try at a job, by a gang of replicas, all or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum

from podyard.base.clock import PlatformTime, RealTime
from podyard.domain.machine import Machine


class AttemptState(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    ENDED = "ENDED"


class AttemptOutcome(StrEnum):
    """RESIZED: the job goes on with a gang of another size. TIMED_OUT: the job has used up its time
    limit."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    PREEMPTED = "PREEMPTED"
    RESIZED = "RESIZED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"


_S = AttemptState
ATTEMPT = Machine(
    "attempt",
    _S.STARTING,
    {
        _S.STARTING: {"run": _S.RUNNING, "end": _S.ENDING},
        _S.RUNNING: {"end": _S.ENDING},
        _S.ENDING: {"ended": _S.ENDED},
        _S.ENDED: {},
    },
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try: `attempt` counts from 1, `resume_step` is the checkpoint it started from (0: from
    the beginning).

    `host_count`, `global_batch`: what it has of the slice and of the job's batch; None: all.
    `yield_real`: when the gang was asked to save and to leave; `yield_outcome`: what its end counts
    as then (None: RESIZED).
    `stacks_real`: when it was last asked what its processes are doing.
    """

    attempt_id: str
    job_key: str
    attempt: int
    state: AttemptState = AttemptState.STARTING
    version: int = 1
    resume_step: int
    host_count: int | None
    global_batch: int | None
    outcome: AttemptOutcome | None = None
    reason: str = ""
    ring_key: str
    started: PlatformTime
    ended: PlatformTime | None = None
    started_real: RealTime
    yield_real: RealTime | None = None
    yield_outcome: AttemptOutcome | None = None
    stacks_real: RealTime | None = None

    @property
    def has_begun_to_end(self) -> bool:
        return self.state in (AttemptState.ENDING, AttemptState.ENDED)


def committed_ranges(attempts: Sequence[Attempt]) -> list[tuple[int, int, int | None]]:
    """The committed step history: (attempt, first step, last step or None) per attempt, ascending.

    Each attempt is cut at the checkpoint that the next one resumed from; what lies beyond the cut
    is lost work.
    """
    ordered = sorted(attempts, key=lambda a: a.attempt)
    ranges: list[tuple[int, int, int | None]] = []
    for index, attempt in enumerate(ordered):
        first = attempt.resume_step + 1
        last = min((later.resume_step for later in ordered[index + 1 :]), default=None)
        if last is None or last >= first:
            ranges.append((attempt.attempt, first, last))
    return ranges
