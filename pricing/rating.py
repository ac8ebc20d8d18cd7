"""From billed seconds to exact amounts: rules R5 to R7 of the billing reference.

Usage is priced by the time of use: seconds are split where a price version starts. Amounts are exact integers
(podyard.base.money); they are rounded only to be shown.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import PARTS_PER_NANO, SECONDS_PER_HOUR, SECONDS_PER_MONTH, Amount
from podyard.domain.usage import PriceUnit, PriceVersion, Suspense, UsageRecord
from podyard.pricing.meter import Metered
from podyard.pricing.sku import Sku

# Parts of one nano for one unit and second: per hour, and per month of 730 hours.
_PARTS_PER_NANO_SECOND = (PARTS_PER_NANO // SECONDS_PER_HOUR, PARTS_PER_NANO // SECONDS_PER_MONTH)


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
    cuts = _price_starts(sku)
    versions: dict[int, PriceVersion | None] = {}  # by the number of cuts before a part, so that each is looked up once
    if open_second is not None:
        # What was used before the open period is certain, also where the two touch: so records never mix the two.
        cuts = sorted({*cuts, open_second})
    for seconds in (*metered.ranges, *metered.padding):
        for part in _split(seconds, cuts):
            place = bisect.bisect_right(cuts, part.start)
            if place not in versions:
                versions[place] = sku.version_at(PlatformTime(part.start * NANOS_PER_SECOND))
            version = versions[place]
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
                    seconds=part.stop - part.start,
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


def _price_starts(sku: Sku) -> list[int]:
    return [version.effective_from.nanos // NANOS_PER_SECOND for version in sku.versions]


def _split(seconds: range, cuts: Sequence[int]) -> Sequence[range]:
    """`cuts` ascend."""
    first, last = bisect.bisect_right(cuts, seconds.start), bisect.bisect_left(cuts, seconds.stop)
    if first >= last:
        return (seconds,) if seconds else ()
    edges = [seconds.start, *cuts[first:last], seconds.stop]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def parts_per_second(record: UsageRecord) -> int:
    """What each second of a record costs, in parts (R6)."""
    return record.price.nanos * record.quantity * _PARTS_PER_NANO_SECOND[record.unit is PriceUnit.GIB_MONTH]


def amount_of(record: UsageRecord) -> Amount:
    """The exact cost of a record (R6)."""
    return Amount(parts_per_second(record) * record.seconds)


def total(records: Iterable[UsageRecord]) -> Amount:
    return Amount(sum(parts_per_second(record) * record.seconds for record in records))


def cost_by_sku(records: Iterable[UsageRecord]) -> Mapping[str, Amount]:
    """Exact cost per SKU, by SKU id; a SKU that was not used is left out."""
    costs: dict[str, int] = {}
    for record in records:
        costs[record.sku_id] = costs.get(record.sku_id, 0) + parts_per_second(record) * record.seconds
    return {sku_id: Amount(costs[sku_id]) for sku_id in sorted(costs)}
