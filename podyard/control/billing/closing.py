"""Closing a month: computed in a read, and written in one short unit if it still stands.

A bill of many events takes longer to compute than anybody may hold the writer. So three steps:
which events
are known; the bill of them, in a read that remembers what it went by; and one unit that writes
prices in use, ledger, adjustments, invoice, its records and the account's next month, or nothing of
it, after it has seen that all of that is as it was.
Otherwise the bill is outdated and is computed again. A process that dies in between leaves nothing
behind.
"""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.control.billing import accounts, bills, card_prices, invoices
from podyard.control.billing.invoice_document import canonical, digest, number_of
from podyard.control.billing.invoice_records import chunks_of
from podyard.db.billing import invoice_records, usage_events
from podyard.db.billing import invoices as invoice_rows
from podyard.db.store import ledger, timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.invoice import Invoice, IssuedInvoice
from podyard.domain.principal import Principal
from podyard.pricing import ledger as entries
from podyard.pricing.bill import Terms
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard

# of platform time, until the loop tries again to close a month that something holds up
RETRY_SECONDS = 86_400.0
# Only what comes late for a month that is over makes a bill outdated: who has met it so often tries
# again later.
CLOSE_TRIES_MAX = 3
# of platform time, until the loop looks again at a month that is still being computed
PUT_OFF_SECONDS = 1.0
HELD_NAMED_MAX = 5  # in an error that says what has no price


