"""What one line of an invoice is made of: the charges of resources, and the events that they follow from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills, invoices
from podyard.control.billing.invoice_document import EXACT_DECIMALS, from_json
from podyard.control.billing.snapshots import Snapshot, snapshot
from podyard.control.billing.spending import within
from podyard.db import usage_events
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.invoice import IssuedInvoice, line_id
from podyard.domain.principal import Principal
from podyard.domain.usage import PriceUnit, PriceVersion, UsageEvent, UsageRecord, node_key_of
from podyard.pricing.amounts import total
from podyard.pricing.bill import Bill, resources_of
from podyard.pricing.sku import RateCard

LINE_SHOWN_MAX = 200  # characters, in an error that says that there is no such line
EVENTS_SHOWN_MAX = 80  # of the resources on one page


@dataclasses.dataclass(frozen=True, slots=True)
class Explained:
    """The charges of a line within its month, ordered by the names of the resources and by time. They sum to its exact
    amount."""

    line: str
    month: str
    issued: bool
    as_of: PlatformTime
    parts: Sequence[UsageRecord]
    names: Mapping[str, str]

    @property
    def amount(self) -> Amount:
        return total(self.parts)

    @property
    def price(self) -> PriceVersion:
        """All versions of a line have the same unit price."""
        return self.parts[0].price

    @property
    def unit(self) -> PriceUnit:
        return self.parts[0].unit

    @property
    def seconds(self) -> int:
        return sum(part.seconds for part in self.parts)

    @property
    def unit_seconds(self) -> int:
        return sum(part.unit_seconds for part in self.parts)


def explain(uow: UnitOfWork, card: RateCard, principal: Principal, project: str, month: str, line: str) -> Explained:
    """A line of the month's invoice, by its id. Of an issued one: from the events that it knew of.

    Raises NOT_FOUND for a month that is closed without an invoice, and for a line that the invoice does not have;
    DATA_LOSS where the charges of an issued line do not sum to it.
    """
    found = snapshot(uow, card, principal, project)
    account = found.account
    window = months.seconds_of(accounts.check_month(month), account.time_zone)
    issued = month < account.next_month
    invoice: IssuedInvoice | None = None
    as_of, names = found.as_of, {key: node.name for key, node in found.facts.items()}
    charges: Iterable[UsageRecord] = found.charges
    if issued:
        invoice = invoices.get(uow, principal, project, month)
        as_of, charges = invoice.as_of, bill_of_issued(uow, card, found, invoice).charges
    mine = (c for c in charges if line_id(c.sku_id, c.price.nanos) == line)
    parts = [part for charge in mine for part in within(charge, window)]
    parts.sort(key=lambda part: (names.get(part.resource_id, ""), part.resource_id, part.start_second))
    stated = _amount_on(invoice, line) if invoice else None
    if not parts and stated is None:
        raise no_line(month, line)
    explained = Explained(line, month, issued, as_of, parts, names)
    if issued and explained.amount != stated:
        difference = (explained.amount - (stated or Amount())).text(EXACT_DECIMALS)
        raise PodyardError(Code.DATA_LOSS, f"{line}: its charges differ from the invoice by {difference} USD")
    return explained


def no_line(month: str, line: str) -> PodyardError:
    return PodyardError(Code.NOT_FOUND, f"the invoice of {month} has no line {line[:LINE_SHOWN_MAX]!r}")


def _amount_on(invoice: IssuedInvoice, line: str) -> Amount | None:
    return next((Amount(int(one.parts)) for one in from_json(invoice.document).lines if one.id == line), None)


def bill_of_issued(uow: UnitOfWork, card: RateCard, found: Snapshot, issued: IssuedInvoice) -> Bill:
    """The bill that an issued invoice was made of: of the events that it knew of, at the prices of then."""
    then = bills.card_of_then(uow, card, issued.issued_at)
    resources = resources_of(then, found.facts)
    return bills.compute(uow, found.project, resources, found.terms, issued.as_of, issued.last_event_seq)


def events_of(uow: UnitOfWork, project: str, resources: Sequence[str]) -> list[UsageEvent]:
    """The metered events of some resources in their order, at most `EVENTS_SHOWN_MAX`."""
    nodes = list(dict.fromkeys(map(node_key_of, resources)))
    return usage_events.first_events(uow, project, nodes, EVENTS_SHOWN_MAX)
