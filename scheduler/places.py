"""Shares of the agents' places for processes among jobs, and the elastic gangs that give some back.

A job of higher priority may take places of its project's jobs of lower priority, and an older job
those of younger ones of the same priority. Between projects age alone decides, and only while the
older job's project holds fewer places for its share: a priority compares jobs of one project. No
gang gives so much that it could not go on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.clock import PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class Contender:
    """A job that wants places or has some. `counts`: the numbers of processes it may run with, the
    most first.
    `begun`: it has run before, and waits to go on."""

    job_key: str
    project: str
    priority: int
    created: PlatformTime
    counts: tuple[int, ...]
    begun: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """A gang that runs: `places` are those that it has on agents that live."""

    job: Contender
    places: int

    def gives(self) -> list[int]:
        """Return how many places it may give back and go on, the fewest first."""
        return sorted(self.places - count for count in self.job.counts if count < self.places)


def comes_before(one: Contender, other: Contender) -> bool:
    """Return whether `other` makes room for `one`."""
    if one.project == other.project and one.priority != other.priority:
        return one.priority > other.priority
    return (one.created, one.job_key) < (other.created, other.job_key)


def left_for_others(job: Contender, waiting: Sequence[Contender], free: int) -> int:
    """Places that a job leaves free beyond its own least: those that others who come before it need
    to start, and all that a gang had which has begun, if this job has not: it shrank for it by no
    more than it had to."""
    left = 0
    for other in waiting:
        if other.job_key == job.job_key or other.counts[-1] > free:
            continue  # what cannot start now either way keeps nothing from others
        if other.begun and not job.begun:
            left += other.counts[0]
        elif comes_before(other, job):
            left += other.counts[-1]
    return left


def count_for(job: Contender, waiting: Sequence[Contender], free: int) -> int | None:
    """With how many processes a job starts now; None when its least number has no room."""
    room = free - left_for_others(job, waiting, free)
    least = job.counts[-1] if job.counts[-1] <= free else None
    return next((count for count in job.counts if count <= room), least)


def who_shrinks(
    job: Contender,
    holders: Sequence[Holder],
    free: int,
    held: Mapping[str, int],
    shares: Mapping[str, float],
) -> list[Holder]:
    """The gangs that together give back what a waiting job is short of, with as few places as can
    be: one gang if one
    is enough, else those that come last. Empty when they cannot, or need not.

    `held`: places by project; `shares`: its weight, 1 where it is not named.
    """
    missing = job.counts[-1] - free
    able = [
        item for item in holders if item.gives() and _may_take(job, item, missing, held, shares)
    ]
    enough = [item for item in able if item.gives()[-1] >= missing]
    if missing <= 0:
        return []
    if enough:
        return [min(enough, key=lambda item: (_least_given(item, missing), *_last(item)))]
    chosen: list[Holder] = []
    for item in sorted(able, key=_last):
        chosen.append(item)
        missing -= item.gives()[-1]
        if missing <= 0:
            return chosen
    return []


def _least_given(holder: Holder, missing: int) -> int:
    return next(given for given in holder.gives() if given >= missing)


def _last(holder: Holder) -> tuple[int, int, str]:
    """The lower priority first, then the younger job."""
    return (holder.job.priority, -holder.job.created.nanos, holder.job.job_key)


def _may_take(
    job: Contender,
    holder: Holder,
    missing: int,
    held: Mapping[str, int],
    shares: Mapping[str, float],
) -> bool:
    if not comes_before(job, holder.job):
        return False
    own, other = job.project, holder.job.project
    if own == other:
        return True
    after = (held.get(own, 0) + job.counts[-1]) / shares.get(own, 1.0)
    return after <= (held.get(other, 0) - missing) / shares.get(other, 1.0)
