"""Attempts: a gang of replicas is started whole, watched, ended whole, and only then does the job go on.

1. `start_waiting` makes an attempt for each job that waits and whose node and agents have room: all replicas or none.
   Where places are short, gangs of elastic jobs that have to are asked to yield, and go on with fewer.
2. `settle` looks at the replicas of an attempt after each report and decides whether it has come to its end.
3. `grow` asks the gang of an elastic job that runs with less than there is room for, or with more than it was set to,
   to yield: to save and to leave.
4. `end` asks every replica to stop. Only when every process is gone (`EXITED`) does the attempt count as ended.
5. `_finish` lets the job succeed, recover from its last checkpoint, fail, or be cancelled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.clock import RealTime
from podyard.base.errors import Code
from podyard.base.ids import row_id
from podyard.base.rng import secret_token
from podyard.control import access, job_lines
from podyard.db import agents, attempts, credentials, job_history, outbox, replicas
from podyard.db import jobs as rows
from podyard.db.nodes import get_by_key as get_node
from podyard.db.transition import born, move, store
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.gang import GangSize, wanted_sizes, whole_gang
from podyard.domain.gang_room import Contender, Holder, count_for, left_for_others, who_shrinks
from podyard.domain.job import JOB, Job, JobState
from podyard.domain.node import NodeState
from podyard.domain.replica import Desired, Replica, ReplicaOutcome, ReplicaState

_GOES_ON = (AttemptOutcome.FAILED, AttemptOutcome.PREEMPTED, AttemptOutcome.RESIZED)  # so does the job
POKE_TASK = "podyard.poke_agent"
YIELD_SECONDS_MAX = 60.0  # a step and a checkpoint of any model that trains here; past it the gang hangs
RESIZE_PAUSE_SECONDS = 10.0  # what a start costs is worked off by then, so an agent that comes and goes stops no job


@dataclasses.dataclass(frozen=True, slots=True)
class _Wants:
    """A job that could run if it had places, and the sizes that its gang may have, the largest first."""

    job: Job
    sizes: Sequence[GangSize]

    @property
    def contender(self) -> Contender:
        return Contender(
            job_key=self.job.job_key,
            project=self.job.project,
            priority=self.job.spec.priority,
            created=self.job.created,
            counts=tuple(size.process_count for size in self.sizes),
            begun=self.job.state is not JobState.QUEUED,
        )


def start_waiting(uow: UnitOfWork, shares: Mapping[str, float] | None = None) -> int:
    """Starts an attempt for every waiting job that can run now, in the order of `turn`; returns how many.

    `shares`: the weight of a project among those that want places; 1 where it is not named.
    """
    ready: list[_Wants] = []
    others: list[Contender] = []
    for job in sorted(rows.list_waiting(uow), key=turn):
        attempt = attempts.find_open(uow, job.job_key)
        if attempt is not None:  # it is still stopping; why it ended is the reason to show
            if attempt.outcome is AttemptOutcome.RESIZED:
                others.append(_wants(job).contender)
            continue
        why = _node_reason(uow, job) or _turn_reason(uow, job)
        if why is None:
            ready.append(_wants(job))
            others.append(ready[-1].contender)
        else:
            _tell(uow, job, why)
    started = 0
    for wants in ready:
        free = _free_count(uow)
        count = count_for(wants.contender, others, free)
        if count is None:
            _make_room(uow, wants, free, shares or {})
            _tell(uow, wants.job, _needed(wants.sizes[-1], free))
            continue
        _start(uow, wants.job, next(size for size in wants.sizes if size.process_count == count))
        others.remove(wants.contender)
        started += 1
    return started


def _wants(job: Job) -> _Wants:
    return _Wants(job, wanted_sizes(job.spec, job.kind))


def _tell(uow: UnitOfWork, job: Job, why: str) -> None:
    store(uow, job, dataclasses.replace(job, state_reason=why))


def turn(job: Job) -> tuple[int, bool, int, str]:
    """Whose turn it is among jobs that wait: the higher priority, then whoever has begun, then the older one."""
    return (-job.spec.priority, job.state is not JobState.RECOVERING, job.created.nanos, job.job_key)


def free_replicas(uow: UnitOfWork) -> dict[str, int]:
    """Free places for replicas on each living agent."""
    used = replicas.live_counts(uow)
    return {agent.agent_id: agent.replicas_max - used.get(agent.agent_id, 0) for agent in agents.list_living(uow)}


def _free_count(uow: UnitOfWork) -> int:
    return sum(max(0, count) for count in free_replicas(uow).values())


def _node_reason(uow: UnitOfWork, job: Job) -> str | None:
    """Why a waiting job's node lets none start, if it does not."""
    node = get_node(uow, job.node_key)
    if node.state is not NodeState.READY:
        why = f": {node.wait_reason}" if node.wait_reason else ""
        return f"node {job.node_id} is {node.state}{why}"
    if node.reclaim_at is not None:
        return f"node {job.node_id} is taken back at {node.reclaim_at.rfc3339()}"
    return None


