"""The whole control plane in one process: the real use cases, the real loop, simulated machines,
two manual clocks.

Platform time jumps from one thing that happens to the next: the loop walks it there, firing each
timer at its due time. Real time, which leases and heartbeats go by, passes only where processes on
machines have to react.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from typing_extensions import override

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock, PlatformTime, RealTime
from podyard.base.errors import PodyardError
from podyard.base.rng import Streams
from podyard.control.access import identity
from podyard.db.store import platform_clock
from podyard.db.store.inline import InlineDatabase
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.principal import PLATFORM, Principal
from podyard.loop.steps import ACTOR, LEADER_LEASE_SECONDS, Loop
from podyard.simulation.agents import Broker, SimAgent
from podyard.simulation.workload import TENANTS

T = TypeVar("T")
START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
STEP_REAL_SECONDS = 0.05  # of each event: twenty of them are a look of the reconciler
TURN_REAL_SECONDS = 1.0  # of a turn in which machines have something to do
# of one in which only leases run out: the loop has to keep its own of 3 s
LONG_TURN_REAL_SECONDS = 2.5
SHORT_TURNS = 3  # within these all machines that can be reached have answered
PASSES_MAX = 5  # a process is started, joins, hears of its peers, reports, and is heard of
# after one event: what a lost gang takes until its leases are over and the next one runs
TURNS_MAX = 18
ROUNDS_MAX = 100_000  # of one walk: far more timers than any fleet has at once
AGENT_COUNT = 2
PROJECT_NAMES = tuple(tenant.project for tenant in TENANTS)


# A timer of a job's node; while a job waits for a node, any.
_NEXT_TIMER_OF_JOBS = """
    SELECT min(due) FROM timers WHERE EXISTS (SELECT 1 FROM jobs WHERE state IN ('QUEUED', 'RECOVERING'))
    OR resource_key IN (SELECT node_key FROM jobs WHERE state IN ('PREPARING', 'RUNNING', 'CANCELLING'))
"""  # noqa: E501


_GANG_ON_ITS_WAY = """
    SELECT 1 FROM attempts WHERE state IN ('STARTING', 'ENDING') OR (state = 'RUNNING' AND yield_real IS NOT NULL)
    LIMIT 1
"""  # noqa: E501


# An agent tells of its replicas; the loop ends those of which it has heard nothing.
_GIVEN_UP = """
    SELECT resource_name FROM state_changes
    WHERE seq > :after AND machine = 'replica' AND event = 'exit' AND actor = :loop
"""


class Crash(Exception):
    """The control loop's process dies here."""


class CrashingDatabase(InlineDatabase):
    """`fuse`: after so many more units of the loop, its process dies; None: it does not."""

    fuse: int | None = None

    @override
    def run(self, body: Callable[[UnitOfWork], T], *, actor: str = "podyard", via: str = "") -> T:
        if self.fuse is not None and actor == ACTOR:
            if self.fuse == 0:
                self.fuse = None
                raise Crash
            self.fuse -= 1
        return super().run(body, actor=actor, via=via)


@functools.cache
def _schema() -> bytes:
    """An empty database at the newest revision."""
    database = InlineDatabase(ManualClock(START))
    migrations.to_head(database.engine)
    image = database.image()
    database.close()
    return image


@dataclasses.dataclass(slots=True)
class Told:
    """The platform's answers to the events so far."""

    done: int = 0
    refused: int = 0
    # by request id: that of the first answer
    operations: dict[str, str] = dataclasses.field(default_factory=dict)
    # invariant, name, what is wrong
    strange: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)


