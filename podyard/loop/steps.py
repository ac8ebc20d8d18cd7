"""One round of the loop, as a list of steps. Each step reads first and writes only what has to change.

1. `anchor`      the platform clock (it stands still while no loop anchors it) and the leader's lease
2. `fire_timers` everything that is due, in order, each at its due time
3. `place`       load the fleet, decide, apply each action guarded by the version it was decided for
4. `start_jobs`  gangs for the jobs that wait
5. `reconcile`   what has gone silent or has been left behind (once a second, more often when leases are short)
6. `send`        the outbox
"""

from __future__ import annotations

import dataclasses
import logging
from functools import partial

from sqlalchemy import select

from podyard.base.clock import RealClock, RealTime
from podyard.base.errors import PodyardError
from podyard.base.rng import Streams
from podyard.control import gangs, hosts, maintenance, nodes, queued_resources, reconcile, reservations
from podyard.db import fleet as fleet_rows
from podyard.db import leases, outbox, platform_clock, timers
from podyard.db.tables_jobs import jobs
from podyard.db.unit_of_work import Database, Stale, UnitOfWork
from podyard.domain.fleet import Fleet, FleetSnapshot
from podyard.domain.plan import Action, Place, PlaceGroup, Wait, WaitGroup
from podyard.domain.ports import Send
from podyard.scheduler.cycle import decide

logger = logging.getLogger(__name__)

LEADER_LEASE_SECONDS = 3.0  # a dead leader is replaced within this; the clock stands still until then
ANCHOR_SECONDS = 0.4  # well inside the clock's horizon of one second
RECONCILE_SECONDS = 1.0  # a lost message costs a second or two, not more
LOOKS_PER_LEASE = 5.0  # at least this often does the loop look while a lease runs, however short it is
POKE_AGAIN_SECONDS = 5.0  # how often an agent that shall stop replicas is reminded
TIMERS_PER_ROUND_MAX = 1000  # so that a burst of timers cannot keep the leader from renewing its lease
ACTOR = "loop"


