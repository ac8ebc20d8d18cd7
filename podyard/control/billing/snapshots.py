"""Reads of the billing pages: the project's bill up to now, without metering everything for each
page.

It is made of what the process keeps (`kept_bills.py`) and of what is in use. It is the same bill,
to the last part, as the one that `bills.compute` makes of everything, as a test checks.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills, kept_bills
from podyard.control.billing.kept_bills import WAIT_SECONDS_MAX, Kept
from podyard.db.access import accounts as account_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import ALWAYS, Account, PaidProject
from podyard.domain.principal import Principal
from podyard.domain.usage import BilledResource, Suspense, UsageRecord, node_key_of
from podyard.pricing import bill, commitments
from podyard.pricing.amounts import parts_per_second, total
from podyard.pricing.bill import Resource, Terms, Use
from podyard.pricing.sku import RateCard

VIEWS_KEPT = 64  # sums that pages have made of one project's bill

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The bill of a project's account, or of the project, at one moment. `projects`: those whose
    use is in it; `paid_by`: whose account pays for the project, where the bill is the project's
    only. `closed` and `open`: use at its prices, of resources that are not in use and of those that
    are; `charges`: net of what commitments cover, with the commitments' own."""

    project: str
    projects: Sequence[str]
    paid_by: str
    as_of: PlatformTime
    account: Account
    terms: Terms
    facts: Mapping[str, BilledResource]
    resources: Mapping[str, Resource]
    closed: Sequence[UsageRecord]
    open: Sequence[UsageRecord]
    charges: Sequence[UsageRecord]
    suspense: Sequence[Suspense]
    open_since: Mapping[str, PlatformTime]
    seconds: Mapping[str, int]
    waived: Mapping[str, int]
    views: OrderedDict[Any, Future[Any]]

    @property
    def month(self) -> str:
        return self.account.month_of(self.as_of)

    def month_seconds(self, month: str | None = None) -> range:
        return months.seconds_of(self.month if month is None else month, self.account.time_zone)

    @property
    def plain(self) -> bool:
        """Return whether there are no commitments: then every charge is a record, and depends on
        its own resource only."""
        return not self.terms.commitments

    @property
    def total_use(self) -> Amount:
        """All use at its prices, whatever commitments cover."""
        return self.keep("used", lambda: total(self.closed)) + total(self.open)

    def keep(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` makes of `closed` and of nothing else, or what it made before. Who
        asks while it is being made waits for it; UNAVAILABLE when that takes too long."""
        mine: Future[T] = Future()
        with kept_bills.lock:
            found: Future[T] = self.views.setdefault(key, mine)
            self.views.move_to_end(key)
            while len(self.views) > VIEWS_KEPT:
                self.views.popitem(last=False)
        if found is not mine:
            try:
                return found.result(WAIT_SECONDS_MAX)
            except TimeoutError:
                raise kept_bills.still_made() from None
        try:
            made = make()
        except BaseException as error:
            with kept_bills.lock:
                if self.views.get(key) is mine:
                    del self.views[key]
            mine.set_exception(error)
            raise
        mine.set_result(made)
        return made

    @property
    def moment(self) -> tuple[Any, ...]:
        """Part of the key of what follows from the whole bill at this moment."""
        return self.as_of, repr(self.terms)


def snapshot(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, *, of_account: bool = False
) -> Snapshot:
    """Return what the project's account pays for, of all projects that it pays for; the bill of
    everything that it has used, now. Of a project that another account pays for (unless
    `of_account`): its own use at list prices. Raises `Behind`: start the read again."""
    accounts.require_to_view(uow, principal, project, "costs")
    account = accounts.of(uow, project)
    if of_account or account.pays_itself:
        return _of_account(uow, card, account)
    found = _snapshot_of(
        uow,
        account,
        Terms(policy=account.policy),
        [kept_bills.current(uow, card, project)],
        [PaidProject(project, (ALWAYS,))],
    )
    return dataclasses.replace(found, paid_by=account_rows.last_link(uow, project).account)


def is_first_made(uow: UnitOfWork, project: str) -> bool:
    """Return whether a bill that `snapshot` needs is being made, and none is kept from before: who
    asks now waits for it."""
    account = accounts.of(uow, project)
    return any(
        kept_bills.is_first_made(uow, name)
        for name in (account.names if account.pays_itself else (project,))
    )


def _of_account(uow: UnitOfWork, card: RateCard, account: Account) -> Snapshot:
    bills_of = [kept_bills.current(uow, card, name) for name in account.names]
    return _snapshot_of(uow, account, bills.terms_of(uow, account), bills_of, account.projects)


def _snapshot_of(
    uow: UnitOfWork,
    account: Account,
    terms: Terms,
    bills_of: Sequence[Kept],
    projects: Sequence[PaidProject],
) -> Snapshot:
    """`bills_of`: what is kept of each of the projects."""
    first, resources, running = bills_of[0], dict(bills_of[0].resources), dict[str, Use]()
    facts, seconds, waived = dict(first.facts), dict(first.seconds), dict(first.waived)
    suspense: list[Suspense] = []
    for kept, paid in zip(bills_of, projects, strict=True):
        facts |= kept.facts
        resources |= kept.resources
        seconds |= kept.seconds
        waived |= kept.waived
        whole = paid.spans == (ALWAYS,)
        for key, use in kept.running.items():
            resource = (
                kept.resources[key]
                if whole
                else dataclasses.replace(kept.resources[key], paid=paid.spans)
            )
            running[key] = bill.use_until(resource, use, uow.now)
        held = itertools.chain.from_iterable(kept.suspense.values())
        suspense += held if whole else (part for one in held for part in one.within(paid.spans))
    if len(bills_of) == 1 and projects[0].spans == (ALWAYS,):
        closed, views = first.closed, first.views
    else:
        both = kept_bills.join_bills(uow, account, bills_of)
        closed, views = both.closed, both.views
    now = {key: use.metered for key, use in running.items()}
    in_use = [record for use in running.values() for record in use.rated.records]
    charges: Sequence[UsageRecord] = [*closed, *in_use]
    if terms.commitments:
        own = commitments.own_charges(terms.commitments, uow.now)
        charges = [*own, *commitments.cover(charges, terms.commitments, uow.now)]
    return Snapshot(
        project=account.project,
        projects=[paid.project for paid in projects],
        paid_by="",
        as_of=uow.now,
        account=account,
        terms=terms,
        facts=facts,
        resources=resources,
        closed=closed,
        open=in_use,
        charges=charges,
        suspense=[*suspense, *(one for use in running.values() for one in use.rated.suspense)],
        open_since={
            key: metered.open_since
            for key, metered in now.items()
            if metered.open_since is not None
        },
        seconds=seconds | {key: metered.seconds for key, metered in now.items()},
        waived=waived | {key: metered.waived_seconds for key, metered in now.items()},
        views=views,
    )


def without_use(uow: UnitOfWork, principal: Principal, project: str) -> Snapshot:
    """The account and the moment only, for pages that meter what they show."""
    accounts.require_to_view(uow, principal, project, "costs")
    account = accounts.of(uow, project)
    terms = bills.project_terms(uow, account)
    return Snapshot(
        project,
        [project],
        "",
        uow.now,
        account,
        terms,
        {},
        {},
        (),
        (),
        (),
        (),
        {},
        {},
        {},
        OrderedDict(),
    )


def rates(found: Snapshot) -> Mapping[str, int]:
    """Return what each resource that is in use costs now, nodes with their hosts, in parts per
    second, before commitments; by name, then key. What a day has left over of a bucket is not in
    it."""
    second = -(-found.as_of.nanos // NANOS_PER_SECOND)
    now: dict[str, int] = {}
    for record in found.open:
        rest = bill.is_rest_of_day(found.resources[record.resource_id], record)
        if (
            record.start_second + record.seconds >= second
            and record.resource_id in found.open_since
            and not rest
        ):
            now[record.resource_id] = parts_per_second(record)
    nodes: dict[str, int] = {}
    for resource_id, parts in now.items():
        key = node_key_of(resource_id)
        nodes[key] = nodes.get(key, 0) + parts
    return {key: nodes[key] for key in sorted(nodes, key=lambda key: (found.facts[key].name, key))}
