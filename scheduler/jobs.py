"""Starts, sizes and preemptions of gangs. Snapshots in, plans out.

`decide_starts`, for the jobs that wait:
1. They take turns: the higher priority first, then a job that has begun, then the older one; jobs
  of a sweep by number.
2. A job whose last attempt still stops goes on waiting. If it stops to change its size, it is a
  contender for places.
3. A job waits for all of its nodes to be READY, and starts on none that is about to be taken back
  or replaced.
  After a failed attempt it rests as long as it is told to, and meanwhile leaves its nodes to
  others.
4. A node has one gang. While another job's gang is on it, a job waits; a gang of lower priority is
  asked to save and to leave, if there will be room for the least gang of the job. Of the jobs that
  wait for a node, the first one starts.
5. Jobs that get as far are contenders for places on agents. A gang starts with as many replicas as
  have room, less what others who come first need (`places.count_for`): all of its replicas or none,
  on agents that `spread` chooses.
6. Where even its least gang has no room, elastic gangs that come later shrink for it
  (`places.who_shrinks`). They have run for a while, and no gang is being asked to leave: what the
  others are about to leave may be enough.
7. What does not start says why.
A job of `execution: simulated` needs no places: from rule 4 on it starts.

`decide_sizes`, for the gangs that run:
8. A gang that was asked to leave and has not within YIELD_SECONDS_MAX ends.
9. Elastic gangs that have run for RESIZE_PAUSE_SECONDS are looked at, the oldest first. One that
  has more hosts than its job is set to, or could have more than it has, is asked to leave; its job
  goes on with the other size. What others who come first need to start is not theirs to grow into.
10. One gang at a time: two could not both have the same room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podyard.base.clock import RealTime
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.gang import GangSize, wanted_sizes, whole_gang
from podyard.domain.job import WAITING_JOB_STATES, Job, JobState
from podyard.domain.job_plan import ActiveJob, JobPlan, JobSnapshot, LeaveGang, StartGang
from podyard.domain.node import NodeState
from podyard.scheduler.places import Contender, Holder, count_for, left_for_others, who_shrinks
from podyard.scheduler.spread import choose, company_of, room_of

# a step and a checkpoint of any model that trains here; past it the gang hangs
YIELD_SECONDS_MAX = 60.0
# what a start costs is worked off by then, so an agent that comes and goes stops no job
RESIZE_PAUSE_SECONDS = 10.0


def decide_starts(snapshot: JobSnapshot, now: RealTime) -> JobPlan:
    """Equal snapshots give equal plans, whatever the order of their jobs."""
    return _Cycle(snapshot, now).plan()


def decide_sizes(snapshot: JobSnapshot, now: RealTime) -> JobPlan:
    yielding = _yielding(snapshot)
    text = (
        f"the gang has not yielded within {YIELD_SECONDS_MAX:g} s: it goes on from its "
        "last checkpoint"
    )
    ends = tuple(
        LeaveGang(attempt, attempt.yield_outcome or AttemptOutcome.RESIZED, text)
        for attempt in yielding
        if attempt.yield_real is not None
        and now > attempt.yield_real.plus_seconds(YIELD_SECONDS_MAX)
    )
    if yielding:
        return JobPlan(ends=ends)
    for active, attempt in _settled_gangs(snapshot, now):
        if (leave := _resize(snapshot, active, attempt)) is not None:
            return JobPlan(yields=(leave,))
    return JobPlan()


def decide_size_of(snapshot: JobSnapshot, job_key: str) -> JobPlan:
    """After another size was set for a job: its gang need not have run for a while."""
    active = next((item for item in snapshot.jobs if item.job.job_key == job_key), None)
    if active is None or active.attempt is None or _yielding(snapshot):
        return JobPlan()
    leave = _resize(snapshot, active, active.attempt)
    return JobPlan() if leave is None else JobPlan(yields=(leave,))


def turn(job: Job) -> tuple[int, bool, int, int, str]:
    """Whose turn it is among jobs that wait: rule 1."""
    begun = job.state is JobState.RECOVERING
    return (-job.spec.priority, not begun, job.created.nanos, job.sweep_index or 0, job.job_key)


class _Cycle:
    """The course of `decide_starts`: what is free, held and asked for changes with each
    decision."""

    def __init__(self, snapshot: JobSnapshot, now: RealTime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._free = dict(snapshot.free)
        self._held: dict[str, int] = {}
        for active in snapshot.jobs:
            project = active.job.project
            self._held[project] = self._held.get(project, 0) + sum(active.places.values())
        self._by_node = _by_node(snapshot)
        self._asked = {attempt.attempt_id for attempt in _yielding(snapshot)}
        self._starts: list[StartGang] = []
        self._yields: list[LeaveGang] = []
        self._reasons: list[tuple[Job, str]] = []

    def plan(self) -> JobPlan:
        ready: list[Job] = []
        contenders: list[Contender] = []
        for active in _waiting(self._snapshot):
            job, attempt = active.job, active.attempt
            if attempt is not None:
                if attempt.outcome is AttemptOutcome.RESIZED:
                    contenders.append(_contender(job))
                continue
            why = _rest_reason(active) or self._turn_reason(active)
            if why is None and job.spec.is_modelled:
                self._starts.append(StartGang(job, whole_gang(job.spec, job.kind), (), ""))
            elif why is None:
                ready.append(job)
                contenders.append(_contender(job))
            else:
                self._reasons.append((job, why))
        for job in ready:
            mine, free = _contender(job), self._room()
            count = count_for(mine, contenders, free)
            if count is None:
                self._make_room(mine, free)
                self._reasons.append(
                    (job, _shortage(mine.counts[-1], free, self._free, self._snapshot))
                )
                continue
            self._start(
                job, next(size for size in _sizes(job) if size.process_count == count), free
            )
            contenders.remove(mine)
        return JobPlan(
            starts=tuple(self._starts), yields=tuple(self._yields), reasons=tuple(self._reasons)
        )

    def _turn_reason(self, active: ActiveJob) -> str | None:
        """Why a job has to wait for others on its nodes: rule 4."""
        job = active.job
        on_it, first = _on_nodes(self._by_node, active)
        if on_it is None or on_it.attempt is None:
            return None if first is None else f"node {job.node_id} is busy with job {first.job_id}"
        busy = f"node {job.node_id} is busy with job {on_it.job.job_id}"
        if on_it.job.spec.priority >= job.spec.priority:
            return busy
        least = 0 if job.spec.is_modelled else _sizes(job)[-1].process_count
        freed = dict(self._free)
        for agent, count in on_it.places.items():
            if agent in freed and agent not in self._snapshot.draining:
                freed[agent] = max(0, freed[agent]) + count
        room = room_of(freed, self._snapshot.companies)
        if least > room:
            return _shortage(least, room, freed, self._snapshot)
        text = f"job {job.job_id} has a higher priority and takes its turn"
        self._ask(on_it.attempt, AttemptOutcome.PREEMPTED, text)
        return f"{busy}, which has a lower priority and makes room"

    def _room(self) -> int:
        return room_of(self._free, self._snapshot.companies)

    def _make_room(self, mine: Contender, free: int) -> None:
        if self._asked:
            return
        holders: dict[str, tuple[Attempt, Holder]] = {}
        for active, attempt in _settled_gangs(self._snapshot, self._now):
            if active.job.spec.elastic is not None:
                holders[attempt.attempt_id] = (
                    attempt,
                    Holder(_contender(active.job), _own_places(self._snapshot, active)),
                )
        chosen = who_shrinks(
            mine, [item for _, item in holders.values()], free, self._held, self._snapshot.shares
        )
        text = (
            f"the gang goes on with fewer: {mine.counts[-1]} places are needed by a job that "
            "comes before it"
        )
        for attempt, holder in holders.values():
            if holder in chosen:
                self._ask(attempt, AttemptOutcome.RESIZED, text)

    def _ask(self, attempt: Attempt, outcome: AttemptOutcome, reason: str) -> None:
        """Ask those that run to save, once."""
        if attempt.state is AttemptState.RUNNING and attempt.attempt_id not in self._asked:
            self._asked.add(attempt.attempt_id)
            self._yields.append(LeaveGang(attempt, outcome, reason))

    def _start(self, job: Job, size: GangSize, free: int) -> None:
        agents = choose(size.process_count, self._free, self._snapshot.companies)
        for agent in agents:
            self._free[agent] -= 1
        self._held[job.project] = self._held.get(job.project, 0) + size.process_count
        self._starts.append(StartGang(job, size, agents, self._smaller(job, size, free)))

    def _smaller(self, job: Job, size: GangSize, free: int) -> str:
        """Return what is said of a gang that does not have the whole slice; nothing of one that
        has."""
        whole = whole_gang(job.spec, job.kind)
        if size == whole:
            return ""
        batch = (
            ""
            if size.global_batch == whole.global_batch
            else f" with a batch of {size.global_batch}"
        )
        on = (
            f"attempt {job.attempt + 1} runs on {size.host_count} of {whole.host_count} "
            f"hosts{batch}"
        )
        if size == _sizes(job)[0]:
            return f"{on}, as the job is set to"
        if whole.process_count > free:
            return f"{on}: {_shortage(whole.process_count, free, self._free, self._snapshot)}"
        return f"{on}: the rest is left to jobs that wait"


def _waiting(snapshot: JobSnapshot) -> list[ActiveJob]:
    """In their turn."""
    found = (active for active in snapshot.jobs if active.job.state in WAITING_JOB_STATES)
    return sorted(found, key=lambda active: turn(active.job))


def _yielding(snapshot: JobSnapshot) -> list[Attempt]:
    """Attempts that were asked to leave and have not ended."""
    found = [
        item.attempt
        for item in snapshot.jobs
        if item.attempt is not None and item.attempt.yield_real is not None
    ]
    return sorted(found, key=lambda attempt: attempt.attempt_id)


def _settled_gangs(snapshot: JobSnapshot, now: RealTime) -> list[tuple[ActiveJob, Attempt]]:
    """Gangs that have run for a while, the oldest first."""
    before = now.plus_seconds(-RESIZE_PAUSE_SECONDS)
    found = [
        (active, active.attempt)
        for active in snapshot.jobs
        if active.attempt is not None
        and _runs(active.job, active.attempt)
        and active.attempt.started_real < before
    ]
    return sorted(found, key=lambda item: (item[1].started_real, item[1].attempt_id))


def _runs(job: Job, attempt: Attempt) -> bool:
    return job.state is JobState.RUNNING and attempt.state is AttemptState.RUNNING


def _sizes(job: Job) -> list[GangSize]:
    return wanted_sizes(job.spec, job.kind)


def _contender(job: Job) -> Contender:
    return Contender(
        job_key=job.job_key,
        project=job.project,
        priority=job.spec.priority,
        created=job.created,
        counts=tuple(size.process_count for size in _sizes(job)),
        begun=job.state is not JobState.QUEUED,
    )


def _rest_reason(active: ActiveJob) -> str | None:
    """Why no attempt starts yet, whatever else waits: rule 3."""
    if active.job.spec.next_type:
        return f"node {active.job.node_id} is replaced by a {active.job.spec.next_type}"
    for one in active.slices:
        if one.state is not NodeState.READY:
            return f"node {one.node_id} is {one.state}" + (
                f": {one.wait_reason}" if one.wait_reason else ""
            )
    for one in active.slices:
        if one.reclaim is not None:
            return f"node {one.node_id} is taken back at {one.reclaim.rfc3339()}"
    if active.retry_at is not None:
        return (
            f"attempt {active.job.attempt} failed: the next begins at {active.retry_at.rfc3339()}"
        )
    return None


def _by_node(snapshot: JobSnapshot) -> dict[str, list[ActiveJob]]:
    found: dict[str, list[ActiveJob]] = {}
    for active in sorted(snapshot.jobs, key=lambda item: (item.job.created, item.job.job_key)):
        for one in active.slices:
            found.setdefault(one.node_key, []).append(active)
    return found


def _on_nodes(
    by_node: Mapping[str, Sequence[ActiveJob]], active: ActiveJob
) -> tuple[ActiveJob | None, Job | None]:
    """(the other job whose gang is on its nodes, of several the one of the highest priority;
    another one whose turn there comes first), as far as there are any."""
    job = active.job
    found = {other.job.job_key: other for one in active.slices for other in by_node[one.node_key]}
    others = [found[key] for key in sorted(found) if key != job.job_key]
    running = (other for other in others if other.attempt is not None)
    on_it = max(running, key=lambda other: other.job.spec.priority, default=None)
    awake = (other.job for other in others if other.retry_at is None)
    return on_it, min((other for other in awake if turn(other) < turn(job)), key=turn, default=None)


def _own_places(snapshot: JobSnapshot, active: ActiveJob, *, again: bool = False) -> int:
    """Those on agents that live. `again`: that it would have after it has left, which not all
    agents give twice."""
    mine = (agent for agent in active.places if agent in snapshot.free)
    return sum(active.places[agent] for agent in mine if not (again and agent in snapshot.draining))


def _resize(snapshot: JobSnapshot, active: ActiveJob, attempt: Attempt) -> LeaveGang | None:
    """Return what a gang is asked if it is not of the size that it may have: rule 9."""
    job = active.job
    if not _runs(job, attempt) or job.spec.elastic is None:
        return None
    sizes, (hosts, _) = _sizes(job), job.size_of(attempt)
    most = sizes[0].host_count
    company = company_of(active.places, snapshot.companies)
    free = {
        agent: n for agent, n in snapshot.free.items() if snapshot.companies.get(agent) == company
    }
    room = room_of(free, snapshot.companies) + _own_places(snapshot, active, again=hosts < most)
    if hosts < most:
        room -= left_for_others(_contender(job), _contenders(snapshot), room)
    size = next((size for size in sizes if size.process_count <= room), sizes[-1])
    if hosts == size.host_count or size.host_count < hosts <= most:
        return None
    why = f"the job is set to {most}" if hosts > most else f"there is room for {size.host_count}"
    text = f"attempt {attempt.attempt} yields: {why} of {job.kind.host_count} hosts"
    return LeaveGang(attempt, AttemptOutcome.RESIZED, text)


def _contenders(snapshot: JobSnapshot) -> list[Contender]:
    """The jobs that wait for places only."""
    by_node = _by_node(snapshot)
    return [
        _contender(active.job)
        for active in _waiting(snapshot)
        if active.attempt is None
        and not active.job.spec.is_modelled
        and not _rest_reason(active)
        and _on_nodes(by_node, active) == (None, None)
    ]


def _shortage(count: int, room: int, free: Mapping[str, int], snapshot: JobSnapshot) -> str:
    text = f"{count} replicas are needed at once and the live agents have room for {room}"
    more = []
    if (total := sum(max(0, places) for places in free.values())) > room:
        more.append(
            f"{total} in all, on machines whose kernels differ or that do not reach each other"
        )
    if snapshot.draining:
        more.append(f"{', '.join(sorted(snapshot.draining))} being drained")
    return f"{text} ({'; '.join(more)})" if more else text