def _on_node(uow: UnitOfWork, job: Job) -> tuple[Job | None, Job | None]:
    """(another job that is on the same node, another one whose turn comes first), as far as there are any."""
    others = [other for other in rows.active_on_node(uow, job.node_key) if other.job_key != job.job_key]
    on_it = next((other for other in others if attempts.find_open(uow, other.job_key) is not None), None)
    return on_it, next((other for other in sorted(others, key=turn) if turn(other) < turn(job)), None)


def _turn_reason(uow: UnitOfWork, job: Job) -> str | None:
    """Why a job has to wait for others on its node. One of lower priority is asked to make room."""
    on_it, before = _on_node(uow, job)
    if on_it is not None:
        return _take_turn(uow, job, on_it, _wants(job).sizes[-1], _free_count(uow))
    return None if before is None else f"node {job.node_id} is busy with job {before.job_id}"


def _take_turn(uow: UnitOfWork, job: Job, other: Job, size: GangSize, free: int) -> str:
    """Why `job` waits for the one that is on its node. One of lower priority is asked to save and to leave, if a gang
    of `size` has room once it has left."""
    busy = f"node {job.node_id} is busy with job {other.job_id}"
    attempt = attempts.find_open(uow, other.job_key)
    if attempt is None or turn(other)[0] <= turn(job)[0]:
        return busy
    room = free + len(_live_gang(uow, attempt.attempt_id))
    if size.process_count > room:
        return _needed(size, room)
    ask_to_yield(uow, attempt, AttemptOutcome.PREEMPTED, f"job {job.job_id} has a higher priority and takes its turn")
    return f"{busy}, which has a lower priority and makes room"


def _make_room(uow: UnitOfWork, wants: _Wants, free: int, shares: Mapping[str, float]) -> None:
    """Asks gangs of elastic jobs that have to make room for this one to yield: they go on with fewer processes.

    One change at a time: what others are about to leave may be enough.
    """
    if attempts.list_yielding(uow):
        return
    settled = rows.list_running(uow, _settled(uow))
    running = [(job, attempt_id) for job, attempt_id in settled if job.spec.elastic is not None]
    if not running:
        return
    living, holders = free_replicas(uow), {}
    for job, attempt_id in running:
        places = sum(replica.agent_id in living for replica in _live_gang(uow, attempt_id))
        holders[attempt_id] = Holder(_wants(job).contender, places)
    chosen = who_shrinks(wants.contender, list(holders.values()), free, replicas.project_counts(uow), shares)
    text = (
        f"the gang goes on with fewer: {wants.sizes[-1].process_count} places are needed by a job that comes before it"
    )
    for attempt_id, holder in holders.items():
        if holder in chosen:
            ask_to_yield(uow, attempts.get(uow, attempt_id), AttemptOutcome.RESIZED, text)


def _live_gang(uow: UnitOfWork, attempt_id: str) -> list[Replica]:
    return [replica for replica in replicas.of_attempt(uow, attempt_id) if replica.is_live]


def _needed(size: GangSize, free: int) -> str:
    return f"{size.process_count} replicas are needed at once and the living agents have room for {free}"


