"""Attempts: a gang of replicas is started whole, watched, ended whole, and only then does the job
go on.

What happens is decided in `scheduler/jobs.py` (which gangs start and leave) and
`scheduler/attempts.py` (what follows from what replicas say). Here it is carried out, in the unit
that read what was decided from. A gang that has changed since is left alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.errors import Code, PodyardError
from podyard.base.ids import row_id
from podyard.base.rng import secret_token
from podyard.control.access import identity
from podyard.control.compute import hosts
from podyard.control.jobs import log_copies, log_lines, modelled
from podyard.control.platform.agents import poke
from podyard.db.access import credentials
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import attempts, replicas
from podyard.db.jobs import history as job_history
from podyard.db.jobs import jobs as rows
from podyard.db.jobs import snapshot as job_snapshot
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.transition import create_record, move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.job import JOB, Job, StartFrom
from podyard.domain.job_plan import JobPlan, LeaveGang, StartGang
from podyard.domain.replica import Desired, Replica
from podyard.scheduler import attempts as rules
from podyard.scheduler.jobs import decide_size_of, decide_sizes, decide_starts

# so does the job
_GOES_ON = (AttemptOutcome.FAILED, AttemptOutcome.PREEMPTED, AttemptOutcome.RESIZED)


def start_waiting(uow: UnitOfWork, shares: Mapping[str, float] | None = None) -> int:
    """Starts an attempt at every waiting job that can run now; returns how many.

    `shares`: the weight of a project among those that want places; 1 where it is not named.
    """
    plan = decide_starts(job_snapshot.load(uow, shares or {}), uow.real_now)
    _apply(uow, plan)
    return len(plan.starts)


def resize(uow: UnitOfWork) -> None:
    """Asks a gang of another size than it may have to leave, and ends those that have not left in
    time."""
    _apply(uow, decide_sizes(job_snapshot.load(uow, {}), uow.real_now))


def follow_size(uow: UnitOfWork, job_key: str) -> None:
    """After another size was set for a job: asks its gang to leave at once, unless another gang is
    just doing so."""
    _apply(uow, decide_size_of(job_snapshot.load(uow, {}), job_key))


def _apply(uow: UnitOfWork, plan: JobPlan) -> None:
    for leave in plan.ends:
        if (attempt := _attempt_of(uow, leave)) is not None:
            end(uow, attempt, leave.outcome, leave.reason)
    for start in plan.starts:
        _start(uow, start)
    for leave in plan.yields:
        if (attempt := _attempt_of(uow, leave)) is not None:
            ask_to_yield(uow, attempt, leave.outcome, leave.reason)
    for job, why in plan.reasons:
        _say_why(uow, job, why)


def _attempt_of(uow: UnitOfWork, leave: LeaveGang) -> Attempt | None:
    """The attempt, locked where the database has locks, if it is what was decided about."""
    attempt = attempts.get(uow, leave.attempt.attempt_id)
    return attempt if attempt.version == leave.attempt.version else None


def _say_why(uow: UnitOfWork, job: Job, why: str) -> None:
    store(uow, job, dataclasses.replace(job, state_reason=why))


def _start(uow: UnitOfWork, start: StartGang) -> None:
    job, number = start.job, start.job.attempt + 1
    if job.spec.run is not None:
        try:
            start = dataclasses.replace(start, agents=_agents_of_hosts(uow, job))
        except PodyardError as error:
            return _say_why(uow, job, error.message)
    saved = job_history.committed_checkpoints(uow, job.job_key)
    resume_step = saved[0].step if saved else 0
    attempt_id = row_id(uow.streams.stream("attempts"), "attempt")
    attempt = Attempt(
        attempt_id=attempt_id,
        job_key=job.job_key,
        attempt=number,
        resume_step=resume_step,
        host_count=start.size.host_count,
        global_batch=start.size.global_batch,
        ring_key=secret_token(24),
        started=uow.now,
        started_real=uow.real_now,
    )
    create_record(uow, attempt, reason=f"from step {resume_step}")
    _add_replicas(uow, attempt, start)
    _limit(uow, job, attempt)
    for agent_id in sorted(set(start.agents)):
        poke(uow, agent_id)
    changed = dataclasses.replace(
        job,
        state_reason=start.reason,
        attempt=number,
        steps_done=resume_step,
        modelled_seconds=job_history.modelled_seconds_until(uow, job.job_key, resume_step)
        if job.spec.run is None
        else job.modelled_seconds,
        started=job.started or uow.now,
    )
    moved = move(
        uow,
        job,
        "prepare",
        reason=start.reason or f"attempt {number} from step {resume_step}",
        changed=changed,
    )
    if job.spec.is_modelled:
        modelled.begin(uow, moved, _run(uow, attempt))
    return None


def _agents_of_hosts(uow: UnitOfWork, job: Job) -> tuple[str, ...]:
    """A user's program runs on the hosts of its nodes, so each replica goes to the agent of its
    host. Raises where
    hosts cannot run now, with the reason."""
    live = hosts.materialise_all(uow, node_rows.of_job(uow, job.job_key))
    return tuple(host.agent_id for host in live if host.agent_id is not None)


def _limit(uow: UnitOfWork, job: Job, attempt: Attempt) -> None:
    """Sets the end of what earlier attempts have left of the job's time."""
    limit_seconds = job.spec.time_limit_seconds
    if limit_seconds:
        earlier = (one for one in attempts.of_job(uow, job.job_key) if one.ended is not None)
        used = sum(one.ended.nanos_since(one.started) for one in earlier if one.ended is not None)
        due = uow.now.plus_nanos(max(0, limit_seconds * NANOS_PER_SECOND - used))
        timers.put(uow, "attempt.limit", attempt.attempt_id, 0, due)


