"""The ledger's transactions, whose entries sum to zero in each currency."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.money import Amount


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`amount` of `currency` to an account: positive amounts are debits, negative ones credits."""

    account: str
    currency: str
    amount: Amount


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerTransaction:
    """A transaction as it was booked. `source_id` says what it books, and is booked once."""

    seq: int
    source_id: str
    project: str
    month: str
    booked: PlatformTime
    text: str
    entries: Sequence[LedgerEntry]


def balances(entries: Iterable[LedgerEntry], *, by: str = "account") -> list[tuple[str, Amount]]:
    """Sums of entries of one currency by account (or of all by currency), in order of the name."""
    sums: dict[str, int] = {}
    for entry in entries:
        name = entry.currency if by == "currency" else entry.account
        sums[name] = sums.get(name, 0) + entry.amount.parts
    return [(name, Amount(parts)) for name, parts in sorted(sums.items())]
