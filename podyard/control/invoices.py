"""Invoices: previewed at any time, issued once when their month is over, and never changed.

Closing a month is one unit: prices in use, ledger, adjustments, invoice and the account's next month, or nothing of it.
It computes the bill as of the month's end and the account's grace, whenever it happens, so that the same events give
the same bytes. Usage that comes to be known later is an adjustment in the month that is closed next (R9).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, func, select, text

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, failed_precondition, not_found
from podyard.control import access, accounts, bills
from podyard.control.accounts import Account
from podyard.control.invoice_document import Held, canonical, digest, document, number_of
from podyard.db import ledger
from podyard.db.tables_billing import adjustments, invoices, usage_events
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.invoice import Invoice
from podyard.domain.principal import Principal
from podyard.pricing import ledger as entries
from podyard.pricing import months
from podyard.pricing.bill import Bill
from podyard.pricing.invoicing import with_adjustments
from podyard.pricing.sku import RateCard, default_rate_card

RETRY_SECONDS = 86_400.0  # of platform time, until the loop tries again to close a month that something holds up
HELD_NAMED_MAX = 5  # in an error that says what has no price

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Computed:
    """An invoice of one month, as it would be issued. `invoice` None: there is nothing to invoice."""

    month: str
    invoice: Invoice | None
    document: Mapping[str, Any] | None
    bill: Bill
    held: tuple[Held, ...]


def preview(uow: UnitOfWork, card: RateCard, principal: Principal, project: str, month: str | None) -> Computed:
    """What the invoice of an open month (None: the one that platform time is in) is so far.

    Raises FAILED_PRECONDITION for a month that is closed, or has no exchange rate.
    """
    principal.require("podyard.billing.view", project, f"projects/{project}/invoices")
    access.project_row(uow, project)
    account = accounts.of(uow, project)
    month = account.month_of(uow.now) if month is None else accounts.check_month(month)
    accounts.require_open(account, month)
    bills.check_prices(uow, card)
    return _compute(uow, card, account, month, uow.now, None, issued=False)


def close(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, month: str, *, hold_suspense: bool = False
) -> Row | None:
    """Issues the month's invoice and returns its row; None when there was nothing to invoice. One that is closed
    already stays as it is.

    `hold_suspense`: leaves out what has no price; it is adjusted when it gets one. Raises FAILED_PRECONDITION before
    the month is over, before the months before it are closed, and for usage without a price, which it names.
    """
    principal.require("podyard.billing.edit", project, f"projects/{project}/invoices/{month}")
    access.project_row(uow, project)
    accounts.check_month(month)
    account = _locked(uow, project)
    if month < account.next_month:
        return _find(uow, project, month)
    if month > account.next_month:
        raise failed_precondition(f"{account.next_month} has to be closed before {month}")
    at = account.closes_at(month)
    if uow.now < at:
        raise failed_precondition(f"{month} is not over: it can be closed from {at.rfc3339()} on")
    return _close(uow, card, account, hold_suspense)


def on_timer(uow: UnitOfWork, timer: Row) -> None:
    """The end of a month and its grace: the loop closes it. What holds it up is kept at the account, and it tries again
    a day later."""
    account = _locked(uow, timer["resource_key"])
    if uow.now < account.closes_at(account.next_month):
        accounts.schedule(uow, account)
        return
    try:
        _close(uow, default_rate_card(), account, hold_suspense=False)
    except PodyardError as error:
        accounts.hold(uow, account, error.message, RETRY_SECONDS)


def _locked(uow: UnitOfWork, project: str) -> Account:
    """The account, with no usage event under way: whoever closes knows all events up to the last one. On SQLite there
    is one writer at a time anyway."""
    if uow.connection.dialect.name == "postgresql":
        uow.execute(text("LOCK TABLE usage_events IN SHARE MODE"))
    return accounts.of(uow, project)


def _close(uow: UnitOfWork, card: RateCard, account: Account, hold_suspense: bool) -> Row | None:
    """All that can be refused is refused before the first row is written: the loop keeps why, in the same unit."""
    month, as_of = account.next_month, account.closes_at(account.next_month)
    bills.check_prices(uow, card)
    last_seq = int(uow.execute(_LAST_SEQ, {"project": account.project}).scalar() or 0)
    found = _compute(uow, card, account, month, as_of, last_seq, issued=True)
    if found.held and not hold_suspense:
        raise failed_precondition(f"{month} cannot be closed, since some of it has no price: {_named(found.held)}")
    bills.keep_prices(uow, found.bill, card)
    if found.invoice is not None:
        _issue(uow, account, found, as_of, last_seq)
    accounts.closed(uow, account)
    return _find(uow, account.project, month)


def _named(held: tuple[Held, ...]) -> str:
    named = [f"{seconds} s of {resource}: {reason}" for resource, _, seconds, reason in held[:HELD_NAMED_MAX]]
    more = len(held) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


def _issue(uow: UnitOfWork, account: Account, found: Computed, as_of: PlatformTime, last_seq: int) -> None:
    invoice = found.invoice
    assert invoice is not None and found.document is not None
    booked = entries.of_invoice(account.project, invoice)
    postings = [ledger.Posting(entry.account, entry.currency, entry.amount) for entry in booked.entries]
    name = number_of(account.project, invoice.month)
    ledger.book(uow, account.project, booked.source_id, invoice.month, postings, f"invoice {name}")
    for one in invoice.adjustments:
        row = {"corrects_month": one.corrects_month, "booked_month": one.booked_in_month, "minor": one.minor}
        uow.insert(adjustments, {"project": account.project, **row})
    data = canonical(found.document)
    uow.insert(
        invoices,
        {
            "project": account.project,
            "month": invoice.month,
            "number": name,
            "document": data,
            "sha256": digest(data),
            "currency": invoice.currency,
            "decimals": invoice.decimals,
            "total": invoice.total,
            "re_rated": invoice.total - sum(one.minor for one in invoice.adjustments),
            "as_of": as_of,
            "last_event_seq": last_seq,
            "issued_at": uow.now,
        },
    )


def recomputed(uow: UnitOfWork, card: RateCard, row: Row) -> bytes:
    """The document of an issued invoice, computed again from the events that it knew of and the prices of then."""
    account = accounts.of(uow, row["project"])
    then = bills.card_of_then(uow, card, row["issued_at"])
    found = _compute(uow, then, account, row["month"], row["as_of"], row["last_event_seq"], issued=True)
    return b"" if found.document is None else canonical(found.document)


def _compute(
    uow: UnitOfWork,
    card: RateCard,
    account: Account,
    month: str,
    as_of: PlatformTime,
    last_seq: int | None,
    *,
    issued: bool,
) -> Computed:
    if account.currency != accounts.USD and month not in account.rates:
        raise failed_precondition(f"there is no exchange rate of {account.currency} for {month}: set it")
    facts = bills.facts_of(uow, account.project)
    resources = {key: bills.resource_of(card, node) for key, node in facts.items()}
    totals = dict.fromkeys(account.closed_months(min(month, account.next_month)), 0)
    totals |= {row["month"]: row["re_rated"] for row in uow.all(_BEFORE, {"project": account.project, "month": month})}
    adjusted: dict[str, int] = {}
    for row in uow.all(_ADJUSTED, {"project": account.project, "month": month}):
        adjusted[row["corrects_month"]] = adjusted.get(row["corrects_month"], 0) + row["minor"]
    terms = bills.terms_of(uow, account, issued=totals, adjusted=adjusted, open_month=month)
    bill = bills.compute(uow, account.project, resources, terms, as_of, last_seq)
    held = tuple(bills.held_in(bill, months.seconds_of(month, account.time_zone)))
    own = bill.invoice(month)
    if own is None and not bill.adjustments and not held:
        return Computed(month, None, None, bill, held)
    invoice = with_adjustments(own, bill.adjustments, month, account.policy)
    names = {key: node.name for key, node in facts.items()}
    return Computed(month, invoice, document(account, invoice, as_of, held, names, issued=issued), bill, held)


_LAST_SEQ = select(func.max(usage_events.c.seq)).where(usage_events.c.project == bindparam("project"))
_BEFORE = select(invoices.c.month, invoices.c.re_rated).where(
    invoices.c.project == bindparam("project"), invoices.c.month < bindparam("month")
)
_ADJUSTED = select(adjustments).where(
    adjustments.c.project == bindparam("project"), adjustments.c.booked_month < bindparam("month")
)


def _find(uow: UnitOfWork, project: str, month: str) -> Row | None:
    return uow.first(_ONE, {"project": project, "month": month})


def get(uow: UnitOfWork, principal: Principal, project: str, month: str) -> Row:
    """An issued invoice; NOT_FOUND when there is none."""
    principal.require("podyard.billing.view", project, f"projects/{project}/invoices/{month}")
    access.project_row(uow, project)
    row = _find(uow, project, accounts.check_month(month))
    if row is None:
        raise not_found(f"projects/{project}/invoices/{month}")
    return row


def list_invoices(uow: UnitOfWork, principal: Principal, project: str) -> list[Row]:
    """The issued invoices by month."""
    principal.require("podyard.billing.view", project, f"projects/{project}/invoices")
    access.project_row(uow, project)
    return uow.all(_ALL, {"project": project})


def transactions(uow: UnitOfWork, principal: Principal, project: str, after_seq: int, limit: int) -> list[Row]:
    """The ledger's transactions in order, each with its entries."""
    principal.require("podyard.billing.view", project, f"projects/{project}/ledger")
    access.project_row(uow, project)
    return ledger.transactions(uow, project, after_seq, limit)


_ALL = select(invoices).where(invoices.c.project == bindparam("project")).order_by(invoices.c.month)
_ONE = _ALL.where(invoices.c.month == bindparam("month"))
