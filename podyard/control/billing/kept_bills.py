"""Bills that a process keeps, so that a page need not meter everything (`snapshots.py`).

They are made resource by resource. One that is not in use, and has no new event, has the same
records now as a minute ago. One that is in use and has no new event is in use longer: its last
period is drawn out to now. Only the others are read and metered again. What is kept is never the
truth: a process without it computes it again, once, however many ask for it at the same time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.db.billing import usage_events
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import Account, PaidProject
from podyard.domain.node import UsageClass
from podyard.domain.usage import (
    BilledKind,
    BilledResource,
    Suspense,
    UsageEvent,
    UsageRecord,
    node_key_of,
    parts_within,
)
from podyard.pricing import bill
from podyard.pricing.bill import Resource, Use, resource_of
from podyard.pricing.sku import RateCard

# Whose bills a process keeps, but for the one that was asked for last: 50,000 took some 400 MB with
# all of their pages.
RESOURCES_KEPT = 200_000
# PostgreSQL commits events out of the order of their numbers: among so many the late ones are
# looked for.
LATE_EVENTS_MAX = 10_000
# for a bill that another thread is making: one of 1,000,000 events takes some 15 s
WAIT_SECONDS_MAX = 120.0
PACE_EVENTS = 400  # between two breaths of who makes a bill ahead: some 4 ms of metering

Pace = Callable[[bool], None]  # is told whether a reader waits for the bill


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """All resources as they were at `as_of`, when `last_seq` was the last usage event of all
    projects, and the `recent` ones before it were so many.

    `records`, `suspense`, `seconds`, `waived`: of those that are not in use, `closed` being all of
    the records in the order of the resources; `running`: those that are in use, as they were
    metered at `as_of` or before. `unsettled`: they have events later than that, by a machine whose
    clock is ahead. `views`: what pages have made of all this; a bill with other events has none
    yet.
    """

    as_of: PlatformTime
    last_seq: int
    recent: int
    card: RateCard
    facts: Mapping[str, BilledResource]
    resources: Mapping[str, Resource]
    records: Mapping[str, Sequence[UsageRecord]]
    suspense: Mapping[str, Sequence[Suspense]]
    seconds: Mapping[str, int]
    waived: Mapping[str, int]
    running: Mapping[str, Use]
    unsettled: Sequence[str]
    closed: Sequence[UsageRecord]
    views: OrderedDict[Any, Future[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class JoinedBill:
    """The part of several projects' bills that one account pays for: the records of what is not in
    use."""

    projects: tuple[PaidProject, ...]
    bills: tuple[Kept, ...]
    closed: Sequence[UsageRecord]
    views: OrderedDict[Any, Future[Any]]


def _paid_records(projects: Sequence[PaidProject], bills: Sequence[Kept]) -> Iterator[UsageRecord]:
    for paid, kept in zip(projects, bills, strict=True):
        for span in paid.spans:
            yield from parts_within(kept.closed, span)


class Behind(PodyardError):
    """The bill was made as of a later moment than this read is of: the reader starts again."""

    def __init__(self, shelf: Shelf, project: str) -> None:
        super().__init__(
            Code.ABORTED, f"the bill of {project} is of a later moment by now; read it again"
        )
        self._shelf = shelf
        self._project = project

    def __reduce__(self) -> tuple[object, ...]:
        return (PodyardError, (self.code, self.message))

    def drop(self) -> None:
        """Forgets what is kept, for a clock that has gone back."""
        self._shelf.drop(self._project)


def still_made() -> PodyardError:
    """For who has waited long enough."""
    return PodyardError(
        Code.UNAVAILABLE, f"the bill is not ready after {WAIT_SECONDS_MAX:.0f} s; try again later"
    )


class _Turn:
    """The turn of a process to make a project's bill: one at a time."""

    def __init__(self) -> None:
        self._free = threading.Lock()
        self.waiting = 0

    @property
    def is_taken(self) -> bool:
        return self._free.locked()

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        with lock:
            self.waiting += 1
        try:
            taken = self._free.acquire(timeout=WAIT_SECONDS_MAX)
        finally:
            with lock:
                self.waiting -= 1
        if not taken:
            raise still_made()
        try:
            yield
        finally:
            self._free.release()


