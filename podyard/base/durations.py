"""Lengths of time: as people write them (`90s`, `1h30m`, `2d`), as Google's API does (`5400s`,
`1.5s`), and as people read them (`18 d 18 h`)."""

from __future__ import annotations

import re
from decimal import Decimal

from podyard.base.clock import NANOS_END, NANOS_PER_SECOND

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PARTS = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d{1,9})?)s)?"
)
_READ = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_SMALL = ((1.0, 1, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs"))
_DIGITS = 3
TEXT_LENGTH_MAX = 64  # of a duration: long past any that is one


def parse_duration(text: str) -> int:
    """Nanoseconds; ValueError for text that is not a duration, and for more than 292 years, which
    cannot be stored."""
    match = _PARTS.fullmatch(text) if 0 < len(text) <= TEXT_LENGTH_MAX else None
    if match is None:
        raise ValueError(f"{text[:TEXT_LENGTH_MAX]!r} is not a duration such as 90s, 1h30m or 2d")
    parts = zip(_UNITS.values(), match.groups(), strict=True)
    nanos = (
        sum(Decimal(number) * seconds for seconds, number in parts if number is not None)
        * NANOS_PER_SECOND
    )
    if nanos >= NANOS_END:
        raise ValueError(f"{text!r} is longer than can be stored")
    return int(nanos)


def duration_text(nanos: int) -> str:
    """As Google's API writes a length of time: decimal seconds, never with an exponent."""
    seconds, rest = divmod(abs(nanos), NANOS_PER_SECOND)
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' if nanos < 0 else ''}{seconds}{decimals}s"


def duration_for_people(seconds: float) -> str:
    """`350 µs`, `4.2 s`, `3 min 20 s`, `18 d 18 h`: the two units that matter. Pages, commands and
    the demo all write lengths of time in this way."""
    if seconds < 0:
        return "-" + duration_for_people(-seconds)
    if 0 < seconds < 59.95:
        factor, unit = next((factor, unit) for least, factor, unit in _SMALL if seconds >= least)
        text = f"{seconds * factor:.{_DIGITS}g}"
        return f"{float(text):g} {unit}"
    whole = round(seconds)
    for size, unit, below, small in _READ:
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size:,} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"