def _start(uow: UnitOfWork, job: Job, size: GangSize) -> None:
    number = job.attempt + 1
    saved = job_history.committed_checkpoints(uow, job.job_key)
    resume_step = saved[0].step if saved else 0
    attempt_id = row_id(uow.streams.stream("attempts"), "attempt")
    attempt = Attempt(
        attempt_id=attempt_id,
        job_key=job.job_key,
        attempt=number,
        state=AttemptState.STARTING,
        version=1,
        resume_step=resume_step,
        host_count=size.host_count,
        global_batch=size.global_batch,
        outcome=None,
        reason="",
        ring_key=secret_token(24),
        started=uow.now,
        ended=None,
        started_real=uow.real_now,
        yield_real=None,
        yield_outcome=None,
    )
    born(uow, attempt, reason=f"from step {resume_step}")
    smaller = _smaller(uow, job, number, size)
    for agent_id in _place_replicas(uow, job, attempt_id, size):
        outbox.put(uow, f"agent.{agent_id}", POKE_TASK, [agent_id])
    changed = dataclasses.replace(
        job,
        state_reason=smaller,
        attempt=number,
        steps_done=resume_step,
        modelled_seconds=job_history.modelled_seconds_until(uow, job.job_key, resume_step),
        started=job.started or uow.now,
    )
    move(uow, job, "prepare", reason=smaller or f"attempt {number} from step {resume_step}", changed=changed)


def _smaller(uow: UnitOfWork, job: Job, number: int, size: GangSize) -> str:
    """What is to be said of an attempt that does not have the whole slice; nothing of one that has."""
    whole = whole_gang(job.spec, job.kind)
    if size == whole:
        return ""
    free = _free_count(uow)
    batch = "" if size.global_batch == whole.global_batch else f" with a batch of {size.global_batch}"
    on = f"attempt {number} runs on {size.host_count} of {whole.host_count} hosts{batch}"
    if size == _wants(job).sizes[0]:
        return f"{on}, as the job is set to"
    return f"{on}: {_needed(whole, free) if whole.process_count > free else 'the rest is left to jobs that wait'}"


def _place_replicas(uow: UnitOfWork, job: Job, attempt_id: str, size: GangSize) -> list[str]:
    """Makes the replicas, contiguous hosts each, on the agents with the most room; returns the agents."""
    free = free_replicas(uow)
    token = access.issue(uow, f"{attempt_id}@jobs.podyard.local", attempt_id)
    used = []
    for rank in range(size.process_count):
        agent_id = max(sorted(free), key=lambda agent: free[agent])
        assert free[agent_id] > 0, free
        free[agent_id] -= 1
        used.append(agent_id)
        replica = Replica(
            replica_id=row_id(uow.streams.stream("replicas"), "replica"),
            attempt_id=attempt_id,
            job_key=job.job_key,
            rank=rank,
            host_indices=size.hosts_of(rank),
            agent_id=agent_id,
            state=ReplicaState.PENDING,
            desired=Desired.RUN,
            version=1,
            fence=job.attempt + 1,
            token=token,
            address=None,
            outcome=None,
            reason="",
            lease_until=None,
        )
        born(uow, replica, reason="gang placed")
    return sorted(set(used))


def grow(uow: UnitOfWork) -> None:
    """Asks a smaller gang to yield once a larger one has room, and ends one that does not yield in time.

    One gang at a time: two could not both have the same room.
    """
    waiting_for = attempts.list_yielding(uow)
    for attempt_id in waiting_for:
        attempt = attempts.get(uow, attempt_id)
        if attempt.yield_real is not None and uow.real_now > attempt.yield_real.plus_seconds(YIELD_SECONDS_MAX):
            text = f"the gang has not yielded within {YIELD_SECONDS_MAX:g} s: it goes on from its last checkpoint"
            end(uow, attempt, attempt.yield_outcome or AttemptOutcome.RESIZED, text)
    for running in attempts.list_running(uow, _settled(uow)):
        if waiting_for or _ask_to_yield(uow, attempts.get(uow, running.attempt_id)):
            return


def follow_size(uow: UnitOfWork, job_key: str) -> None:
    """After another size was set for a job: asks its gang to yield at once, unless another gang is just doing so."""
    attempt = attempts.find_open(uow, job_key)
    if attempt is not None and not attempts.list_yielding(uow):
        _ask_to_yield(uow, attempts.get(uow, attempt.attempt_id))


def _settled(uow: UnitOfWork) -> RealTime:
    """A gang that has begun before this may change its size."""
    return uow.real_now.plus_seconds(-RESIZE_PAUSE_SECONDS)


