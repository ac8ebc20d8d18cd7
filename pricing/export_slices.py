"""The days or hours of a month in a time zone, as half-open ranges of POSIX seconds without gaps.

A day starts where the zone's clocks first show its date, as months do (months.py), and hours are
counted from there: so the 23 or 25 hours of a day on which clocks are moved are whole ones in every
zone that moves them by an hour.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from podyard.base.errors import invalid
from podyard.base.money import SECONDS_PER_HOUR

GRANULARITIES = ("day", "hour")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


class Slices:
    """The slices of the POSIX seconds of one month. Raises INVALID_ARGUMENT for an unknown
    granularity."""

    def __init__(self, month: range, zone: str, granularity: str) -> None:
        if granularity not in GRANULARITIES:
            raise invalid(
                f"unknown granularity {granularity[:20]!r}: use {', '.join(GRANULARITIES)}",
                "granularity",
            )
        edges = _days(month, ZoneInfo(zone))
        if granularity == "hour":
            ends = [*edges[1:], month.stop]
            edges = [
                hour
                for day, end in zip(edges, ends, strict=True)
                for hour in range(day, end, SECONDS_PER_HOUR)
            ]
        self._edges = [*edges, month.stop]

    def __len__(self) -> int:
        return len(self._edges) - 1

    def seconds(self, place: int) -> range:
        return range(self._edges[place], self._edges[place + 1])

    def split(self, seconds: range) -> Iterator[tuple[int, range]]:
        """The parts of a range that are in the month, each with the place of its slice."""
        at, stop = max(seconds.start, self._edges[0]), min(seconds.stop, self._edges[-1])
        place = bisect.bisect_right(self._edges, at) - 1
        while at < stop:
            end = min(stop, self._edges[place + 1])
            yield place, range(at, end)
            at, place = end, place + 1


def _days(month: range, zone: ZoneInfo) -> list[int]:
    """Return where the days of the month start; the first one with the month itself."""
    first = (_EPOCH + timedelta(seconds=month.start)).astimezone(zone)
    midnight = datetime(first.year, first.month, first.day)
    starts = [month.start]
    while True:
        midnight += _DAY
        start = (midnight.replace(tzinfo=zone).astimezone(UTC) - _EPOCH) // timedelta(seconds=1)
        if start >= month.stop:
            return starts
        if start > starts[-1]:  # a date that a zone has left out has no seconds
            starts.append(start)
