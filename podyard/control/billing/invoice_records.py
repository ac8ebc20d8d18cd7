"""The rated records of an invoice: made with it, kept with it, and read by everything that says
what it is made of.

Exports, explanations, the explorer and corrections of an issued month read what was kept. An
invoice of an earlier version has none: its records are computed from the events and prices that it
knew of, and the loop keeps them once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills, listings
from podyard.control.billing.invoice_document import EXACT_DECIMALS, from_json, parts_by_line
from podyard.db.billing import invoice_records
from podyard.db.billing import invoices as invoice_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.invoice import IssuedInvoice
from podyard.domain.usage import BilledResource, UsageRecord, parts_within
from podyard.pricing import issued_records
from podyard.pricing.corrections import sums_by_line
from podyard.pricing.issued_records import IssuedRecords
from podyard.pricing.sku import RateCard

KEPT_AT_ONCE_MAX = 100  # older invoices whose records are asked for in one read


def of_charges(
    uow: UnitOfWork,
    card: RateCard,
    projects: Sequence[str],
    charges: Sequence[UsageRecord],
    nodes: Mapping[str, BilledResource],
    more: Set[str] = frozenset(),
) -> IssuedRecords:
    """The charges of a month, and what an export says of their nodes, and of `more`."""
    wanted = {charge.resource_id for charge in charges} | more
    return IssuedRecords(charges, listings.facts_of(uow, card, projects, nodes, wanted))


def of_issued(uow: UnitOfWork, card: RateCard, issued: IssuedInvoice) -> IssuedRecords:
    """Return what an issued invoice is made of. Raises DATA_LOSS where that does not sum to its
    lines."""
    chunks = invoice_records.chunks_of(uow, issued.project, issued.month)
    try:
        found = issued_records.decode(chunks) if chunks else _compute(uow, card, issued)
    except (ValueError, TypeError, LookupError):
        raise PodyardError(
            Code.DATA_LOSS, f"the records of invoice {issued.number} cannot be read"
        ) from None
    _check_lines(issued, found.charges)
    return found


def chunks_of(found: IssuedRecords) -> tuple[bytes, ...]:
    """Return what is kept of them."""
    return tuple(issued_records.encode(found))


def _compute(uow: UnitOfWork, card: RateCard, issued: IssuedInvoice) -> IssuedRecords:
    """From the events and prices that the invoice knew of."""
    account, then = (
        accounts.of(uow, issued.project),
        bills.card_of_then(uow, card, issued.issued_at),
    )
    nodes = bills.billed_resources(uow, then, account.names)
    resources = bills.paid_resources(then, account, nodes)
    terms = bills.terms_of(uow, account)
    bill = bills.compute(uow, account.names, resources, terms, issued.as_of, issued.last_event_seq)
    seconds = months.seconds_of(issued.month, account.time_zone)
    return of_charges(uow, card, account.names, list(parts_within(bill.charges, seconds)), nodes)


def _check_lines(issued: IssuedInvoice, charges: Sequence[UsageRecord]) -> None:
    stated = parts_by_line(from_json(issued.document))
    found = dict.fromkeys(stated, 0)
    for (_, line), one in sums_by_line(charges).items():
        found[line] = found.get(line, 0) + one.parts
    for line, parts in found.items():
        if parts != stated.get(line, 0):
            difference = Amount(parts - stated.get(line, 0)).text(EXACT_DECIMALS)
            raise PodyardError(
                Code.DATA_LOSS, f"{line}: its charges differ from the invoice by {difference} USD"
            )


def older(uow: UnitOfWork, past: int) -> list[tuple[str, str]]:
    """(project, month) of some invoices of earlier versions whose records are not kept, for who has
    met `past` of them already."""
    return invoice_records.without_records(uow, past + KEPT_AT_ONCE_MAX)


def read_older(uow: UnitOfWork, card: RateCard, project: str, month: str) -> tuple[bytes, ...]:
    """The records of such an invoice, computed in a read. Raises DATA_LOSS where they do not sum to
    its lines."""
    issued = invoice_rows.find(uow, project, month)
    assert issued is not None, "no invoice is ever deleted"
    return chunks_of(of_issued(uow, card, issued))


def keep_older(uow: UnitOfWork, project: str, month: str, chunks: tuple[bytes, ...]) -> None:
    """Keeps them, unless that has been done meanwhile."""
    if not invoice_records.chunks_of(uow, project, month):
        invoice_records.add(uow, project, month, chunks)
