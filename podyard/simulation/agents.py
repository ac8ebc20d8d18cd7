"""Simulated machines: agents with the real agent's state, replicas that take modelled time, and a
bad broker.

They call what an agent and a replica call over HTTP, in the same order. Processes start and stop
within one of the machine's real seconds; steps take platform time, so that a day of training passes
with the platform clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import PlatformTime, RealClock, RealTime
from podyard.base.errors import Code, PodyardError
from podyard.base.log_files import LogFiles
from podyard.base.rng import Random
from podyard.control.jobs import reports
from podyard.control.jobs.reports import Assignment, Progress, ReplicaReport
from podyard.control.platform import agents
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.job_history import CheckpointRecord, MetricPoint
from podyard.domain.principal import Principal
from podyard.domain.replica import Desired
from podyard.simulation.hosts import HOSTS_MAX, SimHosts
from podyard.workers.kit.agent_state import Known, KnownReplicas, ReplicaPhase, Start, Stop, Wanted

# real time, while nothing moves: a third of the lease; the agent's own period is a second
SYNC_SECONDS = 3.0
# real time between two reports that say nothing new: with the longest turn, within the lease
REPORT_SECONDS = 10.0
NO_FILES = LogFiles(Path("/nonexistent"))  # simulated replicas write no lines
_IS_OVER = "SELECT 1 FROM replicas WHERE replica_id = :replica AND state = 'EXITED'"


@dataclasses.dataclass(slots=True)
class SimReplica:
    """One process. `done` steps were reported; `began` is when the step after `resume` began."""

    replica_id: str
    fence: int
    principal: Principal
    assigned: Assignment
    step_seconds: float
    done: int
    joined: bool = False
    began: PlatformTime | None = None
    reported: RealTime | None = None
    final: str | None = None  # what it said in the end: SUCCEEDED, FAILED or YIELDED
    stopping: bool = False

    def last_step(self, now: PlatformTime) -> int:
        """The last whole step at `now`."""
        if self.began is None:
            return self.done
        passed = int(now.seconds_since(self.began) / self.step_seconds + 1e-9)
        return min(self.assigned.job.spec.steps, self.assigned.attempt.resume_step + passed)

    def next_mark(self) -> PlatformTime | None:
        """When it reaches its end; of the first one, which tells the steps of all: or its next
        checkpoint."""
        if self.began is None or self.final is not None:
            return None
        step = self.assigned.job.spec.steps
        if self.assigned.replica.rank == 0:
            every = self.assigned.job.spec.checkpoint_every_steps
            step = min(step, (self.done // every + 1) * every)
        return self.began.plus_seconds(
            (step - self.assigned.attempt.resume_step) * self.step_seconds
        )


class SimAgent:
    """An agent on a separate machine. `silent_until`: neither it nor its replicas reach the
    platform before; their
    steps go on."""

    def __init__(
        self, agent_id: str, replicas_max: int, database: Database, clock: RealClock
    ) -> None:
        self.agent_id = agent_id
        self._replicas_max = replicas_max
        self._database = database
        self._clock = clock
        self.principal = Principal(f"{agent_id}@agents.podyard.local", {}, agent_id=agent_id)
        self.memory = KnownReplicas()
        self.processes: dict[str, SimReplica] = {}
        self.hosts = SimHosts(agent_id, self.principal, database)
        self.fence = 0
        self.silent_until: PlatformTime | None = None
        self.strange: list[tuple[str, str, str]] = []  # invariant, name, what is wrong
        self.next_sync = clock.now()
        self._told: list[Known] = []  # what the platform has last heard from it
        self.register()

    def register(self) -> None:
        self.fence = self._database.run(
            lambda uow: agents.register(
                uow,
                self.principal,
                self.agent_id,
                agents.AskedRegistration(self._replicas_max, HOSTS_MAX, "127.0.0.1", 1),
            ),
            actor=self.agent_id,
        )

    def die(self) -> None:
        """The machine's processes are gone at once; a new agent finds their records."""
        fences = {name: process.fence for name, process in sorted(self.processes.items())}
        self.processes.clear()
        self.hosts.die()
        self.memory = KnownReplicas()
        for name, fence in fences.items():
            self.memory.on_found_dead(name, fence)
        self.register()

    def hear(self, now: PlatformTime) -> None:
        """The machine can be reached again when its time has come."""
        if self.silent_until is not None and now >= self.silent_until:
            self.silent_until = None

    @property
    def is_silent(self) -> bool:
        return self.silent_until is not None

    def is_busy(self) -> bool:
        """Return whether real time has to pass until its processes are where they are wanted."""
        return not self.is_silent and self._has_work()

    def _has_work(self) -> bool:
        starting_or_ending = any(
            item.phase is not ReplicaPhase.RUNNING for item in self.memory.reports()
        )
        return (
            starting_or_ending
            or self.hosts.has_news
            or any(
                process.began is None or process.stopping or process.final is not None
                for process in self.processes.values()
            )
        )

    def turn(self, poked: bool, now: PlatformTime) -> bool:
        """One look at the machine: replicas first, then the agent. Returns whether anything has
        moved."""
        if self.is_silent:
            return False
        before = self._moves()
        for name in sorted(self.processes):
            self._run(self.processes[name], now)
        if poked or self._clock.now() >= self.next_sync or self.memory.reports() != self._told:
            self.sync()
            self.hosts.sync()
        elif self.hosts.has_news:
            self.hosts.sync()
        return self._moves() != before

    def _moves(self) -> list[Any]:
        """Differs when a process has gone a step further."""
        processes = [
            (name, item.joined, item.began is None, item.final, item.stopping, item.done)
            for name, item in sorted(self.processes.items())
        ]
        return [processes, self.memory.reports(), self.hosts.states, self.hosts.told]

    def sync(self) -> None:
        reported = self.memory.reports()
        said = [
            _report(item.replica, item.fence, item.phase, item.reason, item.released)
            for item in reported
        ]
        try:
            live = self._database.run(
                lambda uow: reports.sync(uow, self.principal, self.agent_id, self.fence, said),
                actor=self.agent_id,
            )
        except PodyardError as error:
            if error.code is not Code.ABORTED:
                raise
            self.register()
            return
        self.next_sync = self._clock.now().plus_seconds(SYNC_SECONDS)
        self._told = reported
        wanted = [Wanted(r.replica_id, r.fence, r.desired is Desired.RUN, r.token) for r in live]
        attempts = {replica.replica_id: replica.attempt_id for replica in live}
        for instruction in self.memory.on_synced(wanted, reported):
            if isinstance(instruction, Start):
                self._start(instruction, attempts[instruction.replica])
            elif isinstance(instruction, Stop):
                process = self.processes.get(instruction.replica)
                if process is None:
                    self.memory.on_exited(instruction.replica, 0)
                else:
                    process.stopping = True

    def kill(self, replica_id: str, code: int) -> None:
        """A process ends by itself."""
        if self.processes.pop(replica_id, None) is not None:
            self.memory.on_exited(replica_id, code)

    def _start(self, start: Start, attempt_id: str) -> None:
        principal = Principal(f"{attempt_id}@jobs.podyard.local", {}, attempt_id=attempt_id)
        found = self._database.read(
            lambda uow: reports.specification(uow, principal, start.replica)
        )
        self.processes[start.replica] = SimReplica(
            start.replica,
            start.fence,
            principal,
            found,
            float(found.job.spec.arguments["stepSeconds"]),
            found.attempt.resume_step,
        )
        self.memory.on_started(start.replica, 1)

    def _run(self, process: SimReplica, now: PlatformTime) -> None:
        if process.stopping or process.final is not None:
            self.kill(process.replica_id, 0)
            return
        try:
            if not process.joined:
                self._join(process)
            else:
                self._report(process, now)
        except PodyardError as error:
            if error.code not in (Code.ABORTED, Code.PERMISSION_DENIED):
                raise
            self.kill(process.replica_id, 3)  # its fence is old: it ends itself

    def _join(self, process: SimReplica) -> None:
        name, fence = process.replica_id, process.fence
        peers = self._database.run(
            lambda uow: reports.join(
                uow, process.principal, name, fence, f"{self.agent_id}:{name[-6:]}"
            ),
            actor=self.agent_id,
        )
        process.joined = peers is not None

    def _report(self, process: SimReplica, now: PlatformTime, twice: bool = False) -> None:
        if process.began is None:
            process.began = now
        reached = process.last_step(now)
        due = process.reported is None or self._clock.now() >= process.reported.plus_seconds(
            REPORT_SECONDS
        )
        state = "SUCCEEDED" if reached >= process.assigned.job.spec.steps else "RUNNING"
        news = reached > process.done and process.assigned.replica.rank == 0
        if not news and not due and state == "RUNNING":
            return
        desired = self._say(process, reached, state)
        if twice:
            self._say(process, reached, state)  # the answer was lost, so it says the same again
        if state == "SUCCEEDED":
            process.final = state
        elif desired == "YIELD":
            self._say(process, reached, "YIELDED", saved=True)
            process.final = "YIELDED"
        elif desired == "STOP":
            process.stopping = True

    def report_twice(self, replica_id: str) -> None:
        process = self.processes.get(replica_id)
        if process is not None and process.joined and not self.is_silent:
            self._report(process, self._database.read(lambda uow: uow.now), twice=True)

    def _say(self, process: SimReplica, reached: int, state: str, saved: bool = False) -> str:
        every = process.assigned.job.spec.checkpoint_every_steps
        first = process.assigned.replica.rank == 0
        fresh = range(process.done + 1, reached + 1)
        marks = [step for step in fresh if step % every == 0]
        if saved and reached > process.assigned.attempt.resume_step and reached not in marks:
            marks.append(reached)
        number = process.fence
        points = [_point(step, number, process.step_seconds) for step in fresh] if first else []

        def unit(uow: UnitOfWork) -> str:
            saved = [_checkpoint(step, number, uow.now) for step in marks] if first else []
            progress = Progress(
                number,
                state,
                None,
                points,
                evaluations=[],
                checkpoints=saved,
                pruned=[],
                summary={},
            )
            return reports.report(
                uow, process.principal, process.replica_id, progress, NO_FILES
            ).desired

        desired = self._database.run(unit, actor=self.agent_id)
        if self._database.peek(_IS_OVER, {"replica": process.replica_id}) is not None:
            self.strange.append(
                (
                    "I4",
                    process.replica_id,
                    f"fence {process.fence} is over, and its report was taken",
                )
            )
        process.reported = self._clock.now()
        process.done = max(process.done, reached)
        return desired


