"""From billed seconds to seconds at a price: rule R5 of the billing reference.

Usage is priced by the time of use: seconds are split where a price version starts. Only `bill.py`
calls this module.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.domain.usage import PriceVersion, Suspense, UsageRecord
from podyard.pricing.meter import Metered
from podyard.pricing.sku import Sku


@dataclasses.dataclass(frozen=True, slots=True)
class Rated:
    """Records in order of time, and what no price covers."""

    records: tuple[UsageRecord, ...]
    suspense: tuple[Suspense, ...] = ()


def rate(metered: Metered, sku: Sku, quantity: int) -> Rated:
    """The seconds of one resource at the prices in force while they were used. `quantity`: how many
    units it is, unless it is billed by its size."""
    records: list[UsageRecord] = []
    suspense: list[Suspense] = []
    open_second = (
        None if metered.open_since is None else metered.open_since.nanos // NANOS_PER_SECOND
    )
    cuts = _price_starts(sku)
    # by the number of cuts before a part, so that each is looked up once
    versions: dict[int, PriceVersion | None] = {}
    if open_second is not None:
        # What was used before the open period is certain, also where the two touch: so records
        # never mix the two.
        cuts = sorted({*cuts, open_second})
    for seconds, units in metered.parts(quantity):
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
                    quantity=units,
                    price=version,
                    estimated=open_second is not None and part.start >= open_second,
                )
            )
    return Rated(tuple(records), tuple(suspense))


def hold(metered: Metered, reason: str) -> Rated:
    """All seconds of a resource that nothing prices, in suspense."""
    held = (Suspense(metered.resource_id, r.start, len(r), reason) for r, _ in metered.parts(1))
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
