"""The parts of one line of an invoice: the charges of resources, and the events that they follow
from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import accounts, invoice_records, invoices
from podyard.control.billing.snapshots import snapshot
from podyard.db.billing import usage_events
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.invoice import line_id
from podyard.domain.principal import Principal
from podyard.domain.usage import (
    PriceUnit,
    PriceVersion,
    UsageEvent,
    UsageRecord,
    node_key_of,
    parts_within,
)
from podyard.pricing.amounts import total
from podyard.pricing.sku import RateCard

LINE_SHOWN_MAX = 200  # characters, in an error that says that there is no such line
EVENTS_SHOWN_MAX = 80  # of the resources on one page


@dataclasses.dataclass(frozen=True, slots=True)
class Explained:
    """The charges of a line within its month, ordered by the names of the resources and by time.
    They sum to its exact amount."""

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


def explain(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, month: str, line: str
) -> Explained:
    """A line of the month's invoice, by its id. Of an issued one: from the records that are kept
    with it.

    Raises NOT_FOUND for a month that is closed without an invoice, and for a line that the invoice
    does not have; DATA_LOSS where the records of an issued invoice do not sum to its lines.
    """
    accounts.require_to_view(uow, principal, project, "costs")
    account = accounts.of(uow, project)
    issued = accounts.check_month(month) < account.next_month
    charges: Iterable[UsageRecord]
    if issued:
        invoice = invoices.get(uow, principal, project, month)
        records = invoice_records.of_issued(uow, card, invoice)
        as_of, charges = invoice.as_of, records.charges
        names = {key: facts.name for key, facts in records.resources.items()}
    else:
        found = snapshot(uow, card, principal, project, of_account=True)
        as_of, charges = found.as_of, found.charges
        names = {key: node.name for key, node in found.facts.items()}
    window = months.seconds_of(month, account.time_zone)
    mine = (c for c in charges if line_id(c.sku_id, c.price.nanos) == line)
    parts = sorted(
        parts_within(mine, window),
        key=lambda part: (names.get(part.resource_id, ""), part.resource_id, part.start_second),
    )
    if not parts:
        raise no_line(month, line)
    return Explained(line, month, issued, as_of, parts, names)


def no_line(month: str, line: str) -> PodyardError:
    return PodyardError(
        Code.NOT_FOUND, f"the invoice of {month} has no line {line[:LINE_SHOWN_MAX]!r}"
    )


def events_of(uow: UnitOfWork, project: str, resources: Sequence[str]) -> list[UsageEvent]:
    """The metered events of some resources in their order, at most `EVENTS_SHOWN_MAX`."""
    nodes = list(dict.fromkeys(map(node_key_of, resources)))
    return usage_events.first_events(uow, project, nodes, EVENTS_SHOWN_MAX)
