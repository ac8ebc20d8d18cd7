"""Lines of jobs' logs. Their times are platform time, as all times of a job are."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.clock import RATE_ONE, ClockMode, PlatformTime, RealTime
from podyard.db import attempts, job_logs
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.replica import Replica

LOG_LINE_CHARACTERS_MAX = 4096
LOG_LINES_PER_REPLICA_MAX = 100_000  # what a person can read; beyond it lines are dropped, the job goes on


def keep(uow: UnitOfWork, replica: Replica, lines: Sequence[tuple[int, RealTime, str]]) -> None:
    """Keeps what a replica has written (seq, real time, line), each line once."""
    if not lines:
        return
    newest = job_logs.newest(uow, replica.replica_id)
    last, begin = newest or (-1, attempts.get(uow, replica.attempt_id).started)
    fresh = []
    for seq, at, line in lines:
        if last < seq < LOG_LINES_PER_REPLICA_MAX:
            begin = max(begin, _platform_time(uow, at))  # lines stay in the order in which they were written
            fresh.append((seq, begin, line[:LOG_LINE_CHARACTERS_MAX]))
    job_logs.add(uow, replica, fresh)


def add(uow: UnitOfWork, replica: Replica, line: str) -> None:
    """Adds a line of the platform's own to the log of a replica that writes no more."""
    newest = job_logs.newest(uow, replica.replica_id)
    seq, at = (0, uow.now) if newest is None else (newest[0] + 1, max(newest[1], uow.now))
    job_logs.add(uow, replica, [(seq, at, line[:LOG_LINE_CHARACTERS_MAX])])


def _platform_time(uow: UnitOfWork, at: RealTime) -> PlatformTime:
    """What the platform's clock showed at a real time shortly before this unit. A clock that jumped meanwhile showed
    less: such a line is dated too late by the jump at most, and never in the future."""
    ago = max(0, uow.real_now.nanos_since(at))
    clock = uow.clock
    if clock.mode is ClockMode.VIRTUAL:
        ago = ago * clock.rate_millionths // RATE_ONE
    elif not clock.running and clock.mode is ClockMode.LOCAL:
        ago = 0
    return uow.now.plus_nanos(-ago)
