"""Invoice months: which POSIX seconds belong to the calendar month of a time zone (rule R8 of the
billing reference).

A month is half-open: it starts at the first second in which the zone's clocks show its first day,
and ends where the next one starts. So months are contiguous whatever a zone does with its
clocks, and where clocks are put back over midnight the repeated hour belongs to the month that had
begun. POSIX time has no leap seconds, so none is billed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from podyard.base.errors import invalid

_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# far beyond what a database keeps, within what datetime can count
YEAR_FIRST, YEAR_LAST = 1000, 9000
STARTS_KEPT = 65_536  # 12 months x 584 years that can be stored x 9 zones: a few MB at most
ZONES_KEPT = 1_024  # more than there are names of zones


def month_of(second: int, zone: str) -> str:
    """The month "YYYY-MM" of a POSIX second; raises INVALID_ARGUMENT that names an unknown zone."""
    return _text(_index_of(second, zone))


def seconds_of(month: str, zone: str) -> range:
    """The POSIX seconds of the month; raises INVALID_ARGUMENT for a month that is not "YYYY-MM", or
    an unknown zone."""
    index = index_of(month)
    return range(_start(index, zone), _start(index + 1, zone))


def split(seconds: range, zone: str) -> Iterator[tuple[str, range]]:
    """The parts of a range of POSIX seconds by month, in order of time; nothing for an empty
    range."""
    index, start = (_index_of(seconds.start, zone), seconds.start) if seconds else (0, seconds.stop)
    while start < seconds.stop:
        stop = min(_start(index + 1, zone), seconds.stop)
        yield _text(index), range(start, stop)
        index, start = index + 1, stop


def following(month: str) -> str:
    """The month after this one."""
    return _text(index_of(month) + 1)


def between(first: str, last: str) -> Iterator[str]:
    """The months from the first to the last one, both included."""
    return map(_text, range(index_of(first), index_of(last) + 1))


def check_zone(zone: str) -> str:
    """The name itself; raises INVALID_ARGUMENT when there is no such zone."""
    _zone(zone)
    return zone


def index_of(month: str) -> int:
    """Months are counted from year 0, so that neighbours differ by one. Raises INVALID_ARGUMENT."""
    match = _MONTH.fullmatch(month)
    if match is None or not YEAR_FIRST <= int(match[1]) < YEAR_LAST:
        raise invalid(f"{month!r} is not a month: use YYYY-MM, such as 2026-03", "month")
    return int(match[1]) * 12 + int(match[2]) - 1


@functools.lru_cache(maxsize=STARTS_KEPT)
def _text(index: int) -> str:
    return f"{index // 12:04d}-{index % 12 + 1:02d}"


def _index_of(second: int, zone: str) -> int:
    local = (_EPOCH + timedelta(seconds=second)).astimezone(_zone(zone))
    index = local.year * 12 + local.month - 1
    # Where clocks were put back over midnight they show the old month again after the new one has
    # begun.
    return index + 1 if second >= _start(index + 1, zone) else index


@functools.lru_cache(maxsize=STARTS_KEPT)
def _start(index: int, zone: str) -> int:
    """The first POSIX second of a month."""
    # fold=0: the earlier of two midnights; and a skipped midnight is the moment at which clocks
    # were put forward. (No zone has ever put them from before midnight to after it on the first day
    # of a month.)
    first = datetime(index // 12, index % 12 + 1, 1, tzinfo=_zone(zone), fold=0)
    return (first.astimezone(UTC) - _EPOCH) // timedelta(seconds=1)


@functools.lru_cache(maxsize=ZONES_KEPT)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    # OSError: a folder of zones, such as "America"
    except (KeyError, ValueError, OSError) as error:
        raise invalid(
            f"{name!r} is not an IANA time zone: use a name such as Europe/Berlin", "timeZone"
        ) from error
