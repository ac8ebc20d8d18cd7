"""Jobs of `execution: simulated`: no replica computes; steps take modelled time on the platform
clock.

An attempt at one has no replicas. A timer looks at it from mark to mark: a mark is a checkpoint or
the end, and a job has MARKS_MAX of them at most, so that a run of months is a few hundred units of
work. A point of its metrics stands for all steps since the mark before it, and has no values.
States, attempts and the bill are those of every job.
"""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime
from podyard.control.jobs import saved
from podyard.control.platform.modelled_steps import last_mark, step_seconds, steps_now
from podyard.db.jobs import history as job_history
from podyard.db.jobs import jobs as rows
from podyard.db.store import timers
from podyard.db.store.transition import store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt
from podyard.domain.job import Job, JobSpec
from podyard.domain.job_history import CheckpointRecord, MetricPoint

MARK = "job.mark"
MARKS_MAX = 256  # of one job: its page follows it in steps of half a percent
CHECKPOINTS_AT_ONCE_MAX = 1000  # of those that a job keeps all of, between two marks
NO_CONTENT = "0" * 64  # what stands for a checksum: a modelled checkpoint has no file


def begin(uow: UnitOfWork, job: Job, attempt: Attempt) -> None:
    _set_timer(uow, job, attempt, attempt.resume_step, attempt.started)


def follow(uow: UnitOfWork, attempt: Attempt, *, save: bool = False) -> int:
    """Brings what is kept of an attempt to this moment; returns the last step that is done. `save`:
    it leaves in order, with a checkpoint of that step."""
    job = rows.get(uow, attempt.job_key)
    last, at = last_mark(uow, attempt)
    seconds, reached = step_seconds(uow, job), steps_now(uow, job, attempt)
    if reached > last:
        point = MetricPoint(reached, attempt.attempt, {}, 0.0, (reached - last) * seconds)
        job_history.add_points(uow, job.job_key, [point])
    made = list(_checkpoint_steps(job.spec, last, reached))
    if save and reached > attempt.resume_step and reached not in made:
        made.append(reached)
    found = [
        _checkpoint(step, attempt.attempt, at.plus_seconds((step - last) * seconds))
        for step in made
    ]
    if found:
        job_history.add_checkpoints(
            uow, job.job_key, attempt.attempt, saved.that_could_be_written(uow, job, found)
        )
        _prune(uow, job)
    read = rows.get(uow, job.job_key)  # a checkpoint that could not be written has said so
    modelled = read.modelled_seconds + (reached - last) * seconds
    latest = {**read.latest, "step": reached}
    store(
        uow,
        read,
        dataclasses.replace(read, steps_done=reached, modelled_seconds=modelled, latest=latest),
    )
    return reached


def go_on(uow: UnitOfWork, attempt: Attempt) -> None:
    """Sets the timer of the next mark."""
    _set_timer(uow, rows.get(uow, attempt.job_key), attempt, *last_mark(uow, attempt))


def _set_timer(uow: UnitOfWork, job: Job, attempt: Attempt, step: int, at: PlatformTime) -> None:
    due = at.plus_seconds((_next_mark(job.spec, step) - step) * step_seconds(uow, job))
    timers.put(uow, MARK, attempt.attempt_id, attempt.version, max(due, uow.now))


def _next_mark(spec: JobSpec, step: int) -> int:
    every = spec.checkpoint_every_steps or 1
    stride = every * -(-spec.steps // (every * MARKS_MAX))
    return min(spec.steps, (step // stride + 1) * stride)


def _checkpoint_steps(spec: JobSpec, last: int, reached: int) -> range | list[int]:
    """Of the checkpoints between two steps, those that are kept: the newest. The last step always
    has one."""
    every, keep = (
        spec.checkpoint_every_steps or spec.steps,
        spec.training.keep_checkpoints or CHECKPOINTS_AT_ONCE_MAX,
    )
    found = list(range((last // every + 1) * every, reached + 1, every)[-keep:])
    return (
        found
        if last == reached or reached < spec.steps or reached in found
        else [*found, reached][-keep:]
    )


def _checkpoint(step: int, attempt: int, at: PlatformTime) -> CheckpointRecord:
    return CheckpointRecord(step, attempt, f"simulated-{step:08d}", NO_CONTENT, best=False, at=at)


def _prune(uow: UnitOfWork, job: Job) -> None:
    keep = job.spec.training.keep_checkpoints
    steps = [item.step for item in job_history.committed_checkpoints(uow, job.job_key)]
    job_history.remove_checkpoints(uow, job.job_key, steps[keep:] if keep else ())
