"""Numbers, money and times on pages. Each is exact to what it shows: no float noise, no thin
zeros."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from podyard.base.clock import PlatformTime, RealTime
from podyard.base.durations import duration_for_people
from podyard.base.money import Amount, money_text, price_text, without_zeros
from podyard.base.text.terminal_text import coloured_parts

EXACT_DECIMALS = 12  # as exports write amounts
_RANDOM_NAME = re.compile(r"\b([a-z]+-[0-9a-f]{6})[0-9a-f]{10,}\b")
_TONES: Mapping[str, frozenset[str]] = {
    "good": frozenset({"READY", "SUCCEEDED"}),
    "live": frozenset({"RUNNING"}),
    "busy": frozenset(
        {
            "CREATING",
            "STARTING",
            "RESTARTING",
            "REPAIRING",
            "REIMAGING",
            "PREPARING",
            "RECOVERING",
            "QUEUED",
            "DRAINING",
        }
    ),
    "bad": frozenset({"FAILED", "UNKNOWN", "PREEMPTED", "TERMINATED", "GONE"}),
}


def exact_usd(amount: Amount) -> str:
    """`$0.012345678901`: what stands on hover."""
    text = amount.text(EXACT_DECIMALS)
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"


def number(value: float, digits: int = 4) -> str:
    """`value` with at most `digits` significant digits: `0.1` for 0.1 + 1e-17, `12,345` for
    12345.2."""
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


def moment(value: PlatformTime | RealTime | None) -> str:
    """`2026-11-21 09:30:05 UTC`."""
    return "–" if value is None else value.rfc3339()[:19].replace("T", " ") + " UTC"


def local_time(value: PlatformTime | RealTime | None) -> str:
    """As `moment`; the script shows it by the reader's clock."""
    if value is None:
        return moment(value)
    return Markup('<time data-utc datetime="{}">{}</time>').format(
        value.rfc3339()[:19] + "Z", moment(value)
    )


def ago(value: PlatformTime, now: PlatformTime) -> Markup:
    """Return how long before `now`: `18 d 18 h`. The moment itself stands on hover."""
    minutes = max(0, int(now.seconds_since(value)) // 60)
    # not another text each second on a live page
    age = duration_for_people(minutes * 60) if minutes else "<1 min"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        value.rfc3339()[:19] + "Z", moment(value), age
    )


def percent(value: float) -> str:
    """With one decimal below 100: `2.6 %`, `<0.1 %`, `1,038 %`."""
    share = value * 100
    if 0 < share < 0.05:
        return "<0.1 %"
    return f"{number(round(share, 1 if abs(share) < 100 else 0), 12)} %"


def brief_ids(text: str) -> str:
    """A reason with its random names cut: `fault f-86a510…`. The whole text stands on hover."""
    return _RANDOM_NAME.sub(r"\1…", text)


def tone(state: str) -> str:
    """The colour class of a state; the state itself is always next to it as text."""
    return next((name for name, states in _TONES.items() if state in states), "quiet")


def count(value: int, noun: str) -> str:
    """`1 host`, `4 hosts`, `1,000 chips`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def step_time(seconds: float | None) -> str:
    """Of a step: `4.21 ms`."""
    # late: pages without such times need no engine
    from podyard.engine.report.summary import time_text

    return "" if seconds is None else time_text(seconds)


def data_size(size: int) -> str:
    """`1.2 GiB`."""
    from podyard.engine.report.summary import bytes_text  # late, as above

    return bytes_text(size)


def kind_name(kind: str) -> str:
    """`queuedResource` as people write it."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind)


def with_colours(line: str) -> Markup:
    """A line of a log with the colours that its program has written for a terminal."""
    parts = (
        Markup('<span class="{}">{}</span>').format(
            " ".join(f"ansi-{name}" for name in names.split()), text
        )
        if names
        else Markup("{}").format(text)
        for names, text in coloured_parts(line)
    )
    return Markup("").join(parts)


FILTERS: dict[str, Callable[..., Any]] = {
    "usd": money_text,
    "exact_usd": exact_usd,
    "price": price_text,
    "without_zeros": without_zeros,
    "num": number,
    "secs": duration_for_people,
    "step_time": step_time,
    "data_size": data_size,
    "moment": local_time,
    "ago": ago,
    "percent": percent,
    "brief_ids": brief_ids,
    "tone": tone,
    "with_colours": with_colours,
    "count_of": count,
    "kind_name": kind_name,
}