def on_timer(uow: UnitOfWork, timer: Timer) -> None:
    """An attempt has used up its job's time; or a job may try again, and then the loop looks at it
    by itself."""
    if timer.kind == "attempt.limit":
        attempt = attempts.get(uow, timer.resource_key)
        text = "the job's time limit is over"
        if attempt.state is AttemptState.RUNNING and attempt.yield_real is None:
            ask_to_yield(uow, attempt, AttemptOutcome.TIMED_OUT, text)
        else:
            end(uow, attempt, AttemptOutcome.TIMED_OUT, text)


def _add_replicas(uow: UnitOfWork, attempt: Attempt, start: StartGang) -> None:
    if not start.agents:
        return
    token = identity.issue(uow, f"{attempt.attempt_id}@jobs.podyard.local", attempt.attempt_id)
    for rank, agent_id in enumerate(start.agents):
        replica = Replica(
            replica_id=row_id(uow.streams.stream("replicas"), "replica"),
            attempt_id=attempt.attempt_id,
            job_key=attempt.job_key,
            rank=rank,
            host_indices=start.size.hosts_of(rank),
            agent_id=agent_id,
            fence=attempt.attempt,
            token=token,
        )
        create_record(uow, replica, reason="gang placed")


def ask_to_yield(uow: UnitOfWork, attempt: Attempt, outcome: AttemptOutcome, text: str) -> None:
    """Asks a gang that runs to save and to leave; its end then counts as `outcome`. What is not
    running has nothing to save, and one that has been asked knows: neither is asked."""
    if attempt.state is not AttemptState.RUNNING or attempt.yield_real is not None:
        return
    if rows.get(uow, attempt.job_key).spec.is_modelled:
        modelled.follow(uow, attempt, save=True)
        end(uow, attempt, outcome, text)
        return
    store(
        uow, attempt, dataclasses.replace(attempt, yield_real=uow.real_now, yield_outcome=outcome)
    )
    replicas.set_desired(uow, attempt.attempt_id, Desired.YIELD)
    rows.set_reason(uow, attempt.job_key, text)


def settle(uow: UnitOfWork, attempt_id: str, known: Attempt | None = None) -> None:
    """Brings an attempt and its job to where its replicas say that they are. Does nothing when
    nothing follows.

    `known`: the attempt, if this unit has read and not moved it.
    """
    attempt = attempts.get(uow, attempt_id) if known is None else known
    if attempt.state is AttemptState.ENDED:
        return
    gang = replicas.of_attempt(uow, attempt_id)
    found = rules.settle(attempt, gang)
    if found.runs:
        attempt = _run(uow, attempt)
    if found.outcome is not None:
        attempt = end(uow, attempt, found.outcome, found.reason)
    if found.blamed is not None:
        log_lines.add(uow, found.blamed, f"attempt {attempt.attempt} failed: {found.blamed.reason}")
    if found.is_over:
        _finish(uow, attempt, gang)


def _run(uow: UnitOfWork, attempt: Attempt) -> Attempt:
    moved = move(uow, attempt, "run", reason="all replicas run")
    job = rows.get(uow, attempt.job_key)
    if JOB.allows(job.state, "run"):
        move(uow, job, "run", reason="all replicas run")
    return moved


