"""One round of the loop, as a list of steps. Each step reads first and writes only what has to
change.

1. `anchor`      the platform clock (it stands still while no loop anchors it) and the leader's
  lease
2. `walk`        everything that is due, in order, each at its due time. A virtual clock is set
  forward on the way: to each timer, and in the end to where it has to be by now; what waits is
  looked at in between
3. `place`       load the fleet, decide, apply each action guarded by the version it was decided for
4. `start_jobs`  gangs for the jobs that wait
5. `follow_budgets`  when budgets will be used up, where nodes or jobs have changed
6. `follow_webhooks`  requests to the endpoints of projects in which something has changed
7. `reconcile`   what has gone silent or has been left behind (once a second, more often when leases
  are short)
8. `send`        the outbox
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from podyard.base.clock import ClockMode, PlatformTime, RealClock, RealTime, seconds_to_nanos
from podyard.base.errors import PodyardError
from podyard.base.rng import Streams
from podyard.control.billing import accounts, budgets, closing, exports
from podyard.control.checks import faults
from podyard.control.compute import hosts, maintenance, nodes, queued_resources, reservations
from podyard.control.compute.instances import groups
from podyard.control.jobs import gangs, log_copies, own_nodes, preemption, reconcile, recovery
from podyard.control.platform import webhook_endpoints, webhooks
from podyard.db.billing import budgets as budget_rows
from podyard.db.billing import exports as export_rows
from podyard.db.compute import hosts as host_rows
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import attempts, jobs, replicas
from podyard.db.platform import faults as fault_rows
from podyard.db.platform import webhooks as webhook_rows
from podyard.db.store import leases, outbox, platform_clock, timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import Database, Stale, UnitOfWork
from podyard.db.views import fleet as fleet_rows
from podyard.domain.fleet import Fleet, FleetSnapshot
from podyard.domain.plan import Action, Place, PlaceGroup, Preempt, Wait, WaitGroup
from podyard.domain.ports import Send
from podyard.loop.closings import Closings
from podyard.scheduler.cycle import decide

logger = logging.getLogger(__name__)

# a dead leader is replaced within this; the clock stands still until then
LEADER_LEASE_SECONDS = 3.0
ANCHOR_SECONDS = 0.4  # well inside the clock's horizon of one second
# still inside it; a reader whose anchor is late sees the clock wait for it
ANCHOR_AT_REST_SECONDS = 0.8
# a shorter sleep of the machine counts as time: two clocks are never read at one moment
SLEEP_SECONDS_LEAST = 0.1
RECONCILE_SECONDS = 1.0  # a lost message costs a second or two, not more
RECONCILE_AT_REST_SECONDS = 10.0  # while there is nothing to put right until something is committed
# at least this often does the loop look while a lease runs, however short it is
LOOKS_PER_LEASE = 5.0
SEND_SECONDS_MAX = 1.0  # of one round for messages: well inside the lease of the leader
POKE_AGAIN_SECONDS = 5.0  # how often an agent that has replicas to stop is reminded
# so that a burst of timers cannot keep the leader from renewing its lease
TIMERS_PER_ROUND_MAX = 1024
# in one commit: far past the point where its cost is felt, and the API has its turn after it
TIMERS_TOGETHER_MAX = 32
ACTOR = "loop"


@dataclasses.dataclass
class Loop:
    """The state that one loop process keeps between rounds; nothing of it matters to another
    process."""

    database: Database
    fleet: Fleet
    send_message: Send
    clock: RealClock
    owner: str
    fence: int = 0
    watching_since: RealTime | None = None
    _anchored_at: float = float("-inf")
    _suspended_seconds: float = 0.0  # the machine's reading at the last anchor
    _reconciled_at: float = float("-inf")
    _poked_at: float = float("-inf")
    _streams: Streams = dataclasses.field(default_factory=Streams)
    _decided: FleetSnapshot | None = None
    _stamp: tuple[Any, ...] | None = None
    # A walk that one round did not end, and the clock's numbers that it goes by: others begin
    # another walk.
    _way: tuple[object, PlatformTime] | None = None
    _closings: Closings = dataclasses.field(init=False)
    # Until then nothing is to be done as long as the database has this version.
    _still_until: float = float("-inf")
    _version: int | None = None
    _version_of_others: int | None = None

    def __post_init__(self) -> None:
        self._suspended_seconds = self.clock.suspended_seconds()
        self._closings = Closings(self.database, self.clock, ACTOR)

    def round(self) -> bool:
        """One round; False when another loop leads."""
        # An anchor with the look: the next one need not ask again what others had committed before.
        is_woken = self._is_at_rest() and self.database.version() != self._version
        if not self.anchor(at_once=is_woken):
            return False
        if self._is_at_rest() and self.database.version() == self._version:
            return True
        self._version = self.database.version()
        self.walk()
        if self._anything_waits():
            self.place()
            self.start_jobs()
            self.follow_budgets()
        self.follow_webhooks()
        self.reconcile()
        self.send()
        self._rest()
        return True

    def _rest(self) -> None:
        """Wait where the round has found nothing to do, until something is committed, a timer may
        be due, or it is time to reconcile. On SQLite only, which says at once whether anything is
        committed."""
        self._still_until = float("-inf")
        now = self.clock.monotonic_seconds()
        # the next anchor may take the clock far ahead
        is_late = now - self._anchored_at >= ANCHOR_AT_REST_SECONDS
        if is_late or self._version is None or self._version != self.database.version():
            return

        def still_until(uow: UnitOfWork) -> float:
            mode = uow.clock.mode
            if mode is ClockMode.VIRTUAL:
                return float("-inf")  # it moves by more than the time that passes
            # UTC may be set forward.
            at_rest = mode is ClockMode.LOCAL and not any(look(uow) for look in _ALIVE)
            until = self._reconciled_at + (
                RECONCILE_AT_REST_SECONDS if at_rest else self._period(RECONCILE_SECONDS)
            )
            timer = timers.first_due(uow, uow.now.plus_seconds(max(0.0, until - now)))
            return until if timer is None else now + timer.due.seconds_since(uow.now)

        self._still_until = self.database.read(still_until)

    def rest_seconds(self) -> float:
        """Return how long there is nothing to do unless something is committed; 0 where the next
        round has to look."""
        if not self._is_at_rest():
            return 0.0
        until = min(self._still_until, self._anchored_at + self._period(ANCHOR_AT_REST_SECONDS))
        return max(0.0, until - self.clock.monotonic_seconds())

    def _is_at_rest(self) -> bool:
        return self.clock.monotonic_seconds() < self._still_until

    def anchor(self, *, at_once: bool = False) -> bool:
        now, suspended = self.clock.monotonic_seconds(), self.clock.suspended_seconds()
        slept = suspended - self._suspended_seconds >= SLEEP_SECONDS_LEAST
        period = ANCHOR_AT_REST_SECONDS if self._is_at_rest() else ANCHOR_SECONDS
        if not slept and not at_once and now - self._anchored_at < self._period(period):
            return True
        slept_nanos = seconds_to_nanos(suspended - self._suspended_seconds) if slept else 0

        def body(uow: UnitOfWork) -> tuple[int | None, int | None, RealTime]:
            lease = leases.acquire(uow, leases.LOOP_LEADER, self.owner, LEADER_LEASE_SECONDS)
            if lease is not None:
                platform_clock.tick(uow, lease.fence, self.fence, slept_nanos)
            return None if lease is None else lease.fence, uow.version_of_others(), uow.real_now

        is_seen = self.database.version() == self._version
        fence, others, real = self.database.run(body, actor=ACTOR)
        if is_seen and others == self._version_of_others and fence == self.fence and not slept:
            self._version = self.database.version()  # only this unit has written
        self._version_of_others = others
        if slept:
            self._suspended_seconds = suspended
        gap = now - self._anchored_at
        if fence is None:
            self.watching_since, self._still_until = None, float("-inf")
            return False
        if (
            fence != self.fence
            or self.watching_since is None
            or gap > self.database.leases.replica_seconds / 2
        ):
            self.watching_since = real
        self.fence = fence
        self._anchored_at = now
        return True

    def _period(self, usual_seconds: float) -> float:
        leases = self.database.leases
        return min(
            usual_seconds, min(leases.agent_seconds, leases.replica_seconds) / LOOKS_PER_LEASE
        )

    def walk(self) -> None:
        """Fires what is due until now, or until the goal of a virtual clock. A long walk goes on in
        the next round."""
        clock, now, real = self.database.read(lambda uow: (uow.clock, uow.now, uow.real_now))
        virtual = clock.mode is ClockMode.VIRTUAL
        goal = now
        if virtual:
            by = (clock.anchor_real, clock.rate_millionths, clock.target)
            if self._way is None or self._way[0] != by or self._way[1] <= now:
                self._way = (by, clock.goal(real))
            goal = self._way[1]
        if (
            self._fire_until(goal, virtual=virtual)
            and virtual
            and (goal > now or clock.target is not None)
        ):
            self.database.run(partial(platform_clock.reach, goal=goal, real=real), actor=ACTOR)

    def _fire_until(self, goal: PlatformTime, *, virtual: bool = False) -> bool:
        """Return whether everything that is due until then has been fired; otherwise the next round
        goes on."""
        outdated = 0
        for _ in range(TIMERS_PER_ROUND_MAX // TIMERS_TOGETHER_MAX):
            if virtual and self._anything_waits():
                self._place_waiting()
                self.follow_budgets()  # whether a job may start on a node
                self._follow_jobs()
                if self.database.read(jobs.is_any_modelled_waiting):
                    # the node that one has just been given: before time goes on
                    self._place_waiting()
                self.follow_budgets()  # what those that have started will cost
            count, first = self.database.read(
                lambda uow: (
                    timers.count_due(uow, goal, TIMERS_TOGETHER_MAX),
                    timers.first_due(uow, goal),
                )
            )
            if first is None:
                return True
            stretch = _Stretch(goal, virtual)
            if first.kind == accounts.CLOSE_TIMER:
                done = False
                if outdated < closing.CLOSE_TRIES_MAX:
                    done, stretch.closing = self._closings.of(first.resource_key, first.due)
                if not done:
                    if virtual:
                        return False  # a walk waits for the bill
                    self.database.run(
                        partial(closing.put_off, project=first.resource_key), actor=ACTOR
                    )
                    continue
            unit = partial(_fire_next, fleet=self.fleet, stretch=stretch)
            for result in self.database.run_together([unit] * count, actor=ACTOR):
                if isinstance(result, PodyardError):
                    raise result
            outdated += stretch.outdated
            if stretch.put_off:
                # a walk of hours would look every quarter of a second whether a process has ended
                return False
        return False

    def _anything_waits(self) -> bool:
        """Return whether a node, a group, a job or a budget waits for a look: asked in one reading,
        since mostly none does."""
        looks = (
            self._is_due,
            budget_rows.any_to_look_at,
            jobs.is_any_waiting,
            jobs.is_any_modelled_waiting,
        )
        return self.database.read(lambda uow: any(look(uow) for look in looks))

    def place(self) -> None:
        if self._place_waiting():
            # A fleet whose nodes take no time has everything done in the same round.
            self._fire_until(self.database.read(lambda uow: uow.now))

    def _place_waiting(self) -> bool:
        """Return whether a cycle has decided anything."""
        if not self.database.read(self._is_due):
            return False
        stamp, snapshot, now = self.database.read(
            lambda uow: (fleet_rows.stamp(uow), fleet_rows.load(uow, self.fleet), uow.now)
        )
        if snapshot == self._decided:
            self._stamp = stamp
            return False  # what waits in the queue would get the same answer again
        plan = decide(snapshot, now, self._streams)
        told = {
            request.group or request.node_key: request.wait_reason for request in snapshot.waiting
        }
        units = [
            partial(_apply, fleet=self.fleet, action=action)
            for action in plan.actions
            if _is_news(action, told)
        ]
        stale = False
        for unit, result in zip(units, self.database.run_together(units, actor=ACTOR), strict=True):
            if isinstance(result, Stale):
                stale = True
                logger.info(
                    "the target of %s has changed; the next cycle decides again",
                    unit.keywords["action"],
                )
            elif isinstance(result, PodyardError):
                raise result
        self._decided = snapshot
        # What is free after anything else is not what it was when the stamp was read.
        only_waits = all(isinstance(action, Wait | WaitGroup) for action in plan.actions)
        self._stamp = stamp if only_waits and not stale else None
        return True

    def _is_due(self, uow: UnitOfWork) -> bool:
        """Return whether something waits that has not got its answer from what there is now."""
        if not fleet_rows.anything_waits(uow):
            return False
        stamp = fleet_rows.stamp(uow)
        return stamp is None or stamp != self._stamp

    def _follow_jobs(self) -> None:
        """On a walk, what a job does when its node has changed does not wait for the real second to
        pass."""
        if self._jobs_wait():
            self.database.run(
                partial(reconcile.end_jobs_without_node, fleet=self.fleet), actor=ACTOR
            )
            self.start_jobs()

    def _jobs_wait(self) -> bool:
        return self.database.read(jobs.is_any_waiting)

    def start_jobs(self) -> None:
        if self._jobs_wait():
            self.database.run(partial(gangs.start_waiting, shares=self.fleet.shares), actor=ACTOR)

    def follow_budgets(self) -> None:
        if self.database.read(budget_rows.any_to_look_at):
            self.database.run(partial(budgets.follow, fleet=self.fleet), actor=ACTOR)

    def follow_webhooks(self) -> None:
        if self.database.read(webhook_rows.any_to_look_at):
            self.database.run(webhook_endpoints.follow, actor=ACTOR)

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
            gangs.resize(uow)
            reconcile.end_jobs_without_node(uow, self.fleet)
            hosts.settle(uow, since)
            if poke:
                reconcile.poke_stopping(uow)
                webhooks.send_again(uow)
                exports.send_again(uow)

        self.database.run(body, actor=ACTOR)
        if poke:
            self._poked_at = now

    def send(self) -> None:
        """Sends what is unsent, as far as a round has time for it. A message that was sent but not
        marked goes out again: receivers do not mind."""
        until = self.clock.monotonic_seconds() + SEND_SECONDS_MAX
        while self._send_batch() and self.clock.monotonic_seconds() < until:
            pass

    def _send_batch(self) -> bool:
        """Return whether more may wait."""
        waiting = self.database.read(outbox.list_unsent)
        sent = []
        for message in waiting:
            try:
                self.send_message(message.queue, message.task, message.args)
            except PodyardError as error:
                logger.warning(
                    "message %s stays in the outbox: %s", message.message_id, error.message
                )
                break
            sent.append(message.message_id)
        if sent:
            self.database.run(lambda uow: outbox.mark_sent(uow, sent), actor=ACTOR)
        return len(sent) == outbox.OUTBOX_BATCH_MAX

    def stop(self) -> None:
        """Leaves in order: the clock stands still from now on, and the next loop need not wait for
        the lease."""
        if self.watching_since is None:
            return

        def body(uow: UnitOfWork) -> None:
            platform_clock.write(uow, uow.clock.stop_at(uow.real_now))
            leases.release(uow, leases.LOOP_LEADER, self.owner)

        self.database.run(body, actor=ACTOR)


def _apply(uow: UnitOfWork, fleet: Fleet, action: Action) -> None:
    match action:
        case Place():
            nodes.apply_place(uow, fleet, action)
        case PlaceGroup():
            queued_resources.apply_place_group(uow, fleet, action)
        case Wait():
            with fault_rows.acting(uow) if action.fault else contextlib.nullcontext():
                nodes.apply_wait(uow, action)
        case WaitGroup():
            queued_resources.apply_wait_group(uow, action)
        case Preempt():
            preemption.apply(uow, fleet, action)


def _is_news(action: Action, told: Mapping[str, str]) -> bool:
    """Not so where the request has been told the same before."""
    if isinstance(action, WaitGroup):
        return told[action.group] != action.reason
    return not isinstance(action, Wait) or action.stockout or told[action.node_key] != action.reason


@dataclasses.dataclass
class _Stretch:
    """Timers that are fired one after the other: until the goal, and until something waits for what
    they have freed. `put_off`: one has to wait for processes to end, which takes real time: until
    then a virtual clock hardly moves. `closing`: the bill of the account whose month is to be
    closed; `outdated`: it has to be computed once more."""

    goal: PlatformTime
    virtual: bool
    ended: bool = False
    put_off: bool = False
    closing: closing.Prepared | None = None
    outdated: bool = False


def _fire_next(uow: UnitOfWork, fleet: Fleet, stretch: _Stretch) -> None:
    timer = None if stretch.ended else timers.take_next(uow, stretch.goal)
    if timer is None:
        stretch.ended = True
        return
    if stretch.virtual:
        platform_clock.set_forward(uow, timer.due)
    uow.at(timer.due)
    if timer.kind == accounts.CLOSE_TIMER:
        if not closing.on_timer(uow, timer, stretch.closing):
            stretch.ended, stretch.outdated = True, stretch.closing is not None
            return
    else:
        stretch.put_off = bool(_HANDLERS[timer.owner](uow, fleet, timer)) and stretch.virtual
    # before the next timer: it may be due after what a budget has to do now
    budgets.follow(uow, fleet)
    stretch.ended = stretch.virtual and (
        stretch.put_off or fleet_rows.anything_waits(uow) or jobs.is_any_modelled_waiting(uow)
    )


# What may have to be put right by the time that passes alone. Without any of it, the loop looks
# when something is committed or due.
_ALIVE: Sequence[Callable[[UnitOfWork], object]] = (
    fleet_rows.anything_waits,
    jobs.is_any_waiting,
    attempts.is_any_open,
    replicas.list_live,
    partial(host_rows.live, agent_id=None),
    node_rows.that_want_hosts,
    node_rows.list_left_behind,
    budget_rows.any_to_look_at,
    export_rows.is_any_left,
    webhook_rows.any_to_look_at,
    webhook_rows.is_any_left,
    outbox.list_unsent,
)

# Who fires whose timers. True: it was put off, because processes are still on a node's chips.
_HANDLERS: Mapping[str, Callable[[UnitOfWork, Fleet, Timer], bool | None]] = {
    "attempt": lambda uow, _, timer: gangs.on_timer(uow, timer),
    "node": lambda uow, _, timer: nodes.on_timer(uow, timer),
    "queuedResource": queued_resources.on_timer,
    "reservation": lambda uow, _, timer: reservations.on_timer(uow, timer),
    "maintenance": maintenance.on_timer,
    groups.OWNER: groups.on_timer,
    "fault": faults.on_timer,
    "chips": lambda uow, _, timer: recovery.on_timer(uow, timer),
    "budget": budgets.on_timer,
    "job": reconcile.on_timer,
    "autostop": own_nodes.on_autostop,
    log_copies.OWNER: lambda uow, _, timer: log_copies.on_timer(uow, timer),
}
