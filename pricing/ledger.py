"""Double entry: an issued invoice as one transaction whose entries sum to zero in each currency.

Debits are positive. Amounts are exact: revenue is booked by SKU as it was rated, and what rounding
to the minor unit has added or taken is in a separate account. An invoice in another currency is two
transactions in one: US
dollars against `exchange:USD`, and the other currency against `exchange:CURRENCY`; rounding is then
part of the exchange, because a converted amount need not be a whole number of parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.money import Amount
from podyard.domain.invoice import Invoice, InvoiceLine
from podyard.domain.ledger import LedgerEntry, balances
from podyard.pricing.commitments import is_payment
from podyard.pricing.invoicing import PARTS_PER_UNIT

PRICED_IN = "USD"


@dataclasses.dataclass(frozen=True, slots=True)
class Transaction:
    """`source_id` says what it books, and is booked once. The entries of each currency sum to
    zero."""

    source_id: str
    entries: Sequence[LedgerEntry]

    def __post_init__(self) -> None:
        for currency, rest in balances(self.entries, by="currency"):
            assert rest.parts == 0, (
                f"{self.source_id} does not balance: {rest.parts} parts of {currency} are over"
            )


def of_invoice(account: str, invoice: Invoice) -> Transaction:
    """Return what issuing an invoice to an account books. Corrections name the month that they
    correct."""
    rated = [(_counter(account, line), -line.amount) for line in invoice.lines]
    rated += [(f"credit:{line.credit_id}", -line.amount) for line in invoice.credits]
    net = -Amount(sum(amount.parts for _, amount in rated))
    owed = [(f"receivable:{account}", of_minor(invoice.total, invoice))]
    owed += [("tax", -of_minor(invoice.tax, invoice))]
    owed += [
        (f"adjustment:{a.corrects_month}", -of_minor(a.minor, invoice)) for a in invoice.adjustments
    ]
    subtotal = of_minor(invoice.subtotal, invoice)
    if invoice.currency == PRICED_IN and invoice.exchange == 1:
        rated.append(("rounding", net - subtotal))
    else:
        rated.append((f"exchange:{PRICED_IN}", net))
        owed.append((f"exchange:{invoice.currency}", -subtotal))
    entries = [LedgerEntry(name, PRICED_IN, amount) for name, amount in rated if amount.parts]
    entries += [
        LedgerEntry(name, invoice.currency, amount) for name, amount in owed if amount.parts
    ]
    return Transaction(f"invoice:{account}:{invoice.month}", tuple(entries))


def _counter(account: str, line: InvoiceLine) -> str:
    """Return what was paid upfront was booked at the purchase, as revenue of its commitment: its
    line is the statement of it, and takes from the account's debt what the invoice's total adds
    once more."""
    return f"receivable:{account}" if is_payment(line.sku_id) else f"revenue:{line.sku_id}"


def of_minor(minor: int, invoice: Invoice) -> Amount:
    """Minor units of the invoice's currency as an exact amount of it."""
    return Amount(minor * (PARTS_PER_UNIT // 10**invoice.decimals))