def end(uow: UnitOfWork, attempt: Attempt, outcome: AttemptOutcome, reason: str) -> Attempt:
    """Asks every replica to stop; the attempt has ended once all have exited, and at once if there
    are none. Returns it as it stands now."""
    if attempt.has_begun_to_end:
        return attempt
    gang = replicas.of_attempt(uow, attempt.attempt_id)
    if not gang:
        modelled.follow(uow, attempt)
        timers.drop(uow, attempt.attempt_id)
    changed = dataclasses.replace(attempt, outcome=outcome, reason=reason)
    ending = move(uow, attempt, "end", reason=reason, changed=changed)
    replicas.set_desired(uow, attempt.attempt_id, Desired.STOP)
    for agent_id in sorted({replica.agent_id for replica in gang if replica.is_live}):
        poke(uow, agent_id)
    job = rows.get(uow, attempt.job_key)
    if outcome in _GOES_ON and JOB.allows(job.state, "recover"):
        move(
            uow,
            job,
            "recover",
            reason=reason,
            changed=dataclasses.replace(job, state_reason=reason),
        )
    return ending if gang else _finish(uow, ending, gang)


def on_mark(uow: UnitOfWork, timer: Timer) -> None:
    """A modelled attempt comes to its next mark. A timer of one that has ended does nothing."""
    attempt = attempts.get(uow, timer.resource_key)
    if attempt.state is not AttemptState.RUNNING or attempt.version != timer.version:
        return
    if modelled.follow(uow, attempt) >= rows.get(uow, attempt.job_key).spec.steps:
        end(uow, attempt, AttemptOutcome.SUCCEEDED, "all steps are done")
    else:
        modelled.go_on(uow, attempt)


def end_on_node(uow: UnitOfWork, node_key: str, reason: str) -> None:
    """Ends the gangs on a node that is lost to them."""
    for attempt in attempts.list_open_on_node(uow, node_key):
        end(uow, attempt, AttemptOutcome.PREEMPTED, reason)


def _finish(uow: UnitOfWork, attempt: Attempt, gang: list[Replica]) -> Attempt:
    outcome = rules.final_outcome(attempt, gang)
    over = dataclasses.replace(attempt, ended=uow.now, outcome=outcome)
    attempt = ended = move(uow, attempt, "ended", reason=str(outcome), changed=over)
    credentials.revoke_attempt(uow, attempt.attempt_id)
    replicas.remove_tokens(uow, attempt.attempt_id)
    before = rows.get(uow, attempt.job_key)
    job = dataclasses.replace(
        before,
        failures=before.failures + (attempt.outcome is AttemptOutcome.FAILED),
        preemptions=before.preemptions + (attempt.outcome is AttemptOutcome.PREEMPTED),
        wall_seconds=before.wall_seconds + uow.real_now.seconds_since(attempt.started_real),
    )
    ending = rules.job_end(job, attempt, gang)
    delay_seconds = rules.retry_delay_seconds(job, attempt)
    if ending is None and delay_seconds:
        retry_at = uow.now.plus_seconds(delay_seconds)
        job = dataclasses.replace(job, retry_at=retry_at)
        timers.put(uow, "attempt.retry", job.job_key, 0, retry_at)
    store(uow, before, job)
    log_copies.ask(uow, job, ended)
    if ending is not None:
        finish_job(uow, job, *ending)
    return ended


def pin(uow: UnitOfWork, start: StartFrom | None) -> None:
    """Keeps a checkpoint that a job starts from, and all newer ones, until that job has ended."""
    if start is not None:
        source = rows.get(uow, start.job_key)
        store(
            uow,
            source,
            dataclasses.replace(source, pinned_steps=[*source.pinned_steps, start.step]),
        )


def _unpin(uow: UnitOfWork, start: StartFrom | None) -> None:
    if start is not None:
        source = rows.get(uow, start.job_key)
        left = list(source.pinned_steps)
        if start.step in left:  # not of a job that an older Podyard has made
            left.remove(start.step)
        store(uow, source, dataclasses.replace(source, pinned_steps=left))


def finish_job(uow: UnitOfWork, job: Job, event: str, code: Code | None, message: str) -> None:
    _unpin(uow, job.spec.start_from)
    stays = job.spec.keep_node or job.spec.autostop_seconds > 0
    if job.owns_node and job.spec.autostop_seconds > 0:
        timers.put(
            uow, "autostop.job", job.job_key, 0, uow.now.plus_seconds(job.spec.autostop_seconds)
        )
    changed = dataclasses.replace(
        job, ended=uow.now, state_reason=message, owns_node=job.owns_node and not stays
    )
    if code is not None:
        changed = dataclasses.replace(changed, error_code=int(code), error_message=message)
    move(uow, job, event, reason=message, changed=changed)
