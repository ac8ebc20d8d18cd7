"""Rating of used seconds: rule R6 of the billing reference. Amounts are exact integers
(podyard.base.money)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podyard.base.money import PARTS_PER_NANO, Amount
from podyard.domain.usage import PriceUnit, UsageRecord

# Parts of one nano for one unit and second.
_PARTS_PER_NANO_SECOND = {unit: PARTS_PER_NANO // unit.seconds for unit in PriceUnit}


def parts_per_second(record: UsageRecord) -> int:
    """Return what each second of a record costs, in parts (R6)."""
    return record.price.nanos * record.quantity * _PARTS_PER_NANO_SECOND[record.unit]


def amount_of(record: UsageRecord) -> Amount:
    """The exact cost of a record (R6)."""
    return Amount(parts_per_second(record) * record.seconds)


def total(records: Iterable[UsageRecord]) -> Amount:
    return Amount(sum(parts_per_second(record) * record.seconds for record in records))


def cost_by_sku(records: Iterable[UsageRecord]) -> Mapping[str, Amount]:
    """Exact cost per SKU, by SKU id; a SKU that was not used is left out."""
    costs: dict[str, int] = {}
    for record in records:
        costs[record.sku_id] = (
            costs.get(record.sku_id, 0) + parts_per_second(record) * record.seconds
        )
    return {sku_id: Amount(costs[sku_id]) for sku_id in sorted(costs)}
