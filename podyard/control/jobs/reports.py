"""Reports of agents and replicas, and the answers to them. Every word carries a fence; an old one
is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import RealTime
from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.base.log_files import LogFiles
from podyard.control.compute.hosts import facts
from podyard.control.jobs import log_lines, saved
from podyard.control.jobs.gangs import settle
from podyard.control.jobs.host_use import ReplicaUse
from podyard.control.platform import agents
from podyard.db.compute import hosts as host_rows
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import attempts, replicas
from podyard.db.jobs import files as job_files
from podyard.db.jobs import history as job_history
from podyard.db.jobs import jobs as rows
from podyard.db.platform import agents as agent_rows
from podyard.db.platform import faults
from podyard.db.store.transition import move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt
from podyard.domain.host import NodeFacts
from podyard.domain.host_record import HostRecord
from podyard.domain.job import Job, objects_prefix
from podyard.domain.job_history import CheckpointRecord, EvaluationRecord, MetricPoint
from podyard.domain.log import WrittenLines
from podyard.domain.principal import Principal
from podyard.domain.ran_module import ProgramRun
from podyard.domain.replica import REPLICA, Desired, Replica, ReplicaOutcome, ReplicaState


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaReport:
    """An agent's report on one process."""

    replica: str
    fence: int
    state: str
    reason: str
    released: bool = False  # the agent left in order and took the process along


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """A replica's report on itself. Points, checkpoints and lines may come twice: they are kept
    once. The attempt of each is the fence."""

    fence: int
    state: str
    error: str | None
    points: Sequence[MetricPoint]
    evaluations: Sequence[EvaluationRecord]
    checkpoints: Sequence[CheckpointRecord]
    pruned: Sequence[int]  # steps whose checkpoints are gone
    summary: Mapping[str, Any]
    resumed_step: int | None = None  # if the checkpoint that was chosen is torn
    is_permanent: bool = False  # of an error: every other attempt would end with it
    written: WrittenLines | None = None
    # of its machine so far: CPU microseconds, KiB-seconds of memory
    used: tuple[int, int] | None = None
    run: ProgramRun | None = None  # of a user's program, as far as it has run


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaInstruction:
    """The instruction to a replica. `next_line`: the number of the line of its log that is expected
    next. `stacks_real`: when its stacks were last asked for. `use`: what its hosts have given
    it."""

    desired: Desired
    next_line: int
    stacks_real: RealTime | None
    use: ReplicaUse | None


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """Everything that a replica needs to run. `host`: the one that a user's program runs on.
    `slices`: what the hosts
    of each slice know of it, where the job has several."""

    job: Job
    attempt: Attempt
    replica: Replica
    process_count: int
    bind_address: str
    host: HostRecord | None
    slices: tuple[NodeFacts, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """The files that a replica reads and writes outside of its machine. `objects`, `source`:
    prefixes of objects, its own job's and the one's that it starts from. `data`: its folder below
    the data sets. `has_program`: its recipe is a program of the platform's folder of programs."""

    objects: str
    source: str | None
    data: str | None
    has_program: bool


def sync(
    uow: UnitOfWork,
    principal: Principal,
    agent_id: str,
    fence: int,
    reports: Sequence[ReplicaReport],
) -> list[Replica]:
    """Takes what the agent saw; returns its live replicas.

    A replica that is to yield goes on by itself until it has: to its agent it is to RUN.
    """
    agents.require_agent(principal, agent_id)
    agents.note_seen(uow, agent_id, fence)
    for report in reports:
        _take(uow, agent_id, report)
    return [_as_told(replica) for replica in replicas.list_live(uow, agent_id)]


def _as_told(replica: Replica) -> Replica:
    return (
        replica
        if replica.desired is Desired.STOP
        else dataclasses.replace(replica, desired=Desired.RUN)
    )


def _take(uow: UnitOfWork, agent_id: str, report: ReplicaReport) -> None:
    replica = replicas.find(uow, report.replica)
    if replica is None or replica.agent_id != agent_id:
        return
    if replica.fence != report.fence or not replica.is_live:
        return  # of an attempt that is over: the agent forgets it when the answer does not list it
    if report.state == ReplicaState.EXITED:
        gone = replica
        if not replica.reason:
            outcome = (
                ReplicaOutcome.RELEASED
                if report.released and replica.outcome is None
                else replica.outcome
            )
            gone = dataclasses.replace(replica, reason=report.reason, outcome=outcome)
        move(uow, replica, "exit", reason=report.reason, changed=gone)
        settle(uow, replica.attempt_id)
    elif REPLICA.allows(replica.state, "start"):
        lease_until = uow.real_now.plus_seconds(uow.leases.replica_seconds)
        started = dataclasses.replace(replica, lease_until=lease_until)
        move(uow, replica, "start", reason="process started", changed=started)


def specification(uow: UnitOfWork, principal: Principal, replica_id: str) -> Assignment:
    replica = _replica(uow, principal, replica_id)
    attempt = attempts.get(uow, replica.attempt_id)
    agent = agent_rows.find(uow, replica.agent_id)
    assert agent is not None
    job = rows.get(uow, replica.job_key)
    slices = [] if job.spec.run is None else node_rows.of_job(uow, job.job_key)
    of_slice, index = divmod(replica.rank, job.kind.host_count)
    hosts = host_rows.of_node(uow, slices[of_slice].node_key) if slices else []
    return Assignment(
        job=job,
        attempt=attempt,
        replica=replica,
        process_count=len(replicas.of_attempt(uow, attempt.attempt_id)),
        bind_address=agent.bind_address,
        host=next((host for host in hosts if host.host_index == index), None),
        slices=tuple(facts(uow, node) for node in slices) if len(slices) > 1 else (),
    )


def check_file(uow: UnitOfWork, principal: Principal, replica_id: str, digest: str) -> None:
    """Raises NOT_FOUND unless the replica's job has pinned these contents."""
    if not job_files.has(uow, _replica(uow, principal, replica_id).job_key, digest):
        raise not_found(f"replicas/{replica_id}/files/{digest[:64]}")


def files_of(
    uow: UnitOfWork, principal: Principal, replica_id: str, *, writes: bool = False
) -> ReplicaFiles:
    """Return which files the replica may read, and write while it is live. Raises ABORTED for a
    writer that has ended."""
    replica = _replica(uow, principal, replica_id)
    if writes:
        _check_fence(replica, replica.fence)
    job = rows.get(uow, replica.job_key)
    data = job.spec.arguments.get("data")
    start = job.spec.start_from
    return ReplicaFiles(
        objects=objects_prefix(job.job_key),
        source=None if start is None else objects_prefix(start.job_key),
        data=data if isinstance(data, str) and data else None,
        has_program=job.spec.run is None and ":" in job.spec.recipe,
    )


def join(
    uow: UnitOfWork, principal: Principal, replica_id: str, fence: int, address: str
) -> list[Replica] | None:
    """The rendezvous: takes a replica's address; returns all peers by rank once every one has
    joined, else None."""
    replica = _replica(uow, principal, replica_id)
    _check_fence(replica, fence)
    store(uow, replica, dataclasses.replace(replica, address=address))
    gang = replicas.of_attempt(uow, replica.attempt_id)
    return gang if all(peer.address for peer in gang) else None


def report(
    uow: UnitOfWork, principal: Principal, replica_id: str, progress: Progress, files: LogFiles
) -> ReplicaInstruction:
    """Takes a replica's progress, renews its lease, and returns what it has to do."""
    replica = _replica(uow, principal, replica_id)
    _check_fence(replica, progress.fence)
    next_line = log_lines.keep(uow, files, replica, progress.written)
    attempt = attempts.get(uow, replica.attempt_id)
    # Also of a gang that is being ended: the next one resumes from what is kept here, and starts
    # after its last word.
    if (
        progress.points
        or progress.evaluations
        or progress.checkpoints
        or progress.pruned
        or progress.summary
        or progress.run is not None
    ):
        _keep_progress(uow, replica, attempt, progress)
    if not attempt.has_begun_to_end:
        _keep_state(uow, replica, attempt, progress)
        settle(uow, replica.attempt_id, attempt)
    replicas.renew_lease(uow, replica_id, progress.used)
    fresh = replicas.find(uow, replica_id)
    assert fresh is not None
    return ReplicaInstruction(
        fresh.desired, next_line, attempt.stacks_real, _use_of(replica, progress)
    )


def _use_of(replica: Replica, progress: Progress) -> ReplicaUse | None:
    if progress.used is None:
        return None
    device_seconds = sum(point.modelled_seconds for point in progress.points)
    return ReplicaUse(
        replica.replica_id, replica.job_key, replica.host_indices, *progress.used, device_seconds
    )


def _keep_state(uow: UnitOfWork, replica: Replica, attempt: Attempt, progress: Progress) -> None:
    if REPLICA.allows(replica.state, "run"):
        replica = move(uow, replica, "run", reason="the replica reports")
    if progress.state == "RUNNING" or replica.outcome is not None:
        return
    outcome, reason = ReplicaOutcome(progress.state), progress.error or progress.state
    if outcome is ReplicaOutcome.FAILED and progress.is_permanent:
        outcome = ReplicaOutcome.REFUSED
    if outcome is ReplicaOutcome.YIELDED and attempt.yield_real is None:
        outcome, reason = ReplicaOutcome.FAILED, "it yielded, and nobody had asked it to"
    store(uow, replica, dataclasses.replace(replica, outcome=outcome, reason=reason))


def checkpoints_fail(uow: UnitOfWork, replica_id: str) -> bool:
    """Return whether a fault keeps the replica's job from writing checkpoints: it must not remove
    older ones."""
    rules = faults.standing(uow, "checkpoint")
    replica = replicas.find(uow, replica_id) if rules else None
    if replica is None:
        return False
    subject = faults.of_node(node_rows.get_by_key(uow, rows.get(uow, replica.job_key).node_key))
    return any(rule.matches(subject) for rule in rules)


def pinned_step(uow: UnitOfWork, replica_id: str) -> int | None:
    """The oldest checkpoint that another job starts from; replicas but the first have none to
    remove."""
    replica = replicas.find(uow, replica_id)
    return None if replica is None or replica.rank else rows.pinned_step(uow, replica.job_key)


def _keep_progress(uow: UnitOfWork, replica: Replica, attempt: Attempt, progress: Progress) -> None:
    job = read = rows.get(uow, replica.job_key)
    if job.spec.run is not None:
        if not replica.rank:
            _keep_points_of_program(uow, attempt, progress.points)
            _keep_run_of_program(uow, attempt, progress.run)
        return
    resumed = progress.resumed_step
    if resumed is not None and 0 <= resumed < attempt.resume_step:
        # The checkpoint that was chosen is torn, and the replica went on from the one before.
        before, attempt = attempt, dataclasses.replace(attempt, resume_step=resumed)
        store(uow, before, attempt)
        modelled = job_history.modelled_seconds_until(uow, job.job_key, resumed)
        job = dataclasses.replace(job, steps_done=resumed, modelled_seconds=modelled)
    key, number = job.job_key, attempt.attempt
    last = job_history.last_step(uow, key, number) or attempt.resume_step
    fresh = [point for point in progress.points if point.step > last]
    for index, point in enumerate(fresh):
        if point.step != last + 1 + index:
            raise invalid(
                f"step {point.step} follows step {last + index}: steps must be contiguous",
                "metrics",
            )
    if fresh and (factor := faults.slowness(uow, job.node_key)) > 1:
        fresh = [
            dataclasses.replace(point, modelled_seconds=point.modelled_seconds * factor)
            for point in fresh
        ]
    job_history.add_points(uow, key, fresh)
    job_history.add_checkpoints(
        uow, key, number, saved.that_could_be_written(uow, job, progress.checkpoints)
    )
    job_history.add_evaluations(uow, key, number, progress.evaluations)
    job_history.remove_checkpoints(uow, key, progress.pruned)
    latest = dict(job.latest)
    if progress.evaluations:
        latest.update(max(progress.evaluations, key=lambda evaluation: evaluation.step).metrics)
    if fresh:
        latest.update(fresh[-1].metrics, step=fresh[-1].step)
    latest.update({k: v for k, v in progress.summary.items() if isinstance(v, int | float | str)})
    changed = dataclasses.replace(
        job,
        latest=latest,
        steps_done=fresh[-1].step if fresh else job.steps_done,
        modelled_seconds=job.modelled_seconds + sum(point.modelled_seconds for point in fresh),
    )
    store(uow, read, changed)


def _keep_points_of_program(
    uow: UnitOfWork, attempt: Attempt, points: Sequence[MetricPoint]
) -> None:
    """Keep what worker 0 prints. Its steps need not follow each other, and it resumes by itself:
    from the step before the first one that an attempt tells."""
    if not points:
        return
    job = rows.get(uow, attempt.job_key)
    if job_history.last_step(uow, job.job_key, attempt.attempt) is None:
        store(uow, attempt, dataclasses.replace(attempt, resume_step=max(0, points[0].step - 1)))
    job_history.merge_points(uow, job.job_key, attempt.attempt, points)
    last = points[-1]
    latest = {**job.latest, **last.metrics, "step": last.step}
    store(uow, job, dataclasses.replace(job, latest=latest, steps_done=last.step))


def _keep_run_of_program(uow: UnitOfWork, attempt: Attempt, run: ProgramRun | None) -> None:
    """Keep the modules of worker 0. Their training steps count where the program prints none."""
    if run is None:
        return
    job = rows.get(uow, attempt.job_key)
    job_history.put_run(uow, job.job_key, attempt.attempt, run)
    prints_steps = job_history.last_step(uow, job.job_key, attempt.attempt) is not None
    steps = job.steps_done if prints_steps or run.steps is None else run.steps
    seconds = job_history.seconds_of_runs(uow, job.job_key)
    store(uow, job, dataclasses.replace(job, steps_done=steps, modelled_seconds=seconds))


def require_replica(principal: Principal, replica_id: str) -> None:
    """Raises PERMISSION_DENIED unless the caller's token is a replica's."""
    if principal.attempt_id is None:
        raise _denied_to_report(replica_id)


def _replica(uow: UnitOfWork, principal: Principal, replica_id: str) -> Replica:
    require_replica(principal, replica_id)
    replica = replicas.find(uow, replica_id)
    if replica is None or replica.attempt_id != principal.attempt_id:
        raise _denied_to_report(replica_id)
    return replica


def _denied_to_report(replica_id: str) -> PodyardError:
    return PodyardError(
        Code.PERMISSION_DENIED,
        f"Permission 'podyard.replicas.report' denied on resource 'replicas/{replica_id}' (or it "
        "might not exist).",
    )


def _check_fence(replica: Replica, fence: int) -> None:
    if replica.fence != fence or not replica.is_live:
        raise PodyardError(
            Code.ABORTED, f"replica {replica.replica_id} has ended: fence {fence} is out of date"
        )
