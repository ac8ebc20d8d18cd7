"""Amounts and quantities of a bill, free of any rule: an account's policy, commitments, credits,
and the invoice of a month."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from podyard.base.clock import PlatformTime
from podyard.base.money import Amount, minor_text, quantity_text, without_zeros
from podyard.domain.usage import PriceUnit, PriceVersion

LINES_KEPT_MAX = 4096  # ids that stay in memory: each of many records asks for its own


@dataclasses.dataclass(frozen=True, slots=True)
class BillingPolicy:
    """The invoicing policy of an account.

    `time_zone`: the IANA zone whose calendar months are invoiced. `currency` has `decimals`
    decimals and is worth `exchange[month]` per US dollar ("YYYY-MM"; `exchange_default` where the
    month has no rate).
    `tax`: the share of the subtotal that is added.
    """

    time_zone: str = "UTC"
    currency: str = "USD"
    decimals: int = 2
    tax: Fraction = Fraction(0)
    exchange_default: Fraction = Fraction(1)
    exchange: Mapping[str, Fraction] = dataclasses.field(default_factory=dict)

    def exchange_of(self, month: str) -> Fraction:
        return self.exchange.get(month, self.exchange_default)


@dataclasses.dataclass(frozen=True, slots=True)
class Commitment:
    """`quantity` units of a SKU, paid for every second of `[start_second, end_second)` whether they
    are used or not.

    `upfront`: the price at which the whole term is paid in its first second; `price` is then 0.
    None: by the second. `ended_second`: a credit note has ended it there.
    """

    commitment_id: str
    sku_id: str
    unit: PriceUnit
    quantity: int
    price: PriceVersion
    start_second: int
    end_second: int
    upfront: PriceVersion | None = None
    ended_second: int | None = None

    @property
    def end_of_charges(self) -> int:
        """The POSIX second from which on it is neither charged nor covers anything."""
        return (
            self.end_second
            if self.ended_second is None
            else min(self.end_second, self.ended_second)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Purchase:
    """A commitment as it was, or would be, bought. `upfront`: what is paid at once; None where it
    is paid monthly. `stated`: that is on the invoice of its month; it is not where that had been
    issued before invoices did so."""

    commitment: Commitment
    project: str
    years: int
    upfront: Amount | None
    created: PlatformTime
    stated: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Credit:
    """An amount that may be used for invoices of the months `from_month` to `until_month`, both
    included; from `ended_month` on, a credit note has ended it."""

    credit_id: str
    amount: Amount
    from_month: str
    until_month: str
    reason: str = ""
    ended_month: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class JobSpan:
    """A job had the resource from `start` until `end`; None: it still has it."""

    job_id: str
    resource_id: str
    start: PlatformTime
    end: PlatformTime | None


@functools.lru_cache(LINES_KEPT_MAX)
def line_id(sku_id: str, unit_price_nanos: int) -> str:
    """An invoice has one line for each SKU and unit price:
    `tpu-v2-device/us-central1/on-demand@4.50`."""
    return f"{sku_id}@{without_zeros(minor_text(unit_price_nanos, 9))}"


@dataclasses.dataclass(frozen=True, slots=True)
class InvoiceLine:
    """All use of one SKU at one unit price in one month.

    `versions` are the price versions of that price, in order of time, and `price` is the first of
    them. `seconds` are billed seconds of resources, whatever their size. `unit_seconds` are seconds
    times units, less what commitments cover: times the unit price they are `amount`, which is exact
    and in US dollars. `shown` is in the minor unit of the invoice's currency. A commitment's own
    line has the SKU `commitment:ID`, and its payment upfront `commitment:ID/upfront-payment` with
    one second. `estimated`: something of it was still in use.
    """

    sku_id: str
    unit: PriceUnit
    price: PriceVersion
    versions: Sequence[PriceVersion]
    seconds: int
    unit_seconds: int
    amount: Amount
    shown: int
    estimated: bool = False

    @property
    def line_id(self) -> str:
        return line_id(self.sku_id, self.price.nanos)


@dataclasses.dataclass(frozen=True, slots=True)
class CreditLine:
    """The amount that one credit takes off: `amount` is never positive."""

    credit_id: str
    amount: Amount
    shown: int


@dataclasses.dataclass(frozen=True, slots=True)
class CorrectedUse:
    """The amount that a correction adds to (or takes off) one line of an issued invoice for one
    resource: differences."""

    resource_id: str
    line_id: str
    unit: PriceUnit
    seconds: int
    unit_seconds: int
    amount: Amount


@dataclasses.dataclass(frozen=True, slots=True)
class Adjustment:
    """A correction of an issued month, booked in an open one: rounded once, tax included. `items`
    are exact, in US dollars worth `exchange` each; what they miss of `minor` is tax, credits and
    rounding."""

    corrects_month: str
    booked_in_month: str
    minor: int
    items: Sequence[CorrectedUse] = ()
    exchange: Fraction = Fraction(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Invoice:
    """One account, one month. The shown lines, credits and rounding_error sum to the subtotal;
    subtotal, tax and adjustments to the total. All integers are in the minor unit of `currency`,
    which is worth `exchange` per US dollar in this month."""

    month: str
    currency: str
    decimals: int
    lines: Sequence[InvoiceLine]
    credits: Sequence[CreditLine]
    adjustments: Sequence[Adjustment]
    rounding_error: int
    subtotal: int
    tax: int
    total: int
    exchange: Fraction = Fraction(1)


@dataclasses.dataclass(frozen=True, slots=True)
class IssuedInvoice:
    """An invoice as it was issued. `document` is that byte for byte; `total` and `re_rated`, the
    same without adjustments of other months, are in the minor unit of the currency;
    `last_event_seq`: the usage events that it knew of."""

    project: str
    month: str
    number: str
    document: bytes
    sha256: str
    currency: str
    decimals: int
    total: int
    re_rated: int
    as_of: PlatformTime
    last_event_seq: int
    issued_at: PlatformTime


def hosts_text(included: str | None, quantity: str, unit: PriceUnit) -> str:
    """Return what an invoice says of the hosts of a line's nodes: `included` is the part of its
    quantity with them."""
    if included is None or not Decimal(included):
        return ""
    return (
        "hosts included"
        if included == quantity
        else f"hosts included in {quantity_text(included, unit.noun)}"
    )
