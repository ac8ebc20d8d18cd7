"""When a budget is used up, and what a month will come to: rule R13 of the billing reference.

Spending is the exact cost: net of what commitments cover, with the commitments' own charges, before credits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.domain import months
from podyard.domain.usage import UsageRecord
from podyard.pricing.amounts import parts_per_second
from podyard.pricing.commitments import is_payment

DAY_SECONDS = 86_400
FORECAST_DAYS = 7  # a week: working days and the others, and no older habits


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """From `start` (POSIX seconds) until `stop`, every second costs `parts`."""

    start: int
    stop: int
    parts: int


def stretches(charges: Iterable[UsageRecord]) -> Iterator[Stretch]:
    """Spending over time, in stretches of equal rate that follow one another; gaps have the rate 0."""
    changes: dict[int, int] = {}
    for charge in charges:
        rate = parts_per_second(charge)
        end = charge.start_second + charge.seconds
        changes[charge.start_second] = changes.get(charge.start_second, 0) + rate
        changes[end] = changes.get(end, 0) - rate
    rate, since = 0, None
    for moment in sorted(changes):
        if since is not None:
            yield Stretch(since, moment, rate)
        rate, since = rate + changes[moment], moment


def stop_at(charges: Iterable[UsageRecord], amount: Amount) -> PlatformTime | None:
    """The end of the first second in which all that was spent until then is at least `amount`; None: never."""
    spent = 0
    for stretch in stretches(charges):
        missing = amount.parts - spent
        if missing <= 0:
            return PlatformTime((stretch.start + 1) * NANOS_PER_SECOND)
        if stretch.parts * (stretch.stop - stretch.start) >= missing:
            return PlatformTime((stretch.start - (-missing // stretch.parts)) * NANOS_PER_SECOND)
        spent += stretch.parts * (stretch.stop - stretch.start)
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Forecast:
    """What a month comes to, exact; `spent` is the part of it that is certain or estimated already."""

    spent: Amount
    low: Amount
    expected: Amount
    high: Amount


def forecast(charges: Iterable[UsageRecord], month: str, zone: str, as_of: PlatformTime) -> Forecast:
    """What the month will have cost at its end.

    Method: what is spent, and for each second that is left the rate of the last seven days: of their mean (expected),
    of the quietest of them (low), and of the busiest of them, or of this moment if that is busier (high). Before the
    first charge there are no days: a history of less than seven days counts from its start, and its last day, which
    may be shorter, like any other. Rates are rounded down to whole parts of a nano; a month that is over has no
    range. What was paid upfront is spent, and nobody expects it again.
    """
    charges = list(charges)
    found = list(stretches(charge for charge in charges if not is_payment(charge.sku_id)))
    paid = list(stretches(charge for charge in charges if is_payment(charge.sku_id)))
    seconds = months.seconds_of(month, zone)
    now = as_of.nanos // NANOS_PER_SECOND
    spent = _spending([*found, *paid], seconds.start, min(now, seconds.stop))
    left = seconds.stop - max(now, seconds.start)
    begun = min((stretch.start for stretch in found), default=now)
    ends = [now - day * DAY_SECONDS for day in range(FORECAST_DAYS) if now - day * DAY_SECONDS > begun]
    if left <= 0 or not ends:
        return Forecast(Amount(spent), Amount(spent), Amount(spent), Amount(spent))
    starts = [max(end - DAY_SECONDS, begun) for end in ends]
    days = [_spending(found, start, end) // (end - start) for start, end in zip(starts, ends, strict=True)]
    mean = _spending(found, starts[-1], now) // (now - starts[-1])
    present = _spending(found, now - 1, now)
    rates = (min(days), mean, max(*days, present))
    return Forecast(Amount(spent), *(Amount(spent + rate * left) for rate in rates))


def _spending(found: Sequence[Stretch], start: int, stop: int) -> int:
    return sum(s.parts * max(0, min(s.stop, stop) - max(s.start, start)) for s in found)
