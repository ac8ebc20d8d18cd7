"""Charts as SVG text, drawn here: no script, one colour scheme with the page (classes, no style
attributes), and each with a title and a description for those who do not see it.

The functions are pure: numbers in, SVG out. Texts that come from users are escaped here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from podyard.web.kit.formats import count, number

WIDTH, HEIGHT = 560, 240
BAR_STEP_MAX = 240.0  # few bars stand next to the axis, where narrow pages show them
FULL_WIDTH = 1160  # of a chart that fills a page of 1,280 pixels
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34
GRID_LINES = 5  # 1, 2, 2.5 and 5 all divide by five into short numbers
SERIES_MAX = 6  # bars beyond the largest five are one series "other": six colours can be told apart
LABEL_CHARACTERS = 9.0  # width of a character of an axis label, in units of the picture


@dataclasses.dataclass(frozen=True, slots=True)
class ChartPoint:
    x: float
    y: float


@dataclasses.dataclass(frozen=True, slots=True)
class ChartLine:
    name: str
    points: Sequence[ChartPoint]


@dataclasses.dataclass(frozen=True, slots=True)
class ChartMark:
    """A mark on a chart: `kind` is its class, `text` what it says under a pointer."""

    x: float
    kind: str
    text: str


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


def line_chart(
    title: str,
    lines: Sequence[ChartLine],
    *,
    x_name: str,
    y_name: str,
    y_top: float | None = None,
    marks: Sequence[ChartMark] = (),
) -> Markup:
    """Lines over a common x. None or one point is drawn as what it is: an empty frame, a dot."""
    finite = [
        ChartLine(line.name, [p for p in line.points if math.isfinite(p.x) and math.isfinite(p.y)])
        for line in lines
    ]
    points = [point for line in finite for point in line.points]
    top = nice_top(max((p.y for p in points), default=0.0)) if y_top is None else y_top
    lowest = min((p.y for p in points), default=0.0)
    bottom = -nice_top(-lowest) if lowest < 0 else 0.0
    last = max((p.x for p in points), default=1.0)
    first = min((p.x for p in points), default=0.0)
    if first == last:
        first, last = (max(0.0, first - 1) if first >= 0 else first - 1), last + 1
    body = [_grid(top, number, bottom)]
    for mark in marks:
        if first <= mark.x <= last:
            x = _n(_across(mark.x, first, last))
            place = f'x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
            body.append(
                f'<line class="mark {mark.kind}" {place}><title>{escape(mark.text)}</title></line>'
            )
    for index, line in enumerate(finite):
        placed = [(_across(p.x, first, last), _up(p.y - bottom, top - bottom)) for p in line.points]
        if len(placed) == 1:
            body.append(
                f'<circle class="dot s{index + 1}" cx="{_n(placed[0][0])}" '
                f'cy="{_n(placed[0][1])}" r="4"/>'
            )
        elif placed:
            path = " ".join(f"{_n(x)},{_n(y)}" for x, y in placed)
            body.append(f'<polyline class="line s{index + 1}" points="{path}"/>')
    if points:
        low, high = min(p.x for p in points), max(p.x for p in points)
        body.append(
            _text(
                _across(low, first, last),
                HEIGHT - 10,
                number(low),
                "start" if low < high else "middle",
            )
        )
        if high > low:
            body.append(_text(_across(high, first, last), HEIGHT - 10, number(high), "end"))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name, "middle"))
    return svg(title, _describe_lines(finite, x_name, y_name), WIDTH, HEIGHT, body)


def sparkline(title: str, points: Sequence[ChartPoint]) -> Markup:
    """A line of the size of a word, without axes: between its own least and greatest value."""
    finite = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    body = []
    if len(finite) > 1:
        (left, right), (low, high) = (
            (min(v), max(v)) for v in ([p.x for p in finite], [p.y for p in finite])
        )
        wide, tall = (right - left) or 1.0, (high - low) or 1.0
        inside = SPARK_HEIGHT - 4
        places = (
            (_n((p.x - left) / wide * SPARK_WIDTH), _n(2 + (high - p.y) / tall * inside))
            for p in finite
        )
        body.append(
            f'<polyline class="line s1" points="{" ".join(f"{x},{y}" for x, y in places)}"/>'
        )
    lines = [ChartLine("curve", finite)]
    return svg(
        title, _describe_lines(lines, "step", title), SPARK_WIDTH, SPARK_HEIGHT, body, "spark"
    )


def small_bars(title: str, values: Sequence[float]) -> Markup:
    """Bars of the size of a word, without axes: the newest is the last."""
    top = max(values, default=0.0)
    step = SPARK_WIDTH / max(1, len(values))
    body = [
        f'<rect class="s1" x="{_n(index * step)}" y="{_n(SPARK_HEIGHT * (1 - value / top))}" '
        f'width="{_n(step * 0.75)}" height="{_n(SPARK_HEIGHT * value / top)}"/>'
        for index, value in enumerate(values)
        if value > 0
    ]
    return svg(
        title,
        f"{len(values)} bars, the highest {number(top)}",
        SPARK_WIDTH,
        SPARK_HEIGHT,
        body,
        "spark",
    )


def stacked_bars(
    title: str,
    bars: Sequence[Bar],
    *,
    unit: str,
    shown: Callable[[float], str] = number,
    are_counts: bool = False,
) -> Markup:
    """Bars of parts; the same name has the same colour in every bar. The parts keep the order of
    `names`.
    `are_counts`: the axis has whole numbers only."""
    names = series_names(bars)
    top = nice_top(max((bar.height for bar in bars), default=0.0))
    if are_counts:
        top = max(top, float(GRID_LINES))
    body = [_grid(top, shown)]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(bars))
    width = min(48.0, step * 0.7)
    for index, bar in enumerate(bars):
        middle = LEFT + step * (index + 0.5)
        base = 0.0
        for name, value in sorted(bar.parts, key=lambda part: _rank(names, part[0])):
            if value <= 0:
                continue
            y, bottom = _up(base + value, top), _up(base, top)
            body.append(
                f'<rect class="bar s{_rank(names, name) + 1}" x="{_n(middle - width / 2)}" '
                f'y="{_n(y)}" '
                f'width="{_n(width)}" height="{_n(bottom - y)}"><title>'
                f"{escape(bar.label)}, {escape(name)}: {escape(shown(value))}</title></rect>"
            )
            base += value
    labels = [bar.label for bar in bars]
    body += _labels(labels, step)
    return svg(
        title,
        _describe_bars(labels, [bar.height for bar in bars], unit, shown),
        WIDTH,
        HEIGHT,
        body,
    )


def stacked_series(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    unit: str,
    shown: Callable[[float], str],
    hover: Sequence[str] = (),
    width: float = WIDTH,
) -> Markup:
    """Stacked bars of many values: one path for each series (at most 10, the colours that the style
    sheet has), so that a hundred bars stay small. What is negative hangs below the line of zero.
    `hover`: the text of each bar's column under a pointer."""
    ups = [sum(max(0.0, values[i]) for _, values in series) for i in range(len(labels))]
    downs = [sum(min(0.0, values[i]) for _, values in series) for i in range(len(labels))]
    top, bottom = (
        nice_top(max(ups, default=0.0)),
        -nice_top(-min(downs, default=0.0)) if min(downs, default=0.0) < 0 else 0.0,
    )

    def up(value: float) -> float:
        return _up(value - bottom, top - bottom)

    body = [_grid(top, shown, bottom, width)]
    step = min(BAR_STEP_MAX, (width - LEFT - RIGHT) / max(1, len(labels)))
    bar = min(48.0, step * 0.7)
    above, below = [0.0] * len(labels), [0.0] * len(labels)
    for index, (_, values) in enumerate(series):
        path = []
        for i, value in enumerate(values):
            if value == 0:
                continue
            base = above if value > 0 else below
            x, a, b = LEFT + step * (i + 0.5) - bar / 2, up(base[i]), up(base[i] + value)
            path.append(f"M{_n(x)} {_n(a)}V{_n(b)}h{_n(bar)}V{_n(a)}z")
            base[i] += value
        if path:
            body.append(f'<path class="bar s{index + 1}" d="{"".join(path)}"/>')
    for i, text in enumerate(hover):
        column = (
            f'x="{_n(LEFT + step * i)}" y="{TOP}" width="{_n(step)}" '
            f'height="{HEIGHT - TOP - BOTTOM}"'
        )
        body.append(f'<rect class="hover" {column}><title>{escape(text)}</title></rect>')
    body += _labels(labels, step)
    return svg(
        title,
        _describe_bars(labels, [a + b for a, b in zip(ups, downs, strict=True)], unit, shown),
        width,
        HEIGHT,
        body,
        kind="chart" if width == WIDTH else "chart full",
    )


