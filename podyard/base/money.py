"""Money, exact: integers only.

A price is an integer of nanos (1e-9 of the currency) per hour, or per GiB and month of 730 hours.
One second of either divides 2,628,000 (= 730 x 3600) evenly, so an amount is an integer of *parts*,
nanos / 2,628,000, and no sum is ever rounded. Rounding happens once, on the invoice.
"""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal, localcontext
from fractions import Fraction

NANOS_PER_UNIT = 1_000_000_000
PARTS_PER_NANO = 2_628_000
SECONDS_PER_MONTH = 2_628_000
SECONDS_PER_HOUR = 3_600
_EXACT = re.compile(r"(-?\d+\.\d{2}\d*?)0+")
MONEY_DECIMALS_MAX = 12  # of a text for people: no step costs less than that shows
RATE_DIGITS_MAX = 40  # of an exchange rate: more than an account takes
_PARTS_PER_UNIT = PARTS_PER_NANO * NANOS_PER_UNIT


def nanos_from_decimal_text(text: str) -> int:
    """`"1.35"` -> 1_350_000_000; raises ValueError beyond nine decimals."""
    nanos = Decimal(text) * NANOS_PER_UNIT
    if nanos != nanos.to_integral_value():
        raise ValueError(f"{text!r} has more than nine decimals")
    return int(nanos)


def round_half_up(numerator: int, denominator: int) -> int:
    """numerator / denominator to the nearest integer, halves away from zero."""
    sign = -1 if (numerator < 0) != (denominator < 0) else 1
    numerator, denominator = abs(numerator), abs(denominator)
    return sign * ((2 * numerator + denominator) // (2 * denominator))


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Amount:
    """An exact amount of one currency, in parts (nanos / 2,628,000)."""

    parts: int = 0

    @classmethod
    def of_hourly(cls, price_nanos_per_hour: int, unit_seconds: int) -> Amount:
        """`unit_seconds` seconds at a price per hour (seconds x devices, chips or slices)."""
        return cls(price_nanos_per_hour * unit_seconds * (PARTS_PER_NANO // SECONDS_PER_HOUR))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.parts + other.parts)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.parts - other.parts)

    def __neg__(self) -> Amount:
        return Amount(-self.parts)

    def fraction(self) -> Fraction:
        """The amount in units of the currency, as a reduced fraction."""
        return Fraction(self.parts, _PARTS_PER_UNIT)

    def minor(self, decimals: int) -> int:
        """The amount rounded once to `decimals` decimals (halves away from zero), as an integer of
        that minor unit."""
        return round_half_up(self.parts * 10**decimals, _PARTS_PER_UNIT)

    def text(self, decimals: int) -> str:
        """Decimal text with exactly `decimals` decimals, rounded half up: for showing, never for
        summing."""
        return minor_text(self.minor(decimals), decimals)


def minor_text(minor: int, decimals: int) -> str:
    """`minor_text(-1234, 2)` is `"-12.34"`."""
    sign = "-" if minor < 0 else ""
    digits = str(abs(minor)).rjust(decimals + 1, "0")
    return sign + (f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits)


def money_text(amount: Amount | Fraction | Decimal | str) -> str:
    """US dollars for people: `$14,407.54`; below a dollar to four decimals, `$0.0341`, and below a
    cent to two digits, `$0.0000012`, so that seconds and steps show.

    Pages, commands and the demo all write money in this way. Exact amounts are in exports, JSON,
    and on hover.
    """
    exact = amount.fraction() if isinstance(amount, Amount) else Fraction(amount)
    decimals = 2 if abs(exact) >= 1 else 4
    while 0 < abs(exact) * 10 ** (decimals - 1) < 1 and decimals < MONEY_DECIMALS_MAX:
        decimals += 1
    return _dollars(round_half_up(exact.numerator * 10**decimals, exact.denominator), decimals)


def cost_text(cost: Amount | Fraction, currency: str) -> str:
    """A cost in any currency for people: `$14,407.54`, `14,407.54 EUR`."""
    if currency == "USD":
        return money_text(cost)
    exact = cost.fraction() if isinstance(cost, Amount) else cost
    minor = round_half_up(exact.numerator * 100, exact.denominator)
    return amount_text(minor_text(minor, 2), currency)


def amount_text(text: str, currency: str) -> str:
    """An amount of an invoice for people, with its own decimals: `$14,407.54`, `14,407.54 EUR`,
    `2,181,000 JPY`."""
    grouped = f"{Decimal(text.removeprefix('-')):,f}"
    sign = "-" if text.startswith("-") else ""
    return f"{sign}${grouped}" if currency == "USD" else f"{sign}{grouped} {currency}"


def rate_text(rate: str, currency: str, month: str) -> str:
    """An exchange rate in words: `1 USD = 151.37 JPY (rate of 2026-03)`."""
    exact = Fraction(rate)
    with localcontext(prec=RATE_DIGITS_MAX):
        decimal = Decimal(exact.numerator) / exact.denominator
    return f"1 USD = {decimal:,f} {currency} (rate of {month})"


def price_text(nanos: int) -> str:
    """A price for people: `$4.50`, `$0.004906`. The price itself, with two decimals at least."""
    return _dollars(nanos, 9)


def _dollars(minor: int, decimals: int) -> str:
    units, digits = minor_text(abs(minor), decimals).split(".")
    return f"{'-' if minor < 0 else ''}${int(units):,}.{digits.rstrip('0'):0<2}"


def quantity_text(quantity: str, unit: str) -> str:
    """A quantity for people: `quantity_text("5952.000000000000", "chip-hour")` is `"5,952
    chip-hours"`. It has six decimals at most: a second is 0.000278 hours."""
    exact = round(Decimal(quantity), 6).normalize()
    return f"{exact:,f} {unit}{'' if exact == 1 else 's'}"


def without_zeros(text: str) -> str:
    """An exact amount for people: `"4.500000000"` is `"4.50"`. Any other text stays as it is."""
    exact = _EXACT.fullmatch(text)
    return text if exact is None else exact[1]
