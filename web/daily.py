"""Cost by day (UTC): usage records cut at midnight, each part with its exact amount, so that the days add up to the
total of the bill to the last part of a nano."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.control.billing import NodeUsage
from podyard.domain.usage import UsageRecord
from podyard.pricing.rating import amount_of

DAY_SECONDS = 86_400


def cost_by_day(nodes: Iterable[NodeUsage]) -> Mapping[int, Mapping[str, Amount]]:
    """Number of the day since 1970 -> name of the node -> its cost on that day."""
    days: dict[int, dict[str, Amount]] = {}
    for node in nodes:
        name = node.name.rsplit("/", 1)[-1]
        for part in (part for record in node.records for part in _at_midnight(record)):
            costs = days.setdefault(part.start_second // DAY_SECONDS, {})
            costs[name] = costs.get(name, Amount()) + amount_of(part)
    return {day: days[day] for day in sorted(days)}


def day_text(day: int) -> str:
    """`2026-11-21`."""
    return PlatformTime(day * DAY_SECONDS * NANOS_PER_SECOND).rfc3339()[:10]


def _at_midnight(record: UsageRecord) -> Iterator[UsageRecord]:
    start, end = record.start_second, record.start_second + record.seconds
    while start < end:
        stop = min(end, (start // DAY_SECONDS + 1) * DAY_SECONDS)
        yield dataclasses.replace(record, start_second=start, seconds=stop - start)
        start = stop