class World:
    """One Podyard. `close` frees its database."""

    def __init__(self, seed: int, fleet: Fleet, agent_places: int) -> None:
        self.fleet = fleet
        self.streams = Streams(seed)
        self.clock = ManualClock(START)
        self.database = CrashingDatabase(self.clock, self.streams, schema=_schema())
        self.broker = Broker(self.clock, self.streams.stream("broker"))
        self.told = Told()
        self._now: tuple[object, PlatformTime] | None = None  # and what it goes by
        self.crashes = 0
        self.principals = {
            name: Principal(f"owner@{name}.example", {name: frozenset({"owner"})})
            for name in PROJECT_NAMES
        }
        self.database.run(self._set_up)
        self.loop = self._new_loop()
        self._lease_seconds = self.database.leases.replica_seconds
        # the end of the loop's last gap, and its last round
        self._listens_since = self._rounded = self.clock.now()
        self.agents = [
            SimAgent(f"machine-{number}", agent_places, self.database, self.clock)
            for number in range(AGENT_COUNT)
        ]
        self.round()
        self.start = self.now()

    def _set_up(self, uow: UnitOfWork) -> None:
        platform_clock.set_up(uow, ClockMode.VIRTUAL)
        platform_clock.write(uow, dataclasses.replace(uow.clock, rate_millionths=0))
        identity.bootstrap(uow, "owner", "agent", "machine-0")
        for name in PROJECT_NAMES:
            identity.create_project(uow, PLATFORM, name, {})

    def _new_loop(self) -> Loop:
        return Loop(
            self.database,
            self.fleet,
            self.broker.send,
            self.clock,
            f"loop-{self.crashes}",
            _streams=self.streams,
        )

    def close(self) -> None:
        self.database.close()

    def now(self) -> PlatformTime:
        by = (self.database.write_count("clock"), self.clock.now())
        if self._now is None or self._now[0] != by:
            self._now = (by, self.database.read(lambda uow: uow.now))
        return self._now[1]

    def seconds(self) -> float:
        """Platform seconds since the beginning."""
        return self.now().seconds_since(self.start)

    def ask(
        self, use_case: Callable[..., T], project: str, *arguments: Any, **options: Any
    ) -> T | None:
        """A use case of a tenant, `use_case(uow, [fleet,] principal, project, ...)`; None when it
        was refused."""
        principal = self.principals[project]
        takes_fleet = use_case.__code__.co_varnames[1] == "fleet"
        given = (self.fleet, principal) if takes_fleet else (principal,)
        try:
            answer = self.database.run(
                lambda uow: use_case(uow, *given, project, *arguments, **options),
                actor=principal.email,
                via="v2",
            )
        except PodyardError:
            self.told.refused += 1
            return None
        self.told.done += 1
        return answer

    def advance(self, seconds: float) -> None:
        """Lets platform time come to `seconds` since the beginning, with all that is due on the
        way."""
        target = self.start.plus_seconds(seconds)
        if target <= self.now():
            self.round()  # what came up after the last round, at the same moment
            return
        self.database.run(
            lambda uow: platform_clock.write(uow, dataclasses.replace(uow.clock, target=target))
        )
        for number in range(ROUNDS_MAX):
            self.round()
            if self.database.read(lambda uow: uow.clock.target) is None:
                return
            # The clock waits for processes to end.
            self.turn(TURN_REAL_SECONDS if number < SHORT_TURNS else LONG_TURN_REAL_SECONDS)
        raise AssertionError(f"the clock does not come to {target.rfc3339()}")

    def settle(self) -> None:
        """Lets the machines react, and real time pass, until they have nothing more to do at this
        moment."""
        self.clock.advance(STEP_REAL_SECONDS)
        self._agents()
        for number in range(TURNS_MAX):
            if not self.is_moving():
                return
            self.turn(TURN_REAL_SECONDS if number < SHORT_TURNS else LONG_TURN_REAL_SECONDS)

    def turn(self, real_seconds: float = TURN_REAL_SECONDS) -> None:
        """The machines' time passes, and everybody has a look."""
        self.clock.advance(real_seconds)
        self._agents()
        self.round()

    def is_moving(self) -> bool:
        if self.broker.is_waiting or any(agent.is_busy() for agent in self.agents):
            return True
        return self.peek(_GANG_ON_ITS_WAY) is not None

    def next_mark(self) -> PlatformTime | None:
        """When machines have something to do next: a job's checkpoint or end, or a timer that may
        end a job.

        A node that is taken back looks every quarter of a second of platform time whether its last
        process is gone; processes end in real time, so the clock must not walk on for hours before
        they could.
        """
        processes = [
            item
            for agent in self.agents
            if not agent.is_silent
            for item in agent.processes.values()
        ]
        marks = [
            mark for mark in (process.next_mark() for process in processes) if mark is not None
        ]
        marks += [agent.silent_until for agent in self.agents if agent.silent_until is not None]
        row = self.peek(_NEXT_TIMER_OF_JOBS)
        if row is not None and row[0] is not None:
            marks.append(PlatformTime(row[0]))
        return min(marks, default=None)

    def _agents(self) -> None:
        """Agents and their replicas act until none of them has more to say at this moment."""
        poked = self.broker.due()
        now = self.now()
        for agent in self.agents:
            agent.hear(now)
        for _ in range(PASSES_MAX):
            moved = [agent.turn(agent.agent_id in poked, now) for agent in self.agents]
            if not any(moved):
                return
            poked = []

    def round(self) -> None:
        """One round of the loop. After a crash the next loop leads when the lease of the first is
        over."""
        if self.clock.now().seconds_since(self._rounded) > self._lease_seconds / 2:
            self._listens_since = self.clock.now()
        try:
            self._round()
        except Crash:
            self.crashes += 1
            self.loop = self._new_loop()
            self.clock.advance(LEADER_LEASE_SECONDS)
            self._agents()
            self._listens_since = self.clock.now()
            self._round()

    def _round(self) -> None:
        """I3: who was not heard of while nobody listened is not given up before the loop has
        listened for a lease."""
        deaf = self.clock.now() < self._listens_since.plus_seconds(self._lease_seconds)
        last = self.rows("SELECT max(seq) FROM state_changes")[0][0] if deaf else None
        self.loop.round()
        self._rounded = self.clock.now()
        if last is not None:
            text = "it was given up before the loop had listened for a lease"
            given_up = self.rows(_GIVEN_UP, {"after": last, "loop": ACTOR})
            self.told.strange += [("I3", name, text) for (name,) in given_up]

    def peek(self, sql: str, **values: Any) -> tuple[Any, ...] | None:
        return self.database.peek(sql, values)

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.database.driver.execute(sql, values or {}).fetchall()
        return found
