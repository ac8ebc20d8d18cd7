"""Invoices: previewed at any time, issued once when their month is over (closing.py), and never
changed.

An invoice is computed as of the month's end and the account's grace, whenever that happens, so that
the same events give the same bytes. Usage that comes to be known later is an adjustment in the
month that is closed next (R9).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import failed_precondition, not_found
from podyard.control.billing import accounts, bills, card_prices, invoice_records
from podyard.control.billing.invoice_document import (
    InvoiceDocument,
    adjustments_of,
    document,
    from_json,
    same_facts,
)
from podyard.db.billing import invoices as invoice_rows
from podyard.db.store import ledger
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.invoice import Adjustment, Invoice, IssuedInvoice, line_id
from podyard.domain.ledger import LedgerTransaction
from podyard.domain.principal import Principal
from podyard.domain.usage import BilledKind, BilledResource, UsageRecord, parts_within
from podyard.pricing.bill import Bill, Terms
from podyard.pricing.corrections import items, sums_by_line
from podyard.pricing.invoicing import with_adjustments
from podyard.pricing.issued_records import IssuedRecords
from podyard.pricing.sku import RateCard


@dataclasses.dataclass(frozen=True, slots=True)
class Computed:
    """An invoice of one month, as it would be issued. `invoice` None: there is nothing to invoice.
    `held`: what has no price, and why, in words by the names of the nodes."""

    month: str
    invoice: Invoice | None
    document: InvoiceDocument | None
    bill: Bill
    terms: Terms
    nodes: Mapping[str, BilledResource]
    held: tuple[str, ...] = ()


def preview(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, month: str | None
) -> Computed:
    """Return what the invoice of an open month (None: the one that platform time is in) is so far.

    Raises FAILED_PRECONDITION for a month that is closed, or has no exchange rate.
    """
    accounts.require_to_view(uow, principal, project, "invoices")
    account = accounts.of(uow, project)
    month = account.month_of(uow.now) if month is None else accounts.check_month(month)
    accounts.require_open(account, month)
    card_prices.check(uow, card)
    return compute(uow, card, account, month, uow.now, None, issued=False)


def is_reproduced(uow: UnitOfWork, card: RateCard, issued: IssuedInvoice) -> bool:
    """Return whether the document and the records of an issued invoice are computed again, from the
    events that it knew of and the prices of then. Raises DATA_LOSS for records that are damaged."""
    account = accounts.of(uow, issued.project)
    then = bills.card_of_then(uow, card, issued.issued_at)
    found = compute(
        uow, then, account, issued.month, issued.as_of, issued.last_event_seq, issued=True
    )
    if found.document is None or not same_facts(issued.document, found.document):
        return False
    kept = sums_by_line(invoice_records.of_issued(uow, card, issued).charges)
    return kept == sums_by_line(charges_in(account, found))


def compute(
    uow: UnitOfWork,
    card: RateCard,
    account: Account,
    month: str,
    as_of: PlatformTime,
    last_seq: int | None,
    *,
    issued: bool,
) -> Computed:
    """The month's invoice from the events up to number `last_seq` (None: all). Raises
    FAILED_PRECONDITION without an exchange rate."""
    if account.currency != accounts.USD and month not in account.rates:
        raise failed_precondition(
            f"no exchange rate of {account.currency} for {month}: set one in the billing account"
        )
    nodes = bills.billed_resources(uow, card, account.names)
    resources = bills.paid_resources(card, account, nodes)
    terms = terms_of(uow, account, month)
    bill = bills.compute(uow, account.names, resources, terms, as_of, last_seq)
    held = bills.suspense_in(bill, months.seconds_of(month, account.time_zone))
    own = bill.invoice(month)
    if own is None and not bill.adjustments and not held:
        return Computed(month, None, None, bill, terms, nodes)
    adjustments = [_itemise(uow, card, account, bill, one) for one in bill.adjustments]
    invoice = with_adjustments(own, adjustments, month, account.policy)
    names = {key: node.name for key, node in nodes.items()}
    included = _hosts_included(card, bill, nodes, months.seconds_of(month, account.time_zone))
    made = document(account, invoice, as_of, held, names, included, issued=issued)
    words = (
        f"{one.seconds} s of {names.get(one.resource_id, one.resource_id)}: {one.reason}"
        for one in held
    )
    return Computed(month, invoice, made, bill, terms, nodes, tuple(words))


def charges_in(account: Account, found: Computed) -> list[UsageRecord]:
    """The charges of the month: what its records are."""
    seconds = months.seconds_of(found.month, account.time_zone)
    return list(parts_within(found.bill.charges, seconds))


def records_of(uow: UnitOfWork, card: RateCard, account: Account, found: Computed) -> IssuedRecords:
    """Return what the invoice is made of."""
    adjustments = () if found.invoice is None else found.invoice.adjustments
    corrected = {item.resource_id for one in adjustments for item in one.items}
    charges = charges_in(account, found)
    return invoice_records.of_charges(uow, card, account.names, charges, found.nodes, corrected)


def _itemise(
    uow: UnitOfWork, card: RateCard, account: Account, bill: Bill, found: Adjustment
) -> Adjustment:
    """A correction with what it comes from: the month as it is rated now, less what was issued and
    corrected before."""
    month, project = found.corrects_month, account.project
    seconds = months.seconds_of(month, account.time_zone)
    now = sums_by_line(parts_within(bill.charges, seconds))
    issued = invoice_rows.find(uow, project, month)
    was = (
        {} if issued is None else sums_by_line(invoice_records.of_issued(uow, card, issued).charges)
    )
    earlier = [
        item
        for booked in invoice_rows.correcting(uow, project, month, found.booked_in_month)
        for one in adjustments_of(from_json(booked.document))
        if one.corrects_month == month
        for item in one.items
    ]
    return dataclasses.replace(
        found, items=items(now, was, earlier), exchange=account.policy.exchange_of(month)
    )


def _hosts_included(
    card: RateCard, bill: Bill, billed: Mapping[str, BilledResource], window: range
) -> Mapping[str, int]:
    """Of each line of nodes the unit-seconds whose price includes their hosts; nothing before the
    card charges any."""
    found: dict[str, int] = {}
    if card.hosts_from is None or card.hosts_from.nanos // NANOS_PER_SECOND >= window.stop:
        return found
    for part in parts_within(bill.charges, window):
        node = billed.get(part.resource_id)
        if node is not None and node.kind is BilledKind.NODE:
            line = line_id(part.sku_id, part.price.nanos)
            found[line] = found.get(line, 0) + (0 if node.bills_hosts else part.unit_seconds)
    return found


def terms_of(uow: UnitOfWork, account: Account, month: str) -> Terms:
    """The account's terms for a month, with what was issued and corrected before it."""
    issued = dict.fromkeys(account.closed_months(min(month, account.next_month)), 0)
    return dataclasses.replace(
        bills.terms_of(uow, account),
        issued=issued | invoice_rows.totals_before(uow, account.project, month),
        adjusted=invoice_rows.corrections_before(uow, account.project, month),
        open_month=month,
    )


def get(uow: UnitOfWork, principal: Principal, project: str, month: str) -> IssuedInvoice:
    """An issued invoice; NOT_FOUND when there is none."""
    accounts.require_to_view(uow, principal, project, f"invoices/{month}")
    invoice = invoice_rows.find(uow, project, accounts.check_month(month))
    if invoice is None:
        raise not_found(f"projects/{project}/invoices/{month}")
    return invoice


def list_invoices(uow: UnitOfWork, principal: Principal, project: str) -> list[IssuedInvoice]:
    """The issued invoices by month."""
    accounts.require_to_view(uow, principal, project, "invoices")
    return invoice_rows.of_project(uow, project)


def transactions(
    uow: UnitOfWork, principal: Principal, project: str, after_seq: int, limit: int
) -> list[LedgerTransaction]:
    """The ledger's transactions in order, each with its entries."""
    accounts.require_to_view(uow, principal, project, "ledger")
    return ledger.transactions(uow, project, after_seq, limit)