def _report(
    replica: str, fence: int, phase: ReplicaPhase, reason: str, released: bool
) -> ReplicaReport:
    return ReplicaReport(
        replica, fence, "EXITED" if phase is ReplicaPhase.EXITED else str(phase), reason, released
    )


def _point(step: int, attempt: int, seconds: float) -> MetricPoint:
    return MetricPoint(
        step,
        attempt,
        {"loss": 1.0 / step, "accuracy": 0.5},
        wall_seconds=0.0,
        modelled_seconds=seconds,
    )


def _checkpoint(step: int, attempt: int, at: PlatformTime) -> CheckpointRecord:
    return CheckpointRecord(step, attempt, f"checkpoint-{step}", f"{step:064x}", best=False, at=at)


@dataclasses.dataclass(slots=True)
class _Letter:
    at: RealTime
    number: int
    agent_id: str


class Broker:
    """Takes what the loop sends. For the next `messages` messages after `disturb` it loses, doubles
    and delays some."""

    def __init__(self, clock: RealClock, chance: Random) -> None:
        self._clock = clock
        self._chance = chance
        self._letters: list[_Letter] = []
        self._sent = 0
        self._disturbed = 0
        self._lose = self._double = self._delay = 0.0

    def disturb(self, lose: float, double: float, delay: float, messages: int) -> None:
        """`lose`, `double`: probabilities; `delay`: real seconds at most."""
        self._lose, self._double, self._delay, self._disturbed = lose, double, delay, messages

    def send(self, queue: str, task: str, args: Sequence[str]) -> None:
        del queue, task  # every task pokes the agent that its argument names
        copies, delay = 1, 0.0
        if self._disturbed > 0:
            self._disturbed -= 1
            copies = (
                0
                if self._chance.random() < self._lose
                else 1 + (self._chance.random() < self._double)
            )
            delay = self._chance.uniform(0.0, self._delay)
        for _ in range(copies):
            self._sent += 1
            self._letters.append(
                _Letter(self._clock.now().plus_seconds(delay), self._sent, args[0])
            )

    def due(self) -> list[str]:
        """Agents that are poked now, taken out; in the order of their letters."""
        now = self._clock.now()
        ready = sorted(
            (item for item in self._letters if item.at <= now),
            key=lambda item: (item.at, item.number),
        )
        self._letters = [item for item in self._letters if item.at > now]
        return list(dict.fromkeys(item.agent_id for item in ready))

    @property
    def is_waiting(self) -> bool:
        return bool(self._letters)
