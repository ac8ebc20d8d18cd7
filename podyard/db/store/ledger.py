"""The ledger: transactions that sum to zero, each booked once, and never changed.

There is no statement here, or anywhere, that updates or deletes a transaction, an entry or an
issued invoice.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from podyard.base.errors import failed_precondition
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import ledger_entries, ledger_transactions
from podyard.domain.ledger import LedgerEntry, LedgerTransaction, balances


def book(
    uow: UnitOfWork,
    project: str,
    source_id: str,
    month: str,
    booking: Sequence[LedgerEntry],
    text: str,
) -> Sequence[LedgerEntry]:
    """Books what `source_id` stands for and returns the entries as they stand. What is booked
    already stays.

    An amount of zero is left out. Entries that do not sum to zero in each currency are a broken
    invariant. Raises FAILED_PRECONDITION when the source was booked with other entries.
    """
    wanted = [entry for entry in booking if entry.amount.parts != 0]
    for currency, rest in balances(wanted, by="currency"):
        assert rest.parts == 0, (
            f"{source_id} does not sum to zero: {rest.parts} parts of {currency} are left over"
        )
    if uow.first(_TRANSACTION, {"source_id": source_id}) is not None:
        booked = entries(uow, source_id)
        if booked != wanted:
            raise failed_precondition(
                f"{source_id} was booked already, with other amounts: it cannot be booked again"
            )
        return booked
    uow.insert(
        ledger_transactions,
        {
            "source_id": source_id,
            "project": project,
            "month": month,
            "booked": uow.now,
            "text": text,
        },
    )
    for position, entry in enumerate(wanted):
        uow.insert(ledger_entries, {"source_id": source_id, "position": position, **columns(entry)})
    return wanted


def entries(uow: UnitOfWork, source_id: str) -> list[LedgerEntry]:
    rows = uow.all(_ENTRIES, {"source_id": source_id})
    return [LedgerEntry(row["account"], row["currency"], row["amount"]) for row in rows]


def transactions(
    uow: UnitOfWork, project: str, after_seq: int, limit: int
) -> list[LedgerTransaction]:
    """The project's transactions in order, each with its entries."""
    rows = uow.all(_OF_PROJECT, {"project": project, "after": after_seq, "most": limit})
    return [LedgerTransaction(**row, entries=entries(uow, row["source_id"])) for row in rows]


def find_unbalanced(uow: UnitOfWork) -> list[tuple[str, str, int]]:
    """(source, currency, parts) of transactions that do not sum to zero: there are none."""
    sums: dict[tuple[str, str], int] = {}
    for row in uow.all(_ALL):
        key = (row["source_id"], row["currency"])
        sums[key] = sums.get(key, 0) + row["amount"].parts
    return [(*key, rest) for key, rest in sums.items() if rest != 0]


_TRANSACTION = select(ledger_transactions.c.source_id).where(
    ledger_transactions.c.source_id == bindparam("source_id")
)
_ENTRIES = (
    select(ledger_entries)
    .where(ledger_entries.c.source_id == bindparam("source_id"))
    .order_by(ledger_entries.c.position)
)
_ALL = select(ledger_entries).order_by(ledger_entries.c.source_id)
_OF_PROJECT = (
    select(ledger_transactions)
    .where(
        ledger_transactions.c.project == bindparam("project"),
        ledger_transactions.c.seq > bindparam("after"),
    )
    .order_by(ledger_transactions.c.seq)
    .limit(bindparam("most"))
)
