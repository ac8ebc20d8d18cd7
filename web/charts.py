"""Charts as SVG text, drawn here: no script, one colour scheme with the page (classes, no style attributes), and each
with a title and a description for those who do not see it.

The functions are pure: numbers in, SVG out. Texts that come from users are escaped here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from podyard.web.formats import count, number

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34
GRID_LINES = 5  # 1, 2, 2.5 and 5 all divide by five into short numbers
SERIES_MAX = 6  # bars beyond the largest five are one series "other": six colours can be told apart
POINT_RADIUS = 3
LABEL_CHARACTERS = 9.0  # width of a character of an axis label, in units of the picture


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[Point]


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """One bar: `parts` are heights by series name."""

    label: str
    parts: Sequence[tuple[str, float]]

    @property
    def height(self) -> float:
        return sum(value for _, value in self.parts)


def nice_top(largest: float) -> float:
    """The smallest of 1, 2, 2.5, 5 x 10^k that covers `largest`: where an axis ends."""
    if not largest > 0 or not math.isfinite(largest):
        return 1.0
    power = math.floor(math.log10(largest))
    for candidate in (1.0, 2.0, 2.5, 5.0, 10.0):
        top = candidate * 10.0**power
        if top >= largest * (1 - 1e-12):
            return top
    return 10.0 ** (power + 1)


def line_chart(title: str, lines: Sequence[Line], *, x_name: str, y_name: str, y_top: float | None = None) -> Markup:
    """Lines over a common x. None or one point is drawn as what it is: an empty frame, a dot."""
    finite = [Line(line.name, [p for p in line.points if math.isfinite(p.x) and math.isfinite(p.y)]) for line in lines]
    points = [point for line in finite for point in line.points]
    top = nice_top(max((p.y for p in points), default=0.0)) if y_top is None else y_top
    last = max((p.x for p in points), default=1.0)
    first = min((p.x for p in points), default=0.0)
    if first == last:
        first, last = first - 1, last + 1
    body = [_grid(top, number)]
    for index, line in enumerate(finite):
        placed = [(_across(p.x, first, last), _up(p.y, top)) for p in line.points]
        if len(placed) == 1:
            body.append(f'<circle class="dot s{index + 1}" cx="{_n(placed[0][0])}" cy="{_n(placed[0][1])}" r="4"/>')
        elif placed:
            path = " ".join(f"{_n(x)},{_n(y)}" for x, y in placed)
            body.append(f'<polyline class="line s{index + 1}" points="{path}"/>')
    if points:
        low, high = min(p.x for p in points), max(p.x for p in points)
        body.append(_text(_across(low, first, last), HEIGHT - 10, number(low), "start" if low < high else "middle"))
        if high > low:
            body.append(_text(_across(high, first, last), HEIGHT - 10, number(high), "end"))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name, "middle"))
    return svg(title, _describe_lines(finite, x_name, y_name), WIDTH, HEIGHT, body)


def stacked_bars(title: str, bars: Sequence[Bar], *, unit: str, shown: Callable[[float], str] = number) -> Markup:
    """Bars of parts; the same name has the same colour in every bar. The parts keep the order of `names`."""
    names = series_names(bars)
    top = nice_top(max((bar.height for bar in bars), default=0.0))
    body = [_grid(top, shown)]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(bars))
    width = min(48.0, step * 0.7)
    label_every = math.ceil(max((len(bar.label) for bar in bars), default=1) * LABEL_CHARACTERS / step)
    for index, bar in enumerate(bars):
        middle = LEFT + step * (index + 0.5)
        base = 0.0
        for name, value in sorted(bar.parts, key=lambda part: _rank(names, part[0])):
            if value <= 0:
                continue
            y, bottom = _up(base + value, top), _up(base, top)
            body.append(
                f'<rect class="bar s{_rank(names, name) + 1}" x="{_n(middle - width / 2)}" y="{_n(y)}" '
                f'width="{_n(width)}" height="{_n(bottom - y)}"><title>'
                f"{escape(bar.label)}, {escape(name)}: {escape(shown(value))}</title></rect>"
            )
            base += value
        if index % max(1, label_every) == 0:
            body.append(_text(middle, HEIGHT - 10, bar.label, "middle"))
    if not bars:
        text = "nothing yet"
    else:
        high = max(bars, key=lambda bar: bar.height)
        text = f"{count(len(bars), 'bar')} of {unit}; the highest is {high.label} with {shown(high.height)}"
    return svg(title, text, WIDTH, HEIGHT, body)


def series_names(bars: Sequence[Bar]) -> list[str]:
    """The series by size, the largest first: at most `SERIES_MAX`, the last of which then stands for all others."""
    totals: dict[str, float] = {}
    for bar in bars:
        for name, value in bar.parts:
            totals[name] = totals.get(name, 0.0) + value
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    return ordered if len(ordered) <= SERIES_MAX else [*ordered[: SERIES_MAX - 1], "other"]


def _rank(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names) - 1


def _across(x: float, first: float, last: float) -> float:
    return LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)


def _up(y: float, top: float) -> float:
    return TOP + (1 - min(max(y / top, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)


def _grid(top: float, shown: Callable[[float], str]) -> str:
    parts = []
    for index in range(GRID_LINES + 1):
        value = top * index / GRID_LINES
        y = _up(value, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_n(y)}" y2="{_n(y)}"/>')
        parts.append(_text(LEFT - 8, y + 4, shown(value), "end"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="axis" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>'


def _n(value: float) -> str:
    """A coordinate: one decimal is finer than a pixel, and `12.0` is `12`."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def _describe_lines(lines: Sequence[Line], x_name: str, y_name: str) -> str:
    texts = []
    for line in lines:
        if not line.points:
            texts.append(f"{line.name}: no point yet")
            continue
        first, last = line.points[0], line.points[-1]
        if first.x == last.x:
            texts.append(f"{line.name}: {number(first.y)} at {x_name} {number(first.x)}")
        else:
            texts.append(
                f"{line.name}: from {number(first.y)} at {x_name} {number(first.x)} "
                f"to {number(last.y)} at {x_name} {number(last.x)}"
            )
    return f"{y_name}. " + "; ".join(texts)


def svg(
    title: str,
    description: str,
    width: float,
    height: float,
    body: Sequence[str],
    kind: str = "chart",
    scale: float = 1.0,
) -> Markup:
    """A picture with its title and description; `kind` is its class."""
    # Ids must differ between the charts of one page and must not differ between two renderings of the same chart.
    key = hashlib.sha256(title.encode()).hexdigest()[:8]
    return Markup(
        f'<svg class="{kind}" role="img" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width * scale)}" height="{_n(height * scale)}" '
        f'aria-labelledby="t{key} d{key}"><title id="t{key}">{escape(title)}</title>'
        f'<desc id="d{key}">{escape(description)}</desc>{"".join(body)}</svg>'
    )
