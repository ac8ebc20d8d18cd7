"""From billed seconds to exact amounts: rules R5 to R7 of the billing reference.

Usage is priced by the time of use: seconds are split where a price version starts. Amounts are exact integers
(podyard.base.money); they are rounded only to be shown.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.domain.usage import PriceUnit, Suspense, UsageRecord
from podyard.pricing.meter import Metered
from podyard.pricing.sku import Sku


@dataclasses.dataclass(frozen=True, slots=True)
class Rated:
    """Records in order of time, and what no price covers."""

    records: tuple[UsageRecord, ...]
    suspense: tuple[Suspense, ...] = ()


def rate(metered: Metered, sku: Sku, quantity: int) -> Rated:
    """The seconds of one resource at the prices in force while they were used."""
    records: list[UsageRecord] = []
    suspense: list[Suspense] = []
    open_second = None if metered.open_since is None else metered.open_since.nanos // NANOS_PER_SECOND
    # What was used before the open period is certain, also where the two touch: so records never mix the two.
    certain_until = [] if open_second is None else [open_second]
    for seconds in (*metered.ranges, *metered.padding):
        for part in (p for r in _split(seconds, certain_until) for p in split_at_prices(r, sku)):
            version = sku.version_at(PlatformTime(part.start * NANOS_PER_SECOND))
            if version is None:
                why = f"{sku.sku_id} has no price before {sku.versions[0].effective_from.rfc3339()}"
                suspense.append(Suspense(metered.resource_id, part.start, len(part), why))
                continue
            records.append(
                UsageRecord(
                    resource_id=metered.resource_id,
                    sku_id=sku.sku_id,
                    unit=sku.unit,
                    start_second=part.start,
                    seconds=len(part),
                    quantity=quantity,
                    price=version,
                    estimated=open_second is not None and part.start >= open_second,
                )
            )
    return Rated(tuple(records), tuple(suspense))


def hold(metered: Metered, reason: str) -> Rated:
    """All seconds of a resource that nothing prices, in suspense."""
    held = (Suspense(metered.resource_id, r.start, len(r), reason) for r in (*metered.ranges, *metered.padding))
    return Rated((), tuple(held))


def split_at_prices(seconds: range, sku: Sku) -> Iterator[range]:
    """Parts of a range of POSIX seconds between the starts of price versions."""
    return _split(seconds, [version.effective_from.nanos // NANOS_PER_SECOND for version in sku.versions])


def _split(seconds: range, moments: Iterable[int]) -> Iterator[range]:
    cuts = [seconds.start, *sorted(m for m in set(moments) if seconds.start < m < seconds.stop), seconds.stop]
    return (range(a, b) for a, b in itertools.pairwise(cuts) if a < b)


def amount_of(record: UsageRecord) -> Amount:
    """The exact cost of a record (R6)."""
    if record.unit is PriceUnit.GIB_MONTH:
        return Amount.of_monthly(record.price.nanos, record.unit_seconds)
    return Amount.of_hourly(record.price.nanos, record.unit_seconds)


def total(records: Iterable[UsageRecord]) -> Amount:
    result = Amount()
    for record in records:
        result += amount_of(record)
    return result


def cost_by_sku(records: Iterable[UsageRecord]) -> Mapping[str, Amount]:
    """Exact cost per SKU, by SKU id; a SKU without cost is left out."""
    costs: dict[str, Amount] = {}
    for record in records:
        costs[record.sku_id] = costs.get(record.sku_id, Amount()) + amount_of(record)
    return {sku_id: costs[sku_id] for sku_id in sorted(costs)}


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """Amounts as integers of the currency's minor unit (R7): lines + rounding_error = subtotal, always."""

    lines: tuple[int, ...]
    rounding_error: int
    subtotal: int


def shown(amounts: Sequence[Amount], decimals: int) -> Shown:
    """Each amount rounded for display, and the exact sum rounded once (half up, away from zero)."""
    exact = Amount(sum(amount.parts for amount in amounts))
    lines = tuple(amount.minor(decimals) for amount in amounts)
    subtotal = exact.minor(decimals)
    return Shown(lines, subtotal - sum(lines), subtotal)
