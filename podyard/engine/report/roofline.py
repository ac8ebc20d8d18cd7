"""The roofline plot of a device: flops per byte of HBM against flops per second, both on a
logarithmic scale."""

from __future__ import annotations

import dataclasses
import html
import math

from podyard.engine.report.summary import Report, count_text, percent, time_text
from podyard.engine.timing.estimate import OpEstimate
from podyard.hardware.accelerator_types import parse

# Beyond this many, the smallest operations are left out.
POINTS_MAX = 1000
_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 18, 24, 50


@dataclasses.dataclass(frozen=True, slots=True)
class Roof:
    """The most that one device can do: bf16 flops per second on its matrix units, bytes per second
    from its HBM."""

    flops_per_second: float
    hbm_bytes_per_second: float

    @property
    def ridge(self) -> float:
        """Flops per byte from which on the matrix units are the limit."""
        return self.flops_per_second / self.hbm_bytes_per_second

    def at(self, flops_per_byte: float) -> float:
        """Flops per second."""
        return min(self.flops_per_second, flops_per_byte * self.hbm_bytes_per_second)


@dataclasses.dataclass(frozen=True, slots=True)
class RooflinePoint:
    """An operation, in flops per byte and flops per second."""

    op: OpEstimate
    flops_per_byte: float
    flops_per_second: float
    share: float


def roof_of(accelerator_type: str) -> Roof:
    """The roof of a core on v2 and v3, of a chip from v4 on. Raises INVALID_ARGUMENT for what is
    not a type's name."""
    generation = parse(accelerator_type).generation
    devices = generation.devices_per_chip
    return Roof(
        generation.peak_bf16_flops_per_second / devices, generation.hbm_bytes_per_second / devices
    )


def points(report: Report) -> tuple[RooflinePoint, ...]:
    """The operations that have flops, bytes and time, the longest first; the others have no place
    in a roofline."""
    return tuple(
        RooflinePoint(
            op, op.flops / op.bytes, op.flops / report.seconds_of(op), report.share_of(op)
        )
        for op in report.by_cycles
        if op.flops > 0 and op.bytes > 0 and op.cycles > 0
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Scale:
    """Whole decades from 10^low to 10^high between two pixels."""

    low: int
    high: int
    first_pixel: float
    last_pixel: float

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first_pixel + part * (self.last_pixel - self.first_pixel)


def svg(report: Report) -> str:
    """The plot, a dot per operation with its name as title; how many were left out is said below
    it."""
    roof = roof_of(report.estimate.accelerator_type)
    all_points = points(report)
    shown = all_points[:POINTS_MAX]
    x_values = [roof.ridge / 10, roof.ridge * 10, *(point.flops_per_byte for point in shown)]
    lowest = roof.at(min(x_values))
    y_values = [lowest, roof.flops_per_second * 1.5, *(point.flops_per_second for point in shown)]
    x = _scale(x_values, _LEFT, _WIDTH - _RIGHT)
    y = _scale(y_values, _HEIGHT - _BOTTOM, _TOP)
    left_out = len(report.estimate.ops) - len(shown)
    note = (
        f'<p class="hint">Not in the plot, without flops or HBM bytes, or too many: {left_out}.</p>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Roofline: one dot '
        'per operation">'
        f"{_grid(x, y)}{_roof_lines(roof, x, y)}"
        f"{''.join(_dot(report, point, x, y) for point in reversed(shown))}</svg>"
        f"{note if left_out else ''}"
    )


def _scale(values: list[float], first_pixel: float, last_pixel: float) -> _Scale:
    low = math.floor(math.log10(min(values)))
    return _Scale(low, max(low + 1, math.ceil(math.log10(max(values)))), first_pixel, last_pixel)


def _grid(x: _Scale, y: _Scale) -> str:
    parts = []
    for decade in range(x.low, x.high + 1):
        at = x(10.0**decade)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{_HEIGHT - _BOTTOM}"/>'
        )
        parts.append(_text(at, _HEIGHT - _BOTTOM + 17, _decade(decade), "middle"))
    for decade in range(y.low, y.high + 1):
        at = y(10.0**decade)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}"/>'
        )
        parts.append(_text(_LEFT - 8, at + 4, _decade(decade), "end"))
    parts.append(
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, "flops per byte of HBM", "middle")
    )
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    turned = f'transform="rotate(-90 16 {middle:.0f})"'
    parts.append(
        f'<text x="16" y="{middle:.0f}" text-anchor="middle" {turned}>flops per second</text>'
    )
    return "".join(parts)


def _roof_lines(roof: Roof, x: _Scale, y: _Scale) -> str:
    bottom = 10.0**y.low
    start = max(10.0**x.low, bottom / roof.hbm_bytes_per_second)
    corners = [
        (start, roof.at(start)),
        (roof.ridge, roof.flops_per_second),
        (10.0**x.high, roof.flops_per_second),
    ]
    path = " ".join(f"{x(flops_per_byte):.1f},{y(flops):.1f}" for flops_per_byte, flops in corners)
    ridge, top = x(roof.ridge), y(roof.flops_per_second)
    compute, bandwidth = count_text(roof.flops_per_second), count_text(roof.hbm_bytes_per_second)
    intensity = f"{roof.ridge:.0f}"
    return (
        f'<polyline class="roof" points="{path}"/>'
        f'<line class="ridge" x1="{ridge:.1f}" y1="{top:.1f}" x2="{ridge:.1f}" '
        f'y2="{_HEIGHT - _BOTTOM}"/>'
        f"{_text(_WIDTH - _RIGHT - 4, top - 8, f'{compute}flop/s', 'end')}"
        f"{_text(ridge - 6, _HEIGHT - _BOTTOM - 8, f'ridge: {intensity} flops per byte', 'end')}"
        f"{_text(ridge - 8, top - 8, f'HBM: {bandwidth}B/s', 'end')}"
    )


def _dot(report: Report, point: RooflinePoint, x: _Scale, y: _Scale) -> str:
    op = point.op
    title = html.escape(
        f"{op.name}: {time_text(report.seconds_of(op))}, {percent(point.share)} of the cycles, "
        f"{op.bound}; "
        f"{point.flops_per_byte:.3g} flops per byte, {count_text(point.flops_per_second)}flop/s"
    )
    radius = 3.5 + 12 * math.sqrt(point.share)
    return (
        f'<circle class="b-{op.bound}" cx="{x(point.flops_per_byte):.1f}" '
        f'cy="{y(point.flops_per_second):.1f}" '
        f'r="{radius:.1f}"><title>{title}</title></circle>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _decade(decade: int) -> str:
    """`100 G` for 11; below one as a decimal."""
    return (
        f"{10.0**decade:g}"
        if decade < 3
        else count_text(10.0**decade).replace(".00", "").replace(".0", "")
    )