def _labels(labels: Sequence[str], step: float) -> list[str]:
    """As many as have room, from the first on."""
    every = max(
        1, math.ceil((max((len(text) for text in labels), default=1) + 1) * LABEL_CHARACTERS / step)
    )
    return [
        _text(LEFT + step * (index + 0.5), HEIGHT - 10, text, "middle")
        for index, text in enumerate(labels)
        if index % every == 0
    ]


def _describe_bars(
    labels: Sequence[str], heights: Sequence[float], unit: str, shown: Callable[[float], str]
) -> str:
    if not labels:
        return "nothing yet"
    high = max(range(len(labels)), key=lambda i: heights[i])
    return (
        f"{count(len(labels), 'bar')} of {unit}; the highest is {labels[high]} with "
        f"{shown(heights[high])}"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Outlook:
    """The range in which a line may end: at `x`, between `low` and `high`."""

    x: float
    low: float
    expected: float
    high: float


def line_to_range(
    title: str,
    points: Sequence[ChartPoint],
    outlook: Outlook,
    *,
    x_name: str,
    y_name: str,
    shown: Callable[[float], str],
) -> Markup:
    """Return what has been, as a line, and from its end the range of what is expected."""
    top = nice_top(max((outlook.high, *(p.y for p in points))))
    first, last = min((outlook.x, *(p.x for p in points))), outlook.x
    if first == last:
        first = last - 1

    def at(x: float, y: float) -> str:
        return f"{_n(_across(x, first, last))},{_n(_up(y, top))}"

    body = [_grid(top, shown)]
    if points:
        end = points[-1]
        ends = " ".join((at(end.x, end.y), at(last, outlook.high), at(last, outlook.low)))
        body.append(f'<polygon class="range" points="{ends}"/>')
        body.append(
            f'<polyline class="line dashed s1" points="{at(end.x, end.y)} '
            f'{at(last, outlook.expected)}"/>'
        )
        body.append(
            f'<polyline class="line s1" points="{" ".join(at(p.x, p.y) for p in points)}"/>'
        )
        body.append(_text(_across(first, first, last), HEIGHT - 10, number(first), "start"))
    body.append(_text(_across(last, first, last), HEIGHT - 10, number(last), "end"))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name, "middle"))
    expected = f"{shown(outlook.expected)} expected at {x_name} {number(last)}"
    text = f"{_describe_lines([ChartLine('so far', points)], x_name, y_name)}; {expected}, "
    return svg(
        title, text + f"from {shown(outlook.low)} to {shown(outlook.high)}", WIDTH, HEIGHT, body
    )


