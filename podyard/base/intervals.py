"""Half-open ranges of platform time, and the touched-second rule (R1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Interval:
    """`[start, end)`."""

    start: PlatformTime
    end: PlatformTime

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(
                f"interval ends before it starts: {self.start.rfc3339()} {self.end.rfc3339()}"
            )

    def touched_seconds(self) -> range:
        """The whole UTC seconds (as POSIX seconds) that the interval touches: none for an empty
        one."""
        if self.start == self.end:
            return range(0)
        return range(self.start.nanos // NANOS_PER_SECOND, -(-self.end.nanos // NANOS_PER_SECOND))


def union_of_seconds(ranges: Iterable[range]) -> list[range]:
    """Disjoint ascending ranges that hold exactly the seconds of `ranges`."""
    merged: list[range] = []
    for item in sorted((r for r in ranges if len(r)), key=lambda r: (r.start, r.stop)):
        if merged and item.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, item.stop))
        else:
            merged.append(item)
    return merged
