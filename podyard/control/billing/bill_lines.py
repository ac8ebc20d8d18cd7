"""What one line of an invoice is made of: the charges of resources, and the events that they follow from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills, invoices
from podyard.control.billing.snapshots import Snapshot, snapshot
from podyard.control.billing.spending import within
from podyard.db import usage_events
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.invoice import IssuedInvoice
from podyard.domain.principal import Principal
from podyard.domain.usage import UsageEvent, UsageRecord
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
        invoice = invoices.get(uow, principal, project, month)
        as_of, charges = invoice.as_of, bill_of_issued(uow, card, found, invoice).charges
    mine = (c for c in charges if c.sku_id == sku_id and c.price.version_id == version_id)
    parts = [part for charge in mine for part in within(charge, window)]
    parts.sort(key=lambda part: (part.resource_id, part.start_second))
    return Explained(month, issued, as_of, parts, names)


def bill_of_issued(uow: UnitOfWork, card: RateCard, found: Snapshot, issued: IssuedInvoice) -> Bill:
    """The bill that an issued invoice was made of: of the events that it knew of, at the prices of then."""
    then = bills.card_of_then(uow, card, issued.issued_at)
    resources = {key: bills.resource_of(then, node) for key, node in found.facts.items()}
    return bills.compute(uow, found.project, resources, found.terms, issued.as_of, issued.last_event_seq)


def events_of(uow: UnitOfWork, project: str, resources: Sequence[str]) -> list[UsageEvent]:
    """The metered events of some resources in their order, at most `EVENTS_SHOWN_MAX`."""
    return usage_events.first_events(uow, project, resources, EVENTS_SHOWN_MAX)
