"""Copies of logs in the output of a user's program: `logs/attempt-1/worker-0.log`, once the attempt
has ended.

A timer asks for the copy, and asks again until it is there. Made twice, it is the same object. It
is written by the account that the program has: what that may not write is not copied, and the log
says so.
"""

from __future__ import annotations

import dataclasses

from podyard.base.contents import Content
from podyard.base.errors import PodyardError
from podyard.base.log_files import LogFiles
from podyard.control.compute import hosts
from podyard.control.jobs import log_lines, log_reader
from podyard.control.jobs.log_reader import LineFilter, LinePage
from podyard.control.storage import objects
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import attempts, replicas
from podyard.db.jobs import jobs as rows
from podyard.db.jobs import logs as job_logs
from podyard.db.store import outbox, timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt
from podyard.domain.job import Job
from podyard.domain.stored import ObjectFields
from podyard.domain.user_program import gs_parts

TASK = "podyard.copy_logs"
OWNER = "log"
_TIMER = f"{OWNER}.copy"
AGAIN_SECONDS = 60.0  # of platform time: a copy of the largest logs takes seconds
TRIES_MAX = 10  # then whatever keeps the copy from being made will not go away by itself
LINES_AT_ONCE = 5000
_TEXT = ObjectFields(content_type="text/plain; charset=utf-8")


@dataclasses.dataclass(frozen=True, slots=True)
class LogsToCopy:
    """The logs of one attempt, and where they go: `prefix` ends with "/"."""

    job_key: str
    attempt: int
    ranks: tuple[int, ...]
    bucket: str
    prefix: str

    def name_of(self, rank: int) -> str:
        return f"{self.prefix}logs/attempt-{self.attempt}/worker-{rank}.log"


def ask(uow: UnitOfWork, job: Job, attempt: Attempt) -> None:
    """Has the logs of an attempt that has ended copied, if its program has an output."""
    if job.spec.run is not None and job.spec.run.output:
        timers.put(uow, _TIMER, attempt.attempt_id, 1, uow.now)


def on_timer(uow: UnitOfWork, timer: Timer) -> None:
    outbox.put(uow, outbox.BACKGROUND, TASK, [timer.resource_key])
    if timer.version < TRIES_MAX:
        timers.put(
            uow, _TIMER, timer.resource_key, timer.version + 1, uow.now.plus_seconds(AGAIN_SECONDS)
        )


def find(uow: UnitOfWork, attempt_id: str) -> LogsToCopy:
    attempt = attempts.get(uow, attempt_id)
    run = rows.get(uow, attempt.job_key).spec.run
    assert run is not None, "only programs of users have an output"
    bucket, prefix = gs_parts(f"{run.output.rstrip('/')}/", "output")
    ranks = job_logs.workers_of(uow, attempt.job_key).get(attempt.attempt, [])
    return LogsToCopy(attempt.job_key, attempt.attempt, tuple(ranks), bucket, prefix)


def read(uow: UnitOfWork, files: LogFiles, logs: LogsToCopy, rank: int, place: str) -> LinePage:
    chosen = LineFilter(worker=rank, attempt=logs.attempt)
    return log_reader.page(uow, files, logs.job_key, chosen, place, LINES_AT_ONCE)


def keep(uow: UnitOfWork, attempt_id: str, logs: LogsToCopy, copies: dict[int, Content]) -> None:
    """Makes the copies objects and asks no more. What is refused is a line of the log."""
    job = rows.get(uow, logs.job_key)
    try:
        writer = hosts.programs_principal(uow, node_rows.get_by_key(uow, job.node_key))
        for rank, content in copies.items():
            objects.put(uow, writer, logs.bucket, logs.name_of(rank), content, _TEXT)
    except PodyardError as error:
        first = replicas.of_attempt(uow, attempt_id)[0]
        log_lines.add(
            uow,
            first,
            f"the logs are not copied to gs://{logs.bucket}/{logs.prefix}: {error.message}",
        )
    timers.drop_kind(uow, _TIMER, attempt_id)