class Outdated(PodyardError):
    """The error for a bill whose inputs have changed since: it has to be computed again."""

    def __init__(self, project: str, month: str) -> None:
        super().__init__(
            Code.ABORTED,
            f"usage or terms of projects/{project} changed while {month} was computed; try again",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (PodyardError, (self.code, self.message))


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """An account's next month, as it was computed. `last_seq` is the account's last usage event
    that it knows of, and `known_seq` that of all projects. `refused`: why it cannot be computed;
    `invoice` None: there is nothing to invoice. `used`: price versions; `records`: what the invoice
    is made of, as it is kept."""

    card: RateCard
    account: Account
    terms: Terms | None
    as_of: PlatformTime
    last_seq: int
    known_seq: int
    invoice: Invoice | None = None
    document: bytes = b""
    held: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()
    records: tuple[bytes, ...] = ()
    refused: PodyardError | None = None

    @property
    def month(self) -> str:
        return self.account.next_month


def known_events(uow: UnitOfWork) -> int:
    """The number of the last usage event, in a separate unit: the first of three steps. No event
    with a lower number appears any more."""
    usage_events.wait_for_writers(uow)
    return usage_events.last_seq(uow)


def prepare(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, month: str, known_seq: int
) -> Prepared | None:
    """Computes the month from the events up to `known_seq`, in a read; None when it is closed
    already. Raises FAILED_PRECONDITION before the month is over, and before the months before it
    are closed."""
    account = _permitted_account(uow, principal, project, month)
    if month < account.next_month:
        return None
    _require_due(uow, account, month)
    return _prepare(uow, card, account, known_seq)


def prepare_due(uow: UnitOfWork, project: str, known_seq: int) -> Prepared | None:
    """Return what the loop's timer is to close, in a read at the moment at which it is due; None:
    the month is not over."""
    account = accounts.of(uow, project)
    return _prepare(uow, default_rate_card(), account, known_seq) if _is_due(uow, account) else None


def _permitted_account(uow: UnitOfWork, principal: Principal, project: str, month: str) -> Account:
    accounts.require_to_edit(uow, principal, project, f"invoices/{month}")
    accounts.check_month(month)
    return _locked_account(uow, project) if uow.writable else accounts.of(uow, project)


def _require_due(uow: UnitOfWork, account: Account, month: str) -> None:
    if month > account.next_month:
        raise failed_precondition(f"{month} cannot be closed yet: close {account.next_month} first")
    if not _is_due(uow, account):
        at = account.closes_at(month).rfc3339()
        raise failed_precondition(f"{month} has not ended: it can be closed from {at}")


def _is_due(uow: UnitOfWork, account: Account) -> bool:
    return uow.now >= account.closes_at(account.next_month)


def _prepare(uow: UnitOfWork, card: RateCard, account: Account, known_seq: int) -> Prepared:
    month, as_of = account.next_month, account.closes_at(account.next_month)
    last_seq = usage_events.last_seq_of(uow, account.names, known_seq)
    found = Prepared(card, account, None, as_of, last_seq, known_seq)
    try:
        card_prices.check(uow, card)
        computed = invoices.compute(uow, card, account, month, as_of, last_seq, issued=True)
    except PodyardError as error:
        return dataclasses.replace(
            found, terms=invoices.terms_of(uow, account, month), refused=error
        )
    made = (
        ()
        if computed.invoice is None
        else chunks_of(invoices.records_of(uow, card, account, computed))
    )
    return dataclasses.replace(
        found,
        terms=computed.terms,
        invoice=computed.invoice,
        document=b"" if computed.document is None else canonical(computed.document),
        held=computed.held,
        used=bills.versions_used(computed.bill, card),
        records=made,
    )


def _locked_account(uow: UnitOfWork, project: str) -> Account:
    usage_events.wait_for_writers(uow)
    return accounts.of(uow, project)


def _stands(uow: UnitOfWork, account: Account, found: Prepared) -> bool:
    """Return whether nothing has changed that the bill follows from. Events of a later time than it
    is for change nothing."""
    if dataclasses.replace(account, held_because="") != dataclasses.replace(
        found.account, held_because=""
    ):
        return False
    if invoices.terms_of(uow, account, found.month) != found.terms:
        return False
    return not usage_events.any_since(uow, account.names, found.known_seq, found.as_of)


def issue_by_hand(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    month: str,
    found: Prepared | None,
    hold_suspense: bool,
) -> IssuedInvoice | None:
    """Writes what `prepare` has computed; the invoice, or None when there was nothing to invoice.
    Raises as
    `prepare`, FAILED_PRECONDITION for usage without a price, and `Outdated` when it has to be
    computed again."""
    account = _permitted_account(uow, principal, project, month)
    if month < account.next_month:
        return invoice_rows.find(uow, project, month)
    _require_due(uow, account, month)
    if found is None or not _stands(uow, account, found):
        raise Outdated(project, month)
    return _issue(uow, account, found, hold_suspense)


def on_timer(uow: UnitOfWork, timer: Timer, found: Prepared | None) -> bool:
    """The end of a month and its grace: the loop closes it, as it was computed. What holds it up is
    kept at the
    account, and it tries again a day later. False: it has to be computed (again), and the timer
    stays."""
    project = timer.resource_key
    account = _locked_account(uow, project)
    if not _is_due(uow, account):
        accounts.schedule(uow, account)
        return True
    if found is None or found.account.project != project or not _stands(uow, account, found):
        timers.put(uow, timer.kind, project, timer.version, timer.due)
        return False
    try:
        _issue(uow, account, found, hold_suspense=False)
    except PodyardError as error:
        accounts.hold(uow, account, error.message, RETRY_SECONDS)
    return True


def put_off(uow: UnitOfWork, project: str) -> None:
    """The month is still being computed: the loop looks again soon, and does something else
    meanwhile."""
    accounts.close_later(uow, project, PUT_OFF_SECONDS)


def _issue(
    uow: UnitOfWork, account: Account, found: Prepared, hold_suspense: bool
) -> IssuedInvoice | None:
    """All that can be refused is refused before the first row is written: the loop keeps why, in
    the same unit."""
    if found.refused is not None:
        raise found.refused
    card_prices.check(uow, found.card)
    if found.held and not hold_suspense:
        named = _first_of(found.held)
        raise failed_precondition(
            f"{found.month} cannot be closed because some usage has no price: {named}"
        )
    card_prices.keep(uow, found.card, found.as_of, found.used, invoiced=found.invoice is not None)
    if found.invoice is not None:
        _book(uow, account, found, found.invoice)
    accounts.close_next_month(uow, account)
    return invoice_rows.find(uow, account.project, found.month)


def _first_of(held: tuple[str, ...]) -> str:
    more = len(held) - HELD_NAMED_MAX
    return "; ".join(held[:HELD_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")


def _book(uow: UnitOfWork, account: Account, found: Prepared, invoice: Invoice) -> None:
    booked = entries.of_invoice(account.project, invoice)
    name = number_of(account.project, invoice.month)
    ledger.book(
        uow, account.project, booked.source_id, invoice.month, booked.entries, f"invoice {name}"
    )
    issued = IssuedInvoice(
        project=account.project,
        month=invoice.month,
        number=name,
        document=found.document,
        sha256=digest(found.document),
        currency=invoice.currency,
        decimals=invoice.decimals,
        total=invoice.total,
        re_rated=invoice.total - sum(one.minor for one in invoice.adjustments),
        as_of=found.as_of,
        last_event_seq=found.last_seq,
        issued_at=uow.now,
    )
    invoice_rows.add(uow, issued, invoice.adjustments)
    invoice_records.add(uow, account.project, invoice.month, found.records)
