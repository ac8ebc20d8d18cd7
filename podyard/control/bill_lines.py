"""What one line of an invoice is made of: the charges of resources, and the events that they follow from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import bindparam, select

from podyard.base.clock import PlatformTime
from podyard.base.money import Amount
from podyard.control import accounts, bills, invoices
from podyard.control.snapshots import Snapshot, snapshot
from podyard.control.spending import within
from podyard.db.tables_billing import usage_events
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.principal import Principal
from podyard.domain.usage import UsageRecord
from podyard.pricing.bill import Bill
from podyard.pricing.rating import total
from podyard.pricing.sku import RateCard

EVENTS_SHOWN_MAX = 80  # of the resources on one page


@dataclasses.dataclass(frozen=True, slots=True)
class Explained:
    """The charges of a line within its month, in order of resource and time; they sum to its exact amount."""

    month: str
    issued: bool
    as_of: PlatformTime
    parts: Sequence[UsageRecord]
    names: Mapping[str, str]

    @property
    def amount(self) -> Amount:
        return total(self.parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A change of a resource's state that was metered."""

    event_id: str
    resource: str
    state: str
    at: PlatformTime


def explain(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, month: str, sku_id: str, version_id: str
) -> Explained:
    """A line of the month's invoice, by its SKU and price version. Of an issued one: from the events that it knew of.

    Raises NOT_FOUND for a month that is closed without an invoice.
    """
    found = snapshot(uow, card, principal, project)
    account = found.account
    window = months.seconds_of(accounts.check_month(month), account.time_zone)
    issued = month < account.next_month
    as_of, names = found.as_of, {key: node.name for key, node in found.facts.items()}
    charges: Iterable[UsageRecord] = found.charges
    if issued:
        row = invoices.get(uow, principal, project, month)
        as_of, charges = row["as_of"], bill_of_issued(uow, card, found, row).charges
    mine = (c for c in charges if c.sku_id == sku_id and c.price.version_id == version_id)
    parts = [part for charge in mine for part in within(charge, window)]
    parts.sort(key=lambda part: (part.resource_id, part.start_second))
    return Explained(month, issued, as_of, parts, names)


def bill_of_issued(uow: UnitOfWork, card: RateCard, found: Snapshot, row: invoices.Row) -> Bill:
    """The bill that an issued invoice was made of: of the events that it knew of, at the prices of then."""
    then = bills.card_of_then(uow, card, row["issued_at"])
    resources = {key: bills.resource_of(then, node) for key, node in found.facts.items()}
    return bills.compute(uow, found.project, resources, found.terms, row["as_of"], row["last_event_seq"])


def events_of(uow: UnitOfWork, project: str, resources: Sequence[str]) -> list[Event]:
    """The metered events of some resources in their order, at most `EVENTS_SHOWN_MAX`."""
    query = _EVENTS.where(usage_events.c.resource_key.in_(resources)).limit(EVENTS_SHOWN_MAX)
    rows = uow.execute(query, {"project": project})
    return [Event(row.event_id, row.resource_key, row.state, row.at) for row in rows]


_EVENTS = (
    select(usage_events.c.event_id, usage_events.c.resource_key, usage_events.c.state, usage_events.c.at)
    .where(usage_events.c.project == bindparam("project"))
    .order_by(usage_events.c.resource_key, usage_events.c.resource_seq)
)