def _ask_to_yield(uow: UnitOfWork, attempt: Attempt) -> bool:
    """Does so if the gang has more hosts than the job is set to, or a larger size has room: free places, without what
    those need who come before, and the places that the gang has itself on living agents."""
    job = rows.get(uow, attempt.job_key)
    if attempt.state is not AttemptState.RUNNING or job.state is not JobState.RUNNING or job.spec.elastic is None:
        return False
    wants, living = _wants(job), free_replicas(uow)
    hosts, _ = job.size_of(attempt)
    own = sum(replica.agent_id in living for replica in _live_gang(uow, attempt.attempt_id))
    room = sum(max(0, count) for count in living.values()) + own
    most = wants.sizes[0].host_count
    if hosts < most:
        room -= left_for_others(wants.contender, _contenders(uow), room)
    size = next((size for size in wants.sizes if size.process_count <= room), wants.sizes[-1])
    if hosts == size.host_count or (size.host_count < hosts <= most):
        return False
    whole = job.kind.host_count
    why = f"the job is set to {most}" if hosts > most else f"there is room for {size.host_count}"
    ask_to_yield(uow, attempt, AttemptOutcome.RESIZED, f"attempt {attempt.attempt} yields: {why} of {whole} hosts")
    return True


def _contenders(uow: UnitOfWork) -> list[Contender]:
    """The jobs that wait for places only."""
    waiting = (job for job in sorted(rows.list_waiting(uow), key=turn) if attempts.find_open(uow, job.job_key) is None)
    return [
        _wants(job).contender for job in waiting if not _node_reason(uow, job) and _on_node(uow, job) == (None, None)
    ]


def ask_to_yield(uow: UnitOfWork, attempt: Attempt, outcome: AttemptOutcome, text: str) -> None:
    """Asks a gang that runs to save and to leave; its end then counts as `outcome`. What is not running has nothing to
    save, and one that has been asked knows: neither is asked."""
    if attempt.state is not AttemptState.RUNNING or attempt.yield_real is not None:
        return
    store(uow, attempt, dataclasses.replace(attempt, yield_real=uow.real_now, yield_outcome=outcome))
    replicas.set_desired(uow, attempt.attempt_id, Desired.YIELD)
    rows.set_reason(uow, attempt.job_key, text)


def settle(uow: UnitOfWork, attempt_id: str, known: Attempt | None = None) -> None:
    """Brings an attempt and its job to where its replicas say that they are. Does nothing when nothing follows.

    `known`: the attempt, if this unit has read and not moved it.
    """
    attempt = attempts.get(uow, attempt_id) if known is None else known
    if attempt.state is AttemptState.ENDED:
        return
    gang = replicas.of_attempt(uow, attempt_id)
    if attempt.state is not AttemptState.ENDING:
        said = {replica.outcome for replica in gang}
        released = [r for r in gang if r.outcome is ReplicaOutcome.RELEASED]
        refused = [r for r in gang if r.outcome is ReplicaOutcome.REFUSED]
        lost = [r for r in gang if r.outcome is ReplicaOutcome.FAILED or (not r.is_live and r.outcome is None)]
        if released:
            attempt = end(uow, attempt, AttemptOutcome.PREEMPTED, f"replica {released[0].rank}: {released[0].reason}")
        elif refused or lost:
            first = (refused or lost)[0]
            attempt = end(uow, attempt, AttemptOutcome.FAILED, f"replica {first.rank}: {first.reason}")
            job_lines.add(uow, first, f"attempt {attempt.attempt} failed: {first.reason}")
        elif said == {ReplicaOutcome.SUCCEEDED}:
            # The first ones may have finished before the last one was heard of: then nobody has seen all of them run.
            if attempt.state is AttemptState.STARTING:
                attempt = _run(uow, attempt)
            attempt = end(uow, attempt, AttemptOutcome.SUCCEEDED, "all replicas finished")
        elif said <= {ReplicaOutcome.SUCCEEDED, ReplicaOutcome.YIELDED}:
            outcome = attempt.yield_outcome or AttemptOutcome.RESIZED
            to = (
                "for a gang of another size"
                if outcome is AttemptOutcome.RESIZED
                else "and saved: the job goes on when it has room"
            )
            attempt = end(uow, attempt, outcome, f"all replicas have yielded {to}")
        elif attempt.state is AttemptState.STARTING and all(r.state is ReplicaState.RUNNING for r in gang):
            _run(uow, attempt)
    if attempt.state is AttemptState.ENDING and not any(replica.is_live for replica in gang):
        _finish(uow, attempt)


