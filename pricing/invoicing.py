"""From charges to invoices: rules R7 to R9 of the billing reference, and the credits of R11.

An invoice has a line per SKU and unit price: a price that comes back goes on its old line. Sums are
exact, in US dollars, until they are shown: each line, each credit and the subtotal are converted
with the month's one rate and rounded once, halves away from zero. What the rounded lines and
credits miss of the subtotal is `rounding_error`. Tax is on the rounded subtotal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from podyard.base.errors import invalid
from podyard.base.money import NANOS_PER_UNIT, PARTS_PER_NANO, Amount, round_half_up
from podyard.domain import months
from podyard.domain.invoice import (
    Adjustment,
    BillingPolicy,
    Credit,
    CreditLine,
    Invoice,
    InvoiceLine,
)
from podyard.domain.usage import PriceUnit, PriceVersion, UsageRecord
from podyard.pricing.amounts import parts_per_second

PARTS_PER_UNIT = PARTS_PER_NANO * NANOS_PER_UNIT


def minor(amount: Amount, policy: BillingPolicy, month: str) -> int:
    """An exact amount in US dollars as the minor unit of the invoice's currency: converted, then
    rounded once."""
    rate = policy.exchange_of(month)
    return round_half_up(
        amount.parts * 10**policy.decimals * rate.numerator, PARTS_PER_UNIT * rate.denominator
    )


def invoices(
    charges: Iterable[UsageRecord], policy: BillingPolicy, credits: Sequence[Credit] = ()
) -> tuple[Invoice, ...]:
    """An invoice for each month that has charges, in order; adjustments are not among them."""
    by_month: dict[str, list[_Sum]] = {}
    for (month, _, _), found in sorted(_sums(charges, policy.time_zone).items()):
        by_month.setdefault(month, []).append(found)
    balances = [
        (credit, credit.amount)
        for credit in sorted(credits, key=lambda c: (c.until_month, c.credit_id))
    ]
    made = []
    for month, sums in by_month.items():
        net = Amount(sum(found.parts for found in sums))
        taken, balances = use_credits(balances, month, net)
        made.append(_invoice(month, [_line(found, policy, month) for found in sums], taken, policy))
    return tuple(made)


@dataclasses.dataclass(slots=True)
class _Sum:
    """All charges of one SKU at one unit price in one month, and the versions of that price."""

    sku_id: str
    unit: PriceUnit
    versions: dict[str, PriceVersion]
    seconds: int = 0
    unit_seconds: int = 0
    parts: int = 0
    estimated: bool = False


def _sums(charges: Iterable[UsageRecord], zone: str) -> dict[tuple[str, str, int], _Sum]:
    sums: dict[tuple[str, str, int], _Sum] = {}
    month, within = "", range(0)
    for charge in charges:
        start, stop = charge.start_second, charge.start_second + charge.seconds
        if start >= stop:
            continue
        if not within.start <= start < within.stop:
            month = months.month_of(start, zone)
            within = months.seconds_of(month, zone)
        # Most charges lie in one month, the one before had the same: only the others are split.
        parts = [(month, stop - start)] if stop <= within.stop else _split(charge, zone)
        for of_month, seconds in parts:
            key = (of_month, charge.sku_id, charge.price.nanos)
            found = sums.get(key)
            if found is None:
                found = sums[key] = _Sum(charge.sku_id, charge.unit, {})
            found.versions[charge.price.version_id] = charge.price
            found.seconds += seconds
            found.unit_seconds += charge.quantity * seconds
            found.parts += parts_per_second(charge) * seconds
            found.estimated = found.estimated or charge.estimated
    return sums


def _split(charge: UsageRecord, zone: str) -> list[tuple[str, int]]:
    seconds = range(charge.start_second, charge.start_second + charge.seconds)
    return [(month, len(part)) for month, part in months.split(seconds, zone)]


def _line(found: _Sum, policy: BillingPolicy, month: str) -> InvoiceLine:
    amount = Amount(found.parts)
    versions = sorted(found.versions.values(), key=lambda version: version.effective_from)
    return InvoiceLine(
        sku_id=found.sku_id,
        unit=found.unit,
        price=versions[0],
        versions=versions,
        seconds=found.seconds,
        unit_seconds=found.unit_seconds,
        amount=amount,
        shown=minor(amount, policy, month),
        estimated=found.estimated,
    )


def use_credits(
    balances: Sequence[tuple[Credit, Amount]], month: str, net: Amount
) -> tuple[list[tuple[Credit, Amount]], list[tuple[Credit, Amount]]]:
    """Return what each credit that is valid in the month pays of `net`, in the order given and
    never more than there is; and all balances afterwards."""
    taken, left = [], []
    for credit, balance in balances:
        valid = credit.from_month <= month <= credit.until_month
        valid = valid and (credit.ended_month is None or month < credit.ended_month)
        used = min(balance, net) if valid else Amount()
        if used.parts > 0:
            taken.append((credit, used))
            net, balance = net - used, balance - used
        left.append((credit, balance))
    return taken, left


def _invoice(
    month: str,
    lines: Sequence[InvoiceLine],
    taken: Sequence[tuple[Credit, Amount]],
    policy: BillingPolicy,
) -> Invoice:
    credit_lines = [
        CreditLine(c.credit_id, -used, minor(-used, policy, month)) for c, used in taken
    ]
    rows: list[InvoiceLine | CreditLine] = [*lines, *credit_lines]
    exact = Amount(sum(row.amount.parts for row in rows))
    subtotal = minor(exact, policy, month)
    tax = tax_on(subtotal, policy.tax)
    return Invoice(
        month=month,
        currency=policy.currency,
        decimals=policy.decimals,
        lines=tuple(lines),
        credits=tuple(credit_lines),
        adjustments=(),
        rounding_error=subtotal - sum(row.shown for row in rows),
        subtotal=subtotal,
        tax=tax,
        total=subtotal + tax,
        exchange=policy.exchange_of(month),
    )


def tax_on(subtotal: int, tax: Fraction) -> int:
    """Tax on the rounded subtotal, itself rounded once."""
    return round_half_up(subtotal * tax.numerator, tax.denominator)


def adjustments(
    found: Sequence[Invoice],
    issued: Mapping[str, int],
    adjusted: Mapping[str, int],
    open_month: str | None,
) -> tuple[Adjustment, ...]:
    """Corrections of issued months (R9), by month: total as rated now, less what was issued, less
    what earlier adjustments have corrected. A month that is not used any more is corrected to zero;
    a difference of 0 is none.

    `issued`, `adjusted`: minor units by month. Raises INVALID_ARGUMENT when there is something to
    book and no open month to book it in.
    """
    totals = {invoice.month: invoice.total for invoice in found}
    made = []
    for month in sorted(issued):
        difference = totals.get(month, 0) - issued[month] - adjusted.get(month, 0)
        if difference == 0:
            continue
        if open_month is None or open_month in issued:
            raise invalid(
                f"{month} has to be corrected, but no month is open for the correction",
                "open_month",
            )
        made.append(Adjustment(month, open_month, difference))
    return tuple(made)


def with_adjustments(
    invoice: Invoice | None, found: Sequence[Adjustment], month: str, policy: BillingPolicy
) -> Invoice:
    """The invoice of the open month with the corrections that are booked in it; None: the month has
    nothing else."""
    base = invoice if invoice is not None else _invoice(month, (), (), policy)
    booked = tuple(a for a in found if a.booked_in_month == month)
    total = base.subtotal + base.tax + sum(a.minor for a in booked)
    return dataclasses.replace(base, adjustments=booked, total=total)
