"""Corrections, itemised: what of which resource, on which line, an issued month has too much or too
little.

What a correction amounts to is the difference of two totals, rounded once (R9). Its items say what
that comes from: all use of the month as it is rated now, less what was issued, less the items of
earlier corrections. What the items, converted at the month's rate, miss of the amount is tax,
credits and rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from podyard.base.money import Amount
from podyard.domain.invoice import CorrectedUse, line_id
from podyard.domain.usage import PriceUnit, UsageRecord
from podyard.pricing.amounts import parts_per_second

LineKey = tuple[str, str]  # a resource, and the id of a line


@dataclasses.dataclass(slots=True)
class LineSum:
    """The sum of a resource on a line; `parts` are those of an exact amount."""

    unit: PriceUnit
    seconds: int = 0
    unit_seconds: int = 0
    parts: int = 0

    def add(self, seconds: int, unit_seconds: int, parts: int) -> None:
        self.seconds += seconds
        self.unit_seconds += unit_seconds
        self.parts += parts


def sums_by_line(charges: Iterable[UsageRecord]) -> dict[LineKey, LineSum]:
    """By resource and line."""
    sums: dict[tuple[str, str, int], LineSum] = {}
    for charge in charges:
        key = (charge.resource_id, charge.sku_id, charge.price.nanos)
        found = sums.get(key)
        if found is None:
            found = sums[key] = LineSum(charge.unit)
        found.add(charge.seconds, charge.unit_seconds, charge.seconds * parts_per_second(charge))
    return {
        (resource_id, line_id(sku_id, nanos)): one
        for (resource_id, sku_id, nanos), one in sums.items()
    }


def items(
    now: Mapping[LineKey, LineSum],
    issued: Mapping[LineKey, LineSum],
    earlier: Iterable[CorrectedUse],
) -> tuple[CorrectedUse, ...]:
    """Return what is new since the invoice and earlier corrections, by resource and line; nothing
    where nothing changed."""
    changes: dict[LineKey, LineSum] = {}
    for sign, sums in ((1, now), (-1, issued)):
        for key, one in sums.items():
            change = changes.setdefault(key, LineSum(one.unit))
            change.add(sign * one.seconds, sign * one.unit_seconds, sign * one.parts)
    for item in earlier:
        change = changes.setdefault((item.resource_id, item.line_id), LineSum(item.unit))
        change.add(-item.seconds, -item.unit_seconds, -item.amount.parts)
    return tuple(
        CorrectedUse(*key, one.unit, one.seconds, one.unit_seconds, Amount(one.parts))
        for key, one in sorted(changes.items(), key=lambda change: change[0])
        if one.seconds or one.unit_seconds or one.parts
    )
