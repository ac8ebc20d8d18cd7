"""What the billing pages read: the project's bill up to now, without metering everything for each page.

A bill is computed resource by resource. One that is not in use, and has no new event, has the same records now as a
minute ago: these are kept in the process, and only the others are metered again. Then the bill is the same, to the last
part, as the one that `bills.compute` makes of everything, as a test checks. What is kept is never the truth: a process
without it computes it anew.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Engine, bindparam, func, select

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.control import access, accounts, bills
from podyard.control.accounts import Account
from podyard.control.bills import NodeFacts
from podyard.db.tables_billing import usage_events
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.domain.usage import Suspense, UsageEvent, UsageRecord
from podyard.pricing import bill, commitments, months
from podyard.pricing.bill import Resource, Terms
from podyard.pricing.rating import parts_per_second, total
from podyard.pricing.sku import RateCard

PROJECTS_KEPT = 4  # whose bills a process keeps: one of 50,000 nodes took some 400 MB with all of its pages
VIEWS_KEPT = 64  # sums that pages have made of one project's bill
KEYS_AT_ONCE = 500  # resources in one query: below every database's limit of parameters
# PostgreSQL commits events out of the order of their numbers: among so many the late ones are looked for.
LATE_EVENTS_MAX = 10_000

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    """All resources that are not in use, as they were at `as_of`, when `last_seq` was the last usage event of all
    projects, and the `recent` ones before it were so many. `views`: what pages have made of them; a bill with other
    events has none yet."""

    as_of: PlatformTime
    last_seq: int
    recent: int
    card: RateCard
    facts: Mapping[str, NodeFacts]
    resources: Mapping[str, Resource]
    records: Mapping[str, Sequence[UsageRecord]]
    suspense: Mapping[str, Sequence[Suspense]]
    seconds: Mapping[str, int]
    waived: Mapping[str, int]
    running: Sequence[str]
    closed: Sequence[UsageRecord]
    views: OrderedDict[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The project's bill at one moment. `closed` and `open`: use at its prices, of resources that are not in use and
    of those that are; `charges`: net of what commitments cover, with the commitments' own."""

    project: str
    as_of: PlatformTime
    account: Account
    terms: Terms
    facts: Mapping[str, NodeFacts]
    resources: Mapping[str, Resource]
    closed: Sequence[UsageRecord]
    open: Sequence[UsageRecord]
    charges: Sequence[UsageRecord]
    suspense: Sequence[Suspense]
    open_since: Mapping[str, PlatformTime]
    seconds: Mapping[str, int]
    waived: Mapping[str, int]
    views: OrderedDict[Any, Any]

    @property
    def month(self) -> str:
        return self.account.month_of(self.as_of)

    def month_seconds(self, month: str | None = None) -> range:
        return months.seconds_of(self.month if month is None else month, self.account.time_zone)

    @property
    def plain(self) -> bool:
        """Whether there are no commitments: then every charge is a record, and depends on its own resource only."""
        return not self.terms.commitments

    @property
    def used(self) -> Amount:
        """All use at its prices, whatever commitments cover."""
        return self.kept("used", lambda: total(self.closed)) + total(self.open)

    def kept(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` makes of `closed` and of nothing else, or what it made before."""
        with _lock:
            if key in self.views:
                self.views.move_to_end(key)
                found: T = self.views[key]
                return found
        made = make()
        with _lock:
            self.views[key] = made
            while len(self.views) > VIEWS_KEPT:
                self.views.popitem(last=False)
        return made

    @property
    def moment(self) -> tuple[Any, ...]:
        """Part of the key of what follows from the whole bill at this moment."""
        return self.as_of, repr(self.terms)


_lock = threading.Lock()
_databases: weakref.WeakKeyDictionary[Engine, OrderedDict[str, _Kept]] = weakref.WeakKeyDictionary()


def snapshot(uow: UnitOfWork, card: RateCard, principal: Principal, project: str) -> Snapshot:
    """The bill of everything the project has used, now."""
    principal.require("podyard.billing.view", project, f"projects/{project}/costs")
    access.project_row(uow, project)
    account = accounts.of(uow, project)
    terms = bills.terms_of(uow, account)
    kept = _current(uow, card, project)
    resources = {key: kept.resources[key] for key in kept.running}
    now = _compute(uow, project, resources)
    charges: Sequence[UsageRecord] = [*kept.closed, *now.records]
    if terms.commitments:
        own = commitments.own_charges(terms.commitments, uow.now)
        charges = [*own, *commitments.cover(charges, terms.commitments, uow.now)]
    return Snapshot(
        project=project,
        as_of=uow.now,
        account=account,
        terms=terms,
        facts=kept.facts,
        resources=kept.resources,
        closed=kept.closed,
        open=now.records,
        charges=charges,
        suspense=[*(one for found in kept.suspense.values() for one in found), *now.suspense],
        open_since=now.open_since,
        seconds={**kept.seconds, **now.seconds},
        waived={**kept.waived, **now.waived_seconds},
        views=kept.views,
    )


def _current(uow: UnitOfWork, card: RateCard, project: str) -> _Kept:
    """What is kept, with the resources metered again that have new events."""
    last_seq = int(uow.execute(_LAST_SEQ).scalar() or 0)
    with _lock:
        projects = _databases.setdefault(uow.connection.engine, OrderedDict())
        before = projects.get(project)
    if before is not None and (before.last_seq > last_seq or before.as_of > uow.now or before.card is not card):
        before = None  # another reader is ahead of this one, or prices have changed: what is kept is not of this bill
    late = before is not None and _recent(uow, before.last_seq) != before.recent
    if before is not None and before.last_seq == last_seq and not late:
        return before
    found = _made(uow, card, project, last_seq, before, late)
    with _lock:
        projects[project] = found
        projects.move_to_end(project)
        while len(projects) > PROJECTS_KEPT:
            projects.popitem(last=False)
    return found


def _recent(uow: UnitOfWork, last_seq: int) -> int:
    """How many of the last numbers have events: those of units under way come later."""
    window = {"since": last_seq - LATE_EVENTS_MAX, "until": last_seq}
    return int(uow.execute(_RECENT, window).scalar() or 0)


def _made(uow: UnitOfWork, card: RateCard, project: str, last_seq: int, before: _Kept | None, late: bool) -> _Kept:
    since = 0 if before is None else before.last_seq - (LATE_EVENTS_MAX if late else 0)
    recent = _recent(uow, last_seq)
    changed = [] if before is None else _changed(uow, project, since)
    if before is not None and not changed:
        return dataclasses.replace(before, last_seq=last_seq, recent=recent)
    facts = _facts(uow, project, since)
    resources = {key: bills.resource_of(card, node) for key, node in facts.items()}
    if before is not None:
        facts, resources = {**before.facts, **facts}, {**before.resources, **resources}
        again = {key: resources[key] for key in sorted({*before.running, *changed})}
    else:
        again = resources
    now = _compute(uow, project, again, everything=before is None)
    records: dict[str, list[UsageRecord]] = {key: [] for key in again if key not in now.open_since}
    suspense: dict[str, list[Suspense]] = {}
    for record in now.records:
        if record.resource_id in records:
            records[record.resource_id].append(record)
    for one in now.suspense:
        if one.resource_id in records:
            suspense.setdefault(one.resource_id, []).append(one)
    old = () if before is None else [key for key in before.records if key not in again]
    kept_records = {**({key: before.records[key] for key in old} if before else {}), **records}
    kept_suspense = {**({k: v for k, v in before.suspense.items() if k not in again} if before else {}), **suspense}
    ordered = {key: kept_records[key] for key in sorted(kept_records)}
    return _Kept(
        as_of=uow.now,
        last_seq=last_seq,
        recent=recent,
        card=card,
        facts=facts,
        resources=resources,
        records=ordered,
        suspense=kept_suspense,
        seconds={**(before.seconds if before else {}), **now.seconds},
        waived={**(before.waived if before else {}), **now.waived_seconds},
        running=tuple(sorted(now.open_since)),
        closed=[record for found in ordered.values() for record in found],
        views=OrderedDict(),
    )


def _compute(
    uow: UnitOfWork, project: str, resources: Mapping[str, Resource], *, everything: bool = False
) -> bill.Bill:
    events = _events(uow, project, None if everything else sorted(resources))
    return bill.compute(events, resources, Terms(), uow.now, grouped=True)


def _events(uow: UnitOfWork, project: str, keys: Sequence[str] | None) -> Iterator[UsageEvent]:
    """Resource by resource, as `bill.compute` takes them; `keys` None: of all."""
    some = bills.EVENTS.where
    queries = [bills.EVENTS] if keys is None else [some(usage_events.c.resource_key.in_(k)) for k in _chunks(keys)]
    for query in queries:
        yield from bills.events_of(uow, query, project)


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[at : at + KEYS_AT_ONCE] for at in range(0, len(keys), KEYS_AT_ONCE))


def _changed(uow: UnitOfWork, project: str, since: int) -> list[str]:
    """The project's resources with newer events. All projects' are read, by their numbers: there are few."""
    return [row.resource_key for row in uow.execute(_CHANGED, {"since": since}) if row.project == project]


def _facts(uow: UnitOfWork, project: str, since: int) -> dict[str, NodeFacts]:
    if since <= 0:
        return bills.facts_of(uow, project)
    found = {}
    for row in uow.execute(_FACTS, {"since": since}):
        if row.project != project:
            continue
        facts = NodeFacts(
            row.resource_key, row.resource_name, row.zone, row.accelerator_type, UsageClass(row.usage_class)
        )
        found[row.resource_key] = facts
    return found


_LAST_SEQ = select(func.max(usage_events.c.seq))
_RECENT = select(func.count()).where(usage_events.c.seq > bindparam("since"), usage_events.c.seq <= bindparam("until"))
_CHANGED = (
    select(usage_events.c.resource_key, usage_events.c.project)
    .where(usage_events.c.seq > bindparam("since"))
    .distinct()
    .order_by(usage_events.c.resource_key)
)
_FACTS = (
    select(
        usage_events.c.resource_key,
        usage_events.c.resource_name,
        usage_events.c.zone,
        usage_events.c.accelerator_type,
        usage_events.c.usage_class,
        usage_events.c.project,
    )
    .where(usage_events.c.seq > bindparam("since"))
    .distinct()
    .order_by(usage_events.c.resource_key)
)


def rates(found: Snapshot) -> Mapping[str, int]:
    """What each node that is in use costs now, in parts per second, before commitments; by name, then key."""
    second = -(-found.as_of.nanos // NANOS_PER_SECOND)
    now: dict[str, int] = {}
    for record in found.open:
        if record.start_second + record.seconds >= second and record.resource_id in found.open_since:
            now[record.resource_id] = parts_per_second(record)
    return {key: now[key] for key in sorted(now, key=lambda key: (found.facts[key].name, key))}