def series_names(bars: Sequence[Bar]) -> list[str]:
    """The series by size, the largest first: at most `SERIES_MAX`, the last of which then stands
    for all others."""
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


def _grid(
    top: float, shown: Callable[[float], str], bottom: float = 0.0, width: float = WIDTH
) -> str:
    parts = []
    for index in range(GRID_LINES + 1):
        value = bottom + (top - bottom) * index / GRID_LINES
        y = _up(value - bottom, top - bottom)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{_n(width - RIGHT)}" y1="{_n(y)}" y2="{_n(y)}"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, shown(value), "end"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text class="axis" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _n(value: float) -> str:
    """A coordinate: one decimal is finer than a pixel, and `12.0` is `12`."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def _describe_lines(lines: Sequence[ChartLine], x_name: str, y_name: str) -> str:
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


def svg(  # noqa: PLR0913
    title: str,
    description: str,
    width: float,
    height: float,
    body: Sequence[str],
    kind: str = "chart",
    scale: float = 1.0,
    role: str = "img",
) -> Markup:
    """A picture with its title and description; `kind` is its class. `role`: "group" where it has
    links."""
    # Ids must differ between the charts of one page and must not differ between two renderings of
    # the same chart.
    key = hashlib.sha256(f"{title} {width:g}".encode()).hexdigest()[:8]
    return Markup(
        f'<svg class="{kind}" role="{role}" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width * scale)}" height="{_n(height * scale)}" '
        f'aria-labelledby="t{key} d{key}"><title id="t{key}">{escape(title)}</title>'
        f'<desc id="d{key}">{escape(description)}</desc>{"".join(body)}</svg>'
    )