@dataclasses.dataclass
class Loop:
    """The state that one loop process keeps between rounds; nothing of it matters to another process."""

    database: Database
    fleet: Fleet
    send_message: Send
    clock: RealClock
    owner: str
    fence: int = 0
    watching_since: RealTime | None = None
    _anchored_at: float = float("-inf")
    _reconciled_at: float = float("-inf")
    _poked_at: float = float("-inf")
    _streams: Streams = dataclasses.field(default_factory=Streams)
    _decided: FleetSnapshot | None = None

    def round(self) -> bool:
        """One round; False when another loop leads."""
        if not self.anchor():
            return False
        self.fire_timers()
        self.place()
        self.start_jobs()
        self.reconcile()
        self.send()
        return True

    def anchor(self) -> bool:
        now = self.clock.monotonic_seconds()
        if now - self._anchored_at < self._period(ANCHOR_SECONDS):
            return True

        def body(uow: UnitOfWork) -> int | None:
            lease = leases.acquire(uow, leases.LOOP_LEADER, self.owner, LEADER_LEASE_SECONDS)
            if lease is None:
                return None
            platform_clock.tick(uow, lease.fence)
            return lease.fence

        fence = self.database.run(body, actor=ACTOR)
        gap = now - self._anchored_at
        if fence is None:
            self.watching_since = None
            return False
        if fence != self.fence or self.watching_since is None or gap > self.database.leases.replica_seconds / 2:
            self.watching_since = self.clock.now()
        self.fence = fence
        self._anchored_at = now
        return True

    def _period(self, usual_seconds: float) -> float:
        leases = self.database.leases
        return min(usual_seconds, min(leases.agent_seconds, leases.replica_seconds) / LOOKS_PER_LEASE)

    def fire_timers(self) -> None:
        for _ in range(TIMERS_PER_ROUND_MAX):
            due = self.database.read(lambda uow: (timers.next_due(uow), uow.now))
            if due[0] is None or due[0] > due[1]:
                return
            self.database.run(partial(_fire_next, fleet=self.fleet), actor=ACTOR)

    def place(self) -> None:
        if not self.database.read(fleet_rows.anything_waits):
            return
        snapshot, now = self.database.read(lambda uow: (fleet_rows.load(uow, self.fleet), uow.now))
        if snapshot == self._decided:
            return  # what waits in the queue would get the same answer again
        plan = decide(snapshot, now, self._streams)
        told = {request.group or request.node_key: request.wait_reason for request in snapshot.waiting}
        for action in plan.actions:
            if isinstance(action, WaitGroup) and told[action.group] == action.reason:
                continue
            if isinstance(action, Wait) and not action.stockout and told[action.node_key] == action.reason:
                continue
            try:
                self.database.run(partial(_apply, fleet=self.fleet, action=action), actor=ACTOR)
            except Stale:
                logger.info("the target of %s has changed; the next cycle decides again", action)
        self._decided = snapshot
        self.fire_timers()  # a fleet whose nodes take no time has them READY in the same round

    def start_jobs(self) -> None:
        waiting = select(jobs.c.job_key).where(jobs.c.state.in_(("QUEUED", "RECOVERING"))).limit(1)
        if self.database.read(lambda uow: uow.first(waiting)) is not None:
            self.database.run(gangs.start_waiting, actor=ACTOR)

    def reconcile(self) -> None:
        now = self.clock.monotonic_seconds()
        if now - self._reconciled_at < self._period(RECONCILE_SECONDS):
            return
        self._reconciled_at = now
        poke = now - self._poked_at >= POKE_AGAIN_SECONDS
        since = self.watching_since
        assert since is not None, "only a leader reconciles"

        def body(uow: UnitOfWork) -> None:
            reconcile.lose_silent_replicas(uow, since)
            reconcile.settle_attempts(uow)
            gangs.grow(uow)
            reconcile.end_jobs_without_node(uow, self.fleet)
            hosts.settle(uow, since)
            if poke:
                reconcile.poke_stopping(uow)

        self.database.run(body, actor=ACTOR)
        if poke:
            self._poked_at = now

    def send(self) -> None:
        """Sends what is unsent. A message that was sent but not marked goes out again: receivers do not mind."""
        waiting = self.database.read(outbox.unsent)
        sent = []
        for row in waiting:
            try:
                self.send_message(row["queue"], row["task"], row["args"])
            except PodyardError as error:
                logger.warning("message %s stays in the outbox: %s", row["message_id"], error.message)
                break
            sent.append(row["message_id"])
        if sent:
            self.database.run(lambda uow: outbox.mark_sent(uow, sent), actor=ACTOR)

    def stop(self) -> None:
        """Leaves in order: the clock stands still from now on, and the next loop need not wait for the lease."""
        if self.watching_since is None:
            return

        def body(uow: UnitOfWork) -> None:
            platform_clock.write(uow, uow.clock.stopped(uow.real_now))
            leases.release(uow, leases.LOOP_LEADER, self.owner)

        self.database.run(body, actor=ACTOR)


def _apply(uow: UnitOfWork, fleet: Fleet, action: Action) -> None:
    if isinstance(action, Place):
        nodes.apply_place(uow, fleet, action)
    elif isinstance(action, PlaceGroup):
        queued_resources.apply_place_group(uow, fleet, action)
    elif isinstance(action, Wait):
        nodes.apply_wait(uow, action)
    elif isinstance(action, WaitGroup):
        queued_resources.apply_wait_group(uow, action)
    else:
        raise AssertionError(f"no step applies {action}")


def _fire_next(uow: UnitOfWork, fleet: Fleet) -> None:
    timer = timers.take_next(uow, uow.now)
    if timer is None:
        return
    uow.at(timer["due"])
    machine = timer["kind"].partition(".")[0]
    if machine == "node":
        nodes.on_timer(uow, timer)
    elif machine == "queuedResource":
        queued_resources.on_timer(uow, fleet, timer)
    elif machine == "reservation":
        reservations.on_timer(uow, timer)
    elif machine == "maintenance":
        maintenance.on_timer(uow, fleet, timer)
    else:
        raise AssertionError(f"no step fires {timer['kind']}")
