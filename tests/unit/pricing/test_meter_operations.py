"""Operations on buckets: charged by their number, in the second of their event."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime
from podyard.base.money import Amount
from podyard.domain.usage import DONE, BilledKind, PriceUnit, UsageEvent
from podyard.pricing.amounts import total
from podyard.pricing.bill import Resource, use_of
from podyard.pricing.meter import COUNTED
from podyard.pricing.sku import make_sku, make_version

NANOS = 10**9
SKU = make_sku(
    "operation-class-a-standard/us/on-demand",
    PriceUnit.OPERATION,
    [
        make_version("v", "1970-01-01T00:00:00Z", "0.00001", "s"),
        make_version("w", "1970-01-01T01:00:00Z", "0.001", "s"),
    ],
)


def event(number: int, nanos: int, operations: int) -> UsageEvent:
    return UsageEvent(
        f"e{number}", "b/class-a", number, DONE, PlatformTime(nanos), operations=operations
    )


def test_each_operation_is_charged_once_at_the_price_of_its_second() -> None:
    resource = Resource("b/class-a", BilledKind.OPERATION, SKU, 1, COUNTED)
    # Labels change in the third one; the fourth and fifth share a second, from which on there is
    # another price.
    events = [
        event(1, 5 * NANOS, 7),
        event(2, 3600 * NANOS - 1, 1000),
        event(3, 3600 * NANOS, 0),
        event(4, 3600 * NANOS, 2),
        event(5, 3601 * NANOS - 1, 3),
    ]
    use = use_of(resource, events, PlatformTime(3600 * NANOS))
    assert list(use.metered.parts(1)) == [(range(5, 6), 7), (range(3599, 3600), 1000)]
    assert not use.metered.is_estimated
    use = use_of(resource, events, PlatformTime(9000 * NANOS))
    assert list(use.metered.parts(1))[2:] == [(range(3600, 3601), 5)]
    assert total(use.rated.records) == Amount((1007 * 10_000 + 5 * 1_000_000) * 2_628_000)
    late = dataclasses.replace(resource, since=PlatformTime(3600 * NANOS))
    later = use_of(late, events, PlatformTime(9000 * NANOS))
    assert list(later.metered.parts(1)) == [(range(3600, 3601), 5)]
