"""How numbers, money and times read on a page. Each is exact to what it shows: no float noise, no thin zeros."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from podyard.base.clock import PlatformTime, RealTime
from podyard.base.money import Amount, minor_text, round_half_up

AMOUNT_DECIMALS = 6  # as `podyard bill show` prints
PRICE_DECIMALS = 4
NANO_DECIMALS = 9
_TONES: Mapping[str, frozenset[str]] = {
    "good": frozenset({"READY", "SUCCEEDED"}),
    "busy": frozenset(
        {"CREATING", "STARTING", "RESTARTING", "REPAIRING", "REIMAGING", "PREPARING", "RUNNING", "RECOVERING", "QUEUED"}
    ),
    "bad": frozenset({"FAILED", "UNKNOWN", "PREEMPTED", "TERMINATED"}),
}


def usd(amount: Amount) -> str:
    """`$0.012345`: an exact amount, rounded once."""
    text = amount.text(AMOUNT_DECIMALS)
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"


def price(nanos_per_hour: int) -> str:
    """`$4.5000`: a price per hour."""
    minor = round_half_up(nanos_per_hour, 10 ** (NANO_DECIMALS - PRICE_DECIMALS))
    return f"${minor_text(minor, PRICE_DECIMALS)}"


def number(value: float, digits: int = 4) -> str:
    """`value` with at most `digits` significant digits: `0.1` for 0.1 + 1e-17, `12,345` for 12345.2."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -7 <= magnitude < 12:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = max(0, digits - 1 - magnitude)
    text = f"{value:,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if decimals else text
    return "0" if text == "-0" else text


def seconds(value: float) -> str:
    """`350 µs`, `4.2 s`, `3 min 20 s`, `2 h 5 min`: a duration, in the two units that matter."""
    if value < 0:
        return "-" + seconds(-value)
    if 0 < value < 0.001:
        return f"{number(value * 1e6, 3)} µs"
    if 0 < value < 1:
        return f"{number(value * 1e3, 3)} ms"
    if value < 60:
        return f"{number(value, 3)} s"
    whole = round(value)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size:,} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def moment(value: PlatformTime | RealTime | None) -> str:
    """`2026-11-21 09:30:05 UTC`."""
    return "–" if value is None else value.rfc3339()[:19].replace("T", " ") + " UTC"


def percent(value: float) -> str:
    return f"{number(value * 100, 3)} %"


def tone(state: str) -> str:
    """The colour class of a state; the state itself always stands beside it as text."""
    return next((name for name, states in _TONES.items() if state in states), "quiet")


def count(value: int, noun: str) -> str:
    """`1 host`, `4 hosts`, `1,000 chips`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


FILTERS: dict[str, Callable[..., Any]] = {
    "usd": usd,
    "price": price,
    "num": number,
    "secs": seconds,
    "moment": moment,
    "percent": percent,
    "tone": tone,
    "count_of": count,
}
