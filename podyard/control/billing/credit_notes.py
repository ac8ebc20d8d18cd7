"""Credit notes: what is taken back of an issued invoice, and the early end of commitments and
credits.

A note is a separate entry, with a reason and a transaction of the ledger. No invoice changes, and
none that comes counts a note: what the account owes is the balance of its receivables.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.base.money import Amount, minor_text, round_half_up
from podyard.control.billing import accounts, bill_lines, invoices
from podyard.control.billing.commitments import REASON_LENGTH_MAX
from podyard.control.billing.invoice_document import from_json, minor_of
from podyard.db.access import accounts as account_rows
from podyard.db.billing import budgets
from podyard.db.billing import commitments as commitment_rows
from podyard.db.billing import credit_notes as rows
from podyard.db.store import ledger
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.credit_note import CreditNote, NoteSubject
from podyard.domain.invoice import Purchase
from podyard.domain.ledger import LedgerEntry
from podyard.domain.principal import Principal
from podyard.pricing import invoicing

NOTES_MAX = 10_000  # of a project: they are read whole


def credit_invoice(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    month: str,
    amount: str,
    line: str,
    reason: str,
) -> CreditNote:
    """Takes an amount of an issued invoice, or of one of its lines, back. `amount` is in the
    invoice's currency, tax included. Raises INVALID_ARGUMENT, NOT_FOUND for an unknown invoice or
    line, and FAILED_PRECONDITION where the notes of the invoice or line would exceed it."""
    account, there = _begin(uow, principal, project, reason)
    invoice = invoices.get(uow, principal, project, month)
    document = from_json(invoice.document)
    exact = accounts.positive_decimal(amount, "amount") * 10**invoice.decimals
    if exact.denominator != 1:
        raise invalid(
            f"amount is {amount}: {invoice.currency} has {invoice.decimals} decimals", "amount"
        )
    minor, limit, what = exact.numerator, invoice.total, f"invoice {invoice.number}"
    before = [
        note for note in there if (note.subject, note.subject_id) == (NoteSubject.INVOICE, month)
    ]
    _check_limit(minor, limit, before, what, invoice.decimals)
    if line:
        stated = next((one for one in document.lines if one.id == line), None)
        if stated is None:
            raise bill_lines.no_line(month, line)
        shown = minor_of(stated.amount, invoice.decimals)
        limit = shown + invoicing.tax_on(shown, Fraction(Decimal(document.tax_share)))
        _check_limit(
            minor,
            limit,
            [note for note in before if note.line == line],
            f"line {line}",
            invoice.decimals,
        )
    return _issue(
        uow, principal, account, there, NoteSubject.INVOICE, month, reason, minor=minor, line=line
    )


def end_commitment(
    uow: UnitOfWork, principal: Principal, project: str, commitment_id: str, reason: str
) -> CreditNote:
    """Ends a commitment with the next whole second, but not before its first one is over. What was
    paid upfront for the seconds after it is taken back, with the tax on it, at the exchange rate of
    the month in which it was paid. Raises NOT_FOUND, and FAILED_PRECONDITION for one that has
    ended."""
    account, there = _begin(uow, principal, project, reason)
    found = next(
        (
            one
            for one in commitment_rows.of_project(uow, project)
            if one.commitment.commitment_id == commitment_id
        ),
        None,
    )
    if found is None:
        raise PodyardError(
            Code.NOT_FOUND, f"project {project} has no commitment {commitment_id[:64]!r}"
        )
    end = max(-(-uow.now.nanos // NANOS_PER_SECOND), found.commitment.start_second + 1)
    if found.commitment.end_of_charges <= end:
        raise failed_precondition(f"commitment {commitment_id} has ended already")
    minor = _unused_payment(account, found, end)
    budgets.look_again(uow, project)
    return _issue(
        uow,
        principal,
        account,
        there,
        NoteSubject.COMMITMENT,
        commitment_id,
        reason,
        minor=minor,
        ends_second=end,
    )


def end_credit(
    uow: UnitOfWork, principal: Principal, project: str, credit_id: str, reason: str
) -> CreditNote:
    """From the month on that platform time is in, nothing more of the credit is used."""
    account, there = _begin(uow, principal, project, reason)
    found = next(
        (one for one in account_rows.credits_of(uow, project) if one.credit_id == credit_id), None
    )
    if found is None:
        raise PodyardError(Code.NOT_FOUND, f"project {project} has no credit {credit_id[:64]!r}")
    month = account.month_of(uow.now)
    if found.until_month < month or found.ended_month is not None:
        raise failed_precondition(f"credit {credit_id} has ended already")
    return _issue(
        uow,
        principal,
        account,
        there,
        NoteSubject.CREDIT,
        credit_id,
        reason,
        minor=0,
        ends_month=month,
    )


def list_notes(uow: UnitOfWork, principal: Principal, project: str) -> list[CreditNote]:
    """The oldest first."""
    accounts.require_to_view(uow, principal, project, "credit notes")
    return rows.of_project(uow, project)


def _begin(
    uow: UnitOfWork, principal: Principal, project: str, reason: str
) -> tuple[Account, list[CreditNote]]:
    accounts.require_to_edit(uow, principal, project, "credit notes")
    if not 1 <= len(reason.strip()) <= REASON_LENGTH_MAX:
        raise invalid(f"reason must have 1 to {REASON_LENGTH_MAX} characters", "reason")
    account, there = accounts.of(uow, project), rows.of_project(uow, project)
    if len(there) >= NOTES_MAX:
        raise PodyardError(
            Code.RESOURCE_EXHAUSTED, f"project {project} already has {NOTES_MAX} credit notes"
        )
    return account, there


def _check_limit(
    minor: int, limit: int, before: list[CreditNote], what: str, decimals: int
) -> None:
    left = limit - sum(note.minor for note in before)
    if minor > left:
        text = (
            f"{minor_text(minor, decimals)} is more than is left of {what}: "
            f"{minor_text(max(left, 0), decimals)}"
        )
        raise failed_precondition(text)


def _unused_payment(account: Account, found: Purchase, end: int) -> int:
    """In minor units of the account's currency."""
    one, paid = found.commitment, found.upfront
    if paid is None:
        return 0
    month = account.month_of(PlatformTime(one.start_second * NANOS_PER_SECOND))
    if account.currency != accounts.USD and month not in account.rates:
        raise failed_precondition(
            f"no exchange rate of {account.currency} for {month}: set one in the billing account"
        )
    left = Amount(
        round_half_up(paid.parts * (one.end_second - end), one.end_second - one.start_second)
    )
    minor = invoicing.minor(left, account.policy, month)
    return minor + (invoicing.tax_on(minor, account.policy.tax) if found.stated else 0)


def _issue(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    account: Account,
    there: list[CreditNote],
    subject: NoteSubject,
    subject_id: str,
    reason: str,
    *,
    minor: int,
    line: str = "",
    ends_second: int | None = None,
    ends_month: str | None = None,
) -> CreditNote:
    note = CreditNote(
        number=f"{account.project}-CN-{len(there) + 1}",
        project=account.project,
        subject=subject,
        subject_id=subject_id,
        line=line,
        currency=account.currency,
        decimals=account.decimals,
        minor=minor,
        reason=reason,
        created_by=principal.email,
        created=uow.now,
        ends_second=ends_second,
        ends_month=ends_month,
    )
    rows.add(uow, note)
    if minor:
        amount = Amount(minor * (invoicing.PARTS_PER_UNIT // 10**account.decimals))
        entries = [
            LedgerEntry(f"receivable:{account.project}", account.currency, -amount),
            LedgerEntry(f"credit-note:{subject_id}", account.currency, amount),
        ]
        month = account.month_of(uow.now)
        ledger.book(
            uow,
            account.project,
            f"credit-note:{note.number}",
            month,
            entries,
            f"credit note: {reason}",
        )
    return note
