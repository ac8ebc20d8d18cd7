"""When a budget is used up, and what a month will come to: rule R13 of the billing reference.

Spending is the exact cost: net of what commitments cover, with the commitments' own charges, before
credits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.domain import months
from podyard.domain.usage import PriceUnit, UsageRecord
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
    """Spending over time, in stretches of equal rate that follow one another; gaps have the rate
    0."""
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
    """The end of the first second in which all that was spent until then is at least `amount`;
    None: never."""
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
    """The forecast of a month, exact; `spent` is the part of it that is certain or estimated
    already. `based_on`: seconds of use that the rest is worked out from; 0: nothing is left, or
    there has been no use."""

    spent: Amount
    low: Amount
    expected: Amount
    high: Amount
    based_on: int = 0


def forecast(
    charges: Iterable[UsageRecord], month: str, zone: str, as_of: PlatformTime
) -> Forecast:
    """Return what the month will have cost at its end.

    Method: what is spent, and for each second that is left the rate of the last seven days: of
    their mean (expected), of the quietest of them (low), and of the busiest of them, or of this
    moment if that is busier (high). Before the first charge there are no days: a history of less
    than seven days counts from its start, and its last day, which may be shorter, like any other.
    Rates are rounded down to whole parts of a nano; a month that is over has no range. What was
    paid upfront is spent, and nobody expects it again.

    Operations are counted, and have no rate: an upload of one minute does not go on. They are
    expected day by day, so that those of a history of less than a day are one day's.
    """
    charges = list(charges)
    lasting = [charge for charge in charges if not is_payment(charge.sku_id)]
    found = list(stretches(charge for charge in lasting if charge.unit is not PriceUnit.OPERATION))
    counted = list(stretches(charge for charge in lasting if charge.unit is PriceUnit.OPERATION))
    paid = list(stretches(charge for charge in charges if is_payment(charge.sku_id)))
    seconds = months.seconds_of(month, zone)
    now = as_of.nanos // NANOS_PER_SECOND
    spent = _spending([*found, *counted, *paid], seconds.start, min(now, seconds.stop))
    left = seconds.stop - max(now, seconds.start)
    begun = min((stretch.start for stretch in (*found, *counted)), default=now)
    ends = [
        now - day * DAY_SECONDS for day in range(FORECAST_DAYS) if now - day * DAY_SECONDS > begun
    ]
    if left <= 0 or not ends:
        return Forecast(Amount(spent), Amount(spent), Amount(spent), Amount(spent))
    starts = [max(end - DAY_SECONDS, begun) for end in ends]
    days = [
        _spending(found, start, end) // (end - start)
        for start, end in zip(starts, ends, strict=True)
    ]
    mean = _spending(found, starts[-1], now) // (now - starts[-1])
    present = _spending(found, now - 1, now)
    rates = (min(days), mean, max(*days, present))
    more = _counted_rates(counted, starts, ends)
    low, expected, high = (Amount(spent + (a + b) * left) for a, b in zip(rates, more, strict=True))
    return Forecast(Amount(spent), low, expected, high, now - starts[-1])


def _counted_rates(
    found: Sequence[Stretch], starts: Sequence[int], ends: Sequence[int]
) -> tuple[int, int, int]:
    """(low, expected, high) parts a second: of the least, the mean and the most of these days, each
    taken as a whole one. Of one day that is not over nobody knows whether there will be another."""
    days = [_spending(found, start, end) for start, end in zip(starts, ends, strict=True)]
    low = 0 if len(days) == 1 and ends[0] - starts[0] < DAY_SECONDS else min(days)
    return low // DAY_SECONDS, sum(days) // (len(days) * DAY_SECONDS), max(days) // DAY_SECONDS


def _spending(found: Sequence[Stretch], start: int, stop: int) -> int:
    return sum(s.parts * max(0, min(s.stop, stop) - max(s.start, start)) for s in found)