class Shelf:
    """The bills that are kept of one database, the one that was made last at the end."""

    def __init__(self) -> None:
        self._projects: OrderedDict[str, Kept] = OrderedDict()
        self._joined: dict[str, JoinedBill] = {}
        self._turns: weakref.WeakValueDictionary[str, _Turn] = weakref.WeakValueDictionary()

    def get(self, project: str) -> Kept | None:
        with lock:
            return self._projects.get(project)

    def put(self, project: str, found: Kept) -> None:
        with lock:
            self._projects[project] = found
            self._projects.move_to_end(project)
            self._forget_joined(project)
            while (
                len(self._projects) > 1
                and sum(len(one.resources) for one in self._projects.values()) > RESOURCES_KEPT
            ):
                self._forget_joined(self._projects.popitem(last=False)[0])

    def drop(self, project: str) -> None:
        with lock:
            self._projects.pop(project, None)
            self._forget_joined(project)

    def join(self, account: Account, bills: Sequence[Kept]) -> JoinedBill:
        """Return what the account pays for of the bills of its projects, which are in their
        order."""
        with lock:
            found = self._joined.get(account.project)
        if (
            found is None
            or found.projects != account.projects
            or list(map(id, found.bills)) != list(map(id, bills))
        ):
            closed = list(_paid_records(account.projects, bills))
            found = JoinedBill(account.projects, tuple(bills), closed, OrderedDict())
            with lock:
                self._joined[account.project] = found
        return found

    def _forget_joined(self, project: str) -> None:
        for name, one in list(self._joined.items()):
            if any(paid.project == project for paid in one.projects):
                del self._joined[name]

    def turn(self, project: str) -> _Turn:
        with lock:
            return self._turns.setdefault(project, _Turn())


lock = threading.Lock()  # of all that is kept: it is held for moments only
_shelves: weakref.WeakKeyDictionary[object, Shelf] = weakref.WeakKeyDictionary()


def current(uow: UnitOfWork, card: RateCard, project: str, pace: Pace | None = None) -> Kept:
    """Return what is kept, with the resources metered again that have new events.

    `pace` is called after each `PACE_EVENTS` events; what it raises ends the work. Raises `Behind`,
    and UNAVAILABLE when another thread has been making it for too long.
    """
    last_seq = usage_events.last_seq(uow)
    with lock:
        shelf = _shelves.setdefault(uow.connection.engine, Shelf())
    before = shelf.get(project)
    if before is not None and _holds(uow, before, card, last_seq):
        return before
    turn = shelf.turn(project)
    with turn.take():
        before = shelf.get(project)
        if before is not None and before.card is not card:
            before = None  # prices have changed: it is of another bill
        if before is not None and (before.last_seq > last_seq or before.as_of > uow.now):
            raise Behind(shelf, project)
        if before is not None and _holds(uow, before, card, last_seq):
            return before
        found = _make(
            uow, card, project, last_seq, before, lambda: pace(turn.waiting > 0) if pace else None
        )
        shelf.put(project, found)
        return found


def is_first_made(uow: UnitOfWork, project: str) -> bool:
    """Return whether another thread makes the bill and none is kept from before: who reads it
    waits."""
    with lock:
        shelf = _shelves.get(uow.connection.engine)
    return shelf is not None and shelf.get(project) is None and shelf.turn(project).is_taken


def join_bills(uow: UnitOfWork, account: Account, bills: Sequence[Kept]) -> JoinedBill:
    """The bills of the account's projects as one."""
    with lock:
        shelf = _shelves.setdefault(uow.connection.engine, Shelf())
    return shelf.join(account, bills)


def _holds(uow: UnitOfWork, kept: Kept, card: RateCard, last_seq: int) -> bool:
    """Return whether nothing has happened since."""
    same = (
        kept.card is card
        and kept.last_seq == last_seq
        and kept.as_of <= uow.now
        and not kept.unsettled
    )
    return same and _recent(uow, last_seq) == kept.recent