def _run(uow: UnitOfWork, attempt: Attempt) -> Attempt:
    moved = move(uow, attempt, "run", reason="all replicas run")
    job = rows.get(uow, attempt.job_key)
    if JOB.allows(job.state, "run"):
        move(uow, job, "run", reason="all replicas run")
    return moved


def end(uow: UnitOfWork, attempt: Attempt, outcome: AttemptOutcome, reason: str) -> Attempt:
    """Asks every replica to stop; the attempt has ended once all have exited. Returns it as it stands now."""
    if attempt.has_begun_to_end:
        return attempt
    changed = dataclasses.replace(attempt, outcome=outcome, reason=reason)
    ending = move(uow, attempt, "end", reason=reason, changed=changed)
    gang = _live_gang(uow, attempt.attempt_id)
    replicas.set_desired(uow, attempt.attempt_id, Desired.STOP)
    for agent_id in sorted({replica.agent_id for replica in gang}):
        outbox.put(uow, f"agent.{agent_id}", POKE_TASK, [agent_id])
    job = rows.get(uow, attempt.job_key)
    if outcome in _GOES_ON and JOB.allows(job.state, "recover"):
        move(uow, job, "recover", reason=reason, changed=dataclasses.replace(job, state_reason=reason))
    return ending


def _finish(uow: UnitOfWork, attempt: Attempt) -> None:
    move(uow, attempt, "ended", reason=str(attempt.outcome), changed=dataclasses.replace(attempt, ended=uow.now))
    credentials.revoke_attempt(uow, attempt.attempt_id)
    replicas.remove_tokens(uow, attempt.attempt_id)
    before = rows.get(uow, attempt.job_key)
    job = dataclasses.replace(
        before,
        failures=before.failures + (attempt.outcome is AttemptOutcome.FAILED),
        preemptions=before.preemptions + (attempt.outcome is AttemptOutcome.PREEMPTED),
        wall_seconds=before.wall_seconds + uow.real_now.seconds_since(attempt.started_real),
    )
    store(uow, before, job)
    if job.state is JobState.CANCELLING:
        finish_job(uow, job, "cancelled", None, "cancelled by the user")
    elif attempt.outcome is AttemptOutcome.SUCCEEDED:
        early = job.latest.get("stopReason") if job.steps_done < job.spec.steps else None
        mode = job.spec.mode
        finish_job(
            uow, job, "succeed", None, str(early or ("all steps done" if mode == "train" else f"{mode} is done"))
        )
    elif attempt.outcome is AttemptOutcome.FAILED and (refusal := _refusal(uow, attempt)) is not None:
        finish_job(uow, job, "fail", *refusal)
    elif job.failures > job.spec.max_failures:
        most = job.spec.max_failures
        text = f"{job.failures} attempts failed (maxFailures {most}); the last: {attempt.reason}"
        finish_job(uow, job, "fail", Code.ABORTED, text)
    elif job.preemptions > job.spec.max_preemptions:
        text = f"preempted {job.preemptions} times (maxPreemptions {job.spec.max_preemptions})"
        finish_job(uow, job, "fail", Code.ABORTED, text)


def _refusal(uow: UnitOfWork, attempt: Attempt) -> tuple[Code, str] | None:
    """Code and message of what no other attempt would find otherwise, if a replica has said so ("CODE: message")."""
    gang = replicas.of_attempt(uow, attempt.attempt_id)
    reason = next((replica.reason for replica in gang if replica.outcome is ReplicaOutcome.REFUSED), None)
    if reason is None:
        return None
    name, _, message = reason.partition(": ")
    return (Code[name], message) if name in Code.__members__ else (Code.INVALID_ARGUMENT, reason)


def finish_job(uow: UnitOfWork, job: Job, event: str, code: Code | None, message: str) -> None:
    changed = dataclasses.replace(job, ended=uow.now, state_reason=message)
    if code is not None:
        changed = dataclasses.replace(changed, error_code=int(code), error_message=message)
    move(uow, job, event, reason=message, changed=changed)
