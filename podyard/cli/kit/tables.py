"""Tables for people: units, ages, numbers on the right, and lines that fit the terminal."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from podyard.base.durations import duration_for_people
from podyard.base.money import money_text, without_zeros
from podyard.cli.kit import terminal

STATE_HEADING = "STATE"
NOTHING = "-"
CUT_CHARACTERS_MIN = 12  # a text that is cut further says nothing
_GAP = "  "
# `$1,234.50`, `-3`, `0.5`, `12 %`, `1.02 MiB`, `3 d 2 h`: what people compare by its digits.
_QUANTITY = re.compile(
    r"[-+]?\$?\d[\d,]*(\.\d+)?(e[-+]\d+)?( ?[%A-Za-z]{1,5}| [a-z-]+)?( \d+ [a-z]{1,3})?\*?"
)
_BYTE_UNITS, _BYTES_PER_STEP = ("B", "KiB", "MiB", "GiB", "TiB"), 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """`path`: keys that lead to its value (`metrics.latest.loss`). `kind`: how people read it, one
    of `KINDS`."""

    heading: str
    path: str
    kind: str = ""

    def value(self, row: Mapping[str, Any]) -> Any:
        return pick(row, self.path)


def columns_of(headings: Mapping[str, str]) -> list[Column]:
    """Of heading -> path, or path|kind."""
    split = {heading: path.partition("|") for heading, path in headings.items()}
    return [Column(heading, path, kind) for heading, (path, _, kind) in split.items()]


def draw(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], now: datetime | None = None
) -> str:
    """`now`: what ages count from; without it they are shown as times."""
    values = [[column.value(row) for column in columns] for row in rows]
    texts = [
        [_text(column, value, now) for column, value in zip(columns, line, strict=True)]
        for line in values
    ]
    right = {index for index, column in enumerate(columns) if column.kind not in ("", "text")}
    cut = {index for index, column in enumerate(columns) if column.kind == "text"}
    return table([column.heading for column in columns], texts, right, cut)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    cut: Collection[int] = (),
) -> str:
    """Columns aligned to their widest cell, those in `right` and all quantities on the right.

    On a terminal it has colours, and what does not fit is taken from the columns in `cut`. Names,
    numbers and secrets are never among those: people copy them.
    """
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(headings))]
    on_right = {
        *right,
        *(index for index in range(len(headings)) if _are_quantities([row[index] for row in rows])),
    }
    _narrow(widths, cut)
    drawn = [
        [
            _cut_off(text, width).rjust(width)
            if index in on_right
            else _cut_off(text, width).ljust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]
    if terminal.has_colours():
        state = headings.index(STATE_HEADING) if STATE_HEADING in headings else None
        for line in drawn[1:]:
            if state is not None:
                line[state] = terminal.paint_state(line[state])
        drawn[0] = [terminal.paint_heading(text) for text in drawn[0]]
    return "\n".join(_GAP.join(line).rstrip() for line in drawn)


def pick(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def cell(value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items()) or NOTHING
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or NOTHING
    return without_zeros(str(value))


def _text(column: Column, value: Any, now: datetime | None) -> str:
    if value is None or not column.kind:
        return cell(value)
    if column.kind == "age":
        return (
            cell(value)
            if now is None
            else duration_for_people(max(0, int((now - time_of(value)).total_seconds())))
        )
    return KINDS[column.kind](value)


def time_of(text: str) -> datetime:
    """A time of the API (RFC 3339)."""
    return datetime.fromisoformat(text)


def size_text(size: int) -> str:
    amount, unit = float(size), 0
    while amount >= _BYTES_PER_STEP and unit < len(_BYTE_UNITS) - 1:
        amount, unit = amount / _BYTES_PER_STEP, unit + 1
    return f"{size} B" if not unit else f"{amount:.1f} {_BYTE_UNITS[unit]}"


KINDS: Mapping[str, Callable[[Any], str]] = {
    "usd": money_text, "seconds": duration_for_people, "bytes": size_text, "count": str, "age": str,
    "text": cell,
}  # fmt: skip


def _are_quantities(texts: Sequence[str]) -> bool:
    known = [text for text in texts if text != NOTHING]
    return bool(known) and all(_QUANTITY.fullmatch(text) for text in known)


def _narrow(widths: list[int], cut: Collection[int]) -> None:
    """Takes what a terminal has no room for from the widest of the columns in `cut`."""
    room = terminal.width()
    if room is None:
        return
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    while over > 0:
        widest = max(cut, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= CUT_CHARACTERS_MIN:
            return
        widths[widest] -= 1
        over -= 1


def _cut_off(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
