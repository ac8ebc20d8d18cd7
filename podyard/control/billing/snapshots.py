"""What the billing pages read: the project's bill up to now, without metering everything for each page.

It is made of what the process keeps (`kept_bills.py`) and of what is in use. It is the same bill, to the last part, as
the one that `bills.compute` makes of everything, as a test checks.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills, kept_bills
from podyard.control.billing.kept_bills import WAIT_SECONDS_MAX
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.principal import Principal
from podyard.domain.usage import BilledNode, Suspense, UsageRecord, node_key_of
from podyard.pricing import bill, commitments
from podyard.pricing.amounts import parts_per_second, total
from podyard.pricing.bill import Resource, Terms
from podyard.pricing.sku import RateCard

VIEWS_KEPT = 64  # sums that pages have made of one project's bill

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The project's bill at one moment. `closed` and `open`: use at its prices, of resources that are not in use and
    of those that are; `charges`: net of what commitments cover, with the commitments' own."""

    project: str
    as_of: PlatformTime
    account: Account
    terms: Terms
    facts: Mapping[str, BilledNode]
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
        """Whether there are no commitments: then every charge is a record, and depends on its own resource only."""
        return not self.terms.commitments

    @property
    def total_use(self) -> Amount:
        """All use at its prices, whatever commitments cover."""
        return self.keep("used", lambda: total(self.closed)) + total(self.open)

    def keep(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` makes of `closed` and of nothing else, or what it made before. Who asks while it is being made
        waits for it; UNAVAILABLE when that takes too long."""
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


def snapshot(uow: UnitOfWork, card: RateCard, principal: Principal, project: str) -> Snapshot:
    """The bill of everything the project has used, now. Raises `Behind`: start the read again."""
    accounts.require_to_view(uow, principal, project, "costs")
    account = accounts.of(uow, project)
    terms = bills.terms_of(uow, account)
    kept = kept_bills.current(uow, card, project)
    running = {key: bill.use_until(kept.resources[key], use, uow.now) for key, use in kept.running.items()}
    now = {key: use.metered for key, use in running.items()}
    in_use = [record for use in running.values() for record in use.rated.records]
    charges: Sequence[UsageRecord] = [*kept.closed, *in_use]
    if terms.commitments:
        own = commitments.own_charges(terms.commitments, uow.now)
        charges = [*own, *commitments.cover(charges, terms.commitments, uow.now)]
    held = (*kept.suspense.values(), *(use.rated.suspense for use in running.values()))
    return Snapshot(
        project=project,
        as_of=uow.now,
        account=account,
        terms=terms,
        facts=kept.facts,
        resources=kept.resources,
        closed=kept.closed,
        open=in_use,
        charges=charges,
        suspense=[one for found in held for one in found],
        open_since={key: metered.open_since for key, metered in now.items() if metered.open_since is not None},
        seconds={**kept.seconds, **{key: metered.seconds for key, metered in now.items()}},
        waived={**kept.waived, **{key: metered.waived_seconds for key, metered in now.items()}},
        views=kept.views,
    )


def without_use(uow: UnitOfWork, principal: Principal, project: str) -> Snapshot:
    """The account and the moment only, for pages that meter what they show."""
    accounts.require_to_view(uow, principal, project, "costs")
    account = accounts.of(uow, project)
    return Snapshot(
        project, uow.now, account, bills.terms_of(uow, account), {}, {}, (), (), (), (), {}, {}, {}, OrderedDict()
    )


def rates(found: Snapshot) -> Mapping[str, int]:
    """What each node that is in use costs now with its hosts, in parts per second, before commitments; by name, then
    key."""
    second = -(-found.as_of.nanos // NANOS_PER_SECOND)
    now: dict[str, int] = {}
    for record in found.open:
        if record.start_second + record.seconds >= second and record.resource_id in found.open_since:
            now[record.resource_id] = parts_per_second(record)
    nodes: dict[str, int] = {}
    for resource_id, parts in now.items():
        key = node_key_of(resource_id)
        nodes[key] = nodes.get(key, 0) + parts
    return {key: nodes[key] for key in sorted(nodes, key=lambda key: (found.facts[key].name, key))}
