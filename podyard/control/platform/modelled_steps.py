"""Steps of a job that no replica computes: they take modelled time on the platform clock."""

from __future__ import annotations

from podyard.base.clock import PlatformTime
from podyard.db.jobs import history as job_history
from podyard.db.platform import faults
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt
from podyard.domain.job import Job

# The time that a step may lack by rounding: its end and the mark before it are whole nanoseconds.
_NEARLY = 1e-6  # of a step
_NEARLY_SECONDS = 2e-9


def last_mark(uow: UnitOfWork, attempt: Attempt) -> tuple[int, PlatformTime]:
    """Return the last step of an attempt that is stored, and when it was done."""
    step, seconds = job_history.sum_until_now(uow, attempt.job_key, attempt.attempt)
    return (attempt.resume_step if step is None else step), attempt.started.plus_seconds(seconds)


def step_seconds(uow: UnitOfWork, job: Job) -> float:
    """Return platform seconds of a step, on a node that a fault may slow down."""
    assert job.spec.step_seconds is not None, job.job_key
    return job.spec.step_seconds * faults.slowness(uow, job.node_key)


def steps_now(uow: UnitOfWork, job: Job, attempt: Attempt) -> int:
    """Return the step that an attempt which runs has done at this moment."""
    last, at = last_mark(uow, attempt)
    seconds = step_seconds(uow, job)
    passed = int(uow.now.seconds_since(at) / seconds + max(_NEARLY, _NEARLY_SECONDS / seconds))
    return min(job.spec.steps, last + passed)