def _recent(uow: UnitOfWork, last_seq: int) -> int:
    """Return how many of the last numbers have events: those of units under way come later."""
    return usage_events.count(uow, last_seq - LATE_EVENTS_MAX, last_seq)


def _make(
    uow: UnitOfWork,
    card: RateCard,
    project: str,
    last_seq: int,
    before: Kept | None,
    breathe: Callable[[], None],
) -> Kept:
    recent, changed = _recent(uow, last_seq), None
    if before is not None:
        late = _recent(uow, before.last_seq) != before.recent
        found = usage_events.resources_changed(
            uow, project, before.last_seq - (LATE_EVENTS_MAX if late else 0)
        )
        changed = sorted({*found, *before.unsettled})
        if not changed:
            return dataclasses.replace(before, last_seq=last_seq, recent=recent)
    made = _Making(uow.now, card, before)
    since = 0
    for node, history in usage_events.histories(
        uow, project, changed, with_storage=card.charges_storage
    ):
        for billed in bill.charged_resources(card, [node]).values():
            made.meter(billed, history)
        since += len(history)
        if since >= PACE_EVENTS:
            since = 0
            breathe()
    return made.to_kept(last_seq, recent)


class _Making:
    """A bill in the making: what was kept before, with some resources metered again."""

    def __init__(self, as_of: PlatformTime, card: RateCard, before: Kept | None) -> None:
        self._as_of = as_of
        self._card = card
        self._kinds: dict[tuple[str, str, UsageClass, BilledKind], Resource] = {}
        self._facts = dict(before.facts) if before else {}
        self._resources = dict(before.resources) if before else {}
        self._records = dict(before.records) if before else {}
        self._suspense = dict(before.suspense) if before else {}
        self._seconds = dict(before.seconds) if before else {}
        self._waived = dict(before.waived) if before else {}
        self._running = dict(before.running) if before else {}
        self._unsettled: list[str] = []

    def meter(self, node: BilledResource, history: Sequence[UsageEvent]) -> None:
        """All events of one node, disk or bucket, in their order; `node`: itself, or the node's
        hosts."""
        key, resource = node.key, self._resource(node)
        use = bill.use_of(resource, history, self._as_of)
        metered, found = use.metered, use.rated
        for kept in (self._records, self._suspense, self._seconds, self._waived, self._running):
            kept.pop(key, None)
        self._facts[key], self._resources[key] = node, resource
        # What has a size has another one from its last event on, also where that is of this moment,
        # as operations are; and it has none for as long as sizes of its kind are not charged.
        begins = resource.since.nanos if resource.since is not None and node.kind.is_storage else 0
        if (
            max(begins, *(event.at.nanos for event in history)) + node.kind.is_storage
            > self._as_of.nanos
        ):
            self._unsettled.append(key)
        if metered.open_since is not None:
            self._running[key] = use
            return
        self._records[key] = found.records
        if found.suspense:
            self._suspense[key] = found.suspense
        self._seconds[key], self._waived[key] = metered.seconds, metered.waived_seconds

    def _resource(self, node: BilledResource) -> Resource:
        """Return what it is sold as: looked up once for all nodes of its kind."""
        kind = (node.type, node.zone, node.usage_class, node.kind)
        if kind not in self._kinds:
            self._kinds[kind] = resource_of(self._card, node)
        of_node = node_key_of(node.key) if node.kind is BilledKind.HOST else ""
        return dataclasses.replace(self._kinds[kind], resource_id=node.key, node=of_node)

    def to_kept(self, last_seq: int, recent: int) -> Kept:
        return Kept(
            as_of=self._as_of,
            last_seq=last_seq,
            recent=recent,
            card=self._card,
            facts=self._facts,
            resources=self._resources,
            records=self._records,
            suspense=self._suspense,
            seconds=self._seconds,
            waived=self._waived,
            running={key: self._running[key] for key in sorted(self._running)},
            unsettled=self._unsettled,
            closed=[record for key in sorted(self._records) for record in self._records[key]],
            views=OrderedDict(),
        )
