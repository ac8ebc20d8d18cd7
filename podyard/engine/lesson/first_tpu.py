"""The first TPU under its roofline, with other memory; and the Edge TPU, as far as it is
published."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Mapping

from podyard.base.errors import invalid
from podyard.engine.lesson.picture import Picture, figure, rect, svg, table, text
from podyard.engine.timing.edge import EDGE_TPU, analyze_int8
from podyard.engine.timing.tpu_v1 import TPU_V1, TpuV1Machine
from podyard.engine.timing.tpu_v1_apps import APPLICATIONS, run, speedups

BANDWIDTH_FACTORS = (1.0, 2.0, 4.0, 8.0)  # those that the console offers
_FACTOR_MAX = 1000.0

# where the next application is too near
_LABEL_PLACES = {"LSTM0": ("end", 5), "MLP1": ("start", 16)}
_LIMITS = {"compute": "array", "link": "link"}

_WIDTH, _HEIGHT = 400, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 16, 44
_X_LOW, _X_HIGH = 1.0, 4.0  # decades of operations per byte of weights
_Y_LOW, _Y_HIGH = 0.0, 2.3  # decades of 10^12 operations a second


def first_tpu(bandwidth: float = 4.0) -> Picture:
    """Six published applications on a TPU v1, and on one whose weights come `bandwidth` times as
    fast.

    Raises PodyardError INVALID_ARGUMENT for a factor that is not above 0 and at most 1000.
    """
    if not 0 < bandwidth <= _FACTOR_MAX:
        raise invalid(
            f"bandwidth must be above 0 and at most {_FACTOR_MAX:g}, got {bandwidth:g}", "bandwidth"
        )
    machine = dataclasses.replace(
        TPU_V1, weight_bytes_per_second=TPU_V1.weight_bytes_per_second * bandwidth
    )
    factors = speedups(machine)
    rates = {name: (run(name).tops, run(name, machine).tops) for name in APPLICATIONS}
    roof = figure("Roofline: what memory allows", _roofline(machine, rates))
    bars = figure(
        f"How many times as fast with {bandwidth:g} x the bandwidth", _bars(factors.each, bandwidth)
    )
    rows = [
        (
            name, known.layers, f"{known.macs_per_weight:,}", f"{known.tops:g}",
            f"{rates[name][0]:.1f}", f"{rates[name][1]:.1f}", f"{factors.each[name]:.1f} times",
        )
        for name, known in APPLICATIONS.items()
    ]  # fmt: skip
    head = (
        "Application",
        "Layers",
        "Products per weight",
        "TOPS, published",
        "TOPS, model",
        f"TOPS, {bandwidth:g} x",
        "Gain",
    )
    mean = (
        f"{factors.weighted_mean:.1f} times on average, weighted by the share of Google's work "
        "(unverified); "
        f"{factors.geometric_mean:.1f} times in the geometric mean."
    )
    body = (
        f'<p class="lesson-lead">An array of {TPU_V1.array} x {TPU_V1.array} cells for '
        "8-bit integers, "
        f"{TPU_V1.peak_ops_per_second / 1e12:.0f} TOPS at its peak, and "
        f"{TPU_V1.weight_bytes_per_second / 1e9:g} GB/s "
        f"for weights. With {bandwidth:g} x the bandwidth: {html.escape(mean)}</p>"
        f'<div class="lesson-pair">{roof}{bars}</div>'
        f"{table('Six applications of the first TPU', head, rows)}"
        '<p class="lesson-note">Left of the ridge an application waits for weights: more '
        "bandwidth makes it faster. "
        "The convolutional ones use each weight often enough to be right of it, and gain little. "
        "Published: GDDR5 "
        "memory would triple the achieved TOPS (abstract of arXiv 1704.04760); what is "
        "published of single "
        "applications (tables 1 and 3 of the paper) is unverified. The model runs each as a "
        "program of five "
        "instructions.</p>"
    )
    return Picture(
        f"TPU v1 with {bandwidth:g} x the bandwidth", f'<div class="lesson">{body}</div>'
    )


def _x(operations_per_byte: float) -> float:
    part = (math.log10(operations_per_byte) - _X_LOW) / (_X_HIGH - _X_LOW)
    return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)


def _y(tops: float) -> float:
    part = (math.log10(tops) - _Y_LOW) / (_Y_HIGH - _Y_LOW)
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)


def _roof_path(machine: TpuV1Machine) -> str:
    """Operations per byte of weights count products with additions once, as the paper does: two
    operations each."""
    peak, rate = machine.peak_ops_per_second / 1e12, 2 * machine.weight_bytes_per_second / 1e12
    ridge = min(max(peak / rate, 10**_X_LOW), 10**_X_HIGH)
    start = max(10**_X_LOW, 10**_Y_LOW / rate)
    corners = [
        (start, min(peak, start * rate)),
        (ridge, min(peak, ridge * rate)),
        (10**_X_HIGH, min(peak, 10**_X_HIGH * rate)),
    ]
    return " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in corners)


def _roofline(machine: TpuV1Machine, rates: dict[str, tuple[float, float]]) -> str:
    parts = []
    for decade in range(int(_X_LOW), int(_X_HIGH) + 1):
        at = _x(10.0**decade)
        parts.append(f'<path class="grid-line" d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(
            text(
                at,
                _HEIGHT - _BOTTOM + 17,
                f"{10**decade:,}",
                "small",
                "end" if decade == _X_HIGH else "middle",
            )
        )
    for tops in (1, 10, 100):
        parts.append(f'<path class="grid-line" d="M{_LEFT} {_y(tops):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(text(_LEFT - 6, _y(tops) + 4, f"{tops}", "small", "end"))
    parts.append(
        text((_LEFT + _WIDTH) / 2, _HEIGHT - 8, "products per byte of weights", "small", "middle")
    )
    parts.append(text(4, 12, "TOPS", "small"))
    parts.append(f'<polyline class="roof a" points="{_roof_path(TPU_V1)}"/>')
    parts.append(f'<polyline class="roof b" points="{_roof_path(machine)}"/>')
    words = []
    for name, (before, after) in rates.items():
        known = APPLICATIONS[name]
        at, low, high = _x(known.macs_per_weight), _y(before), _y(after)
        parts.append(f'<path class="gain" d="M{at:.1f} {low:.1f}V{high:.1f}"/>')
        parts.append(f'<circle class="dot a" cx="{at:.1f}" cy="{low:.1f}" r="5"/>')
        parts.append(f'<circle class="dot b" cx="{at:.1f}" cy="{high:.1f}" r="5"/>')
        side, down = _LABEL_PLACES.get(name, ("start", 5))
        parts.append(text(at + (-9 if side == "end" else 9), low + down, name, "small", side))
        words.append(f"{name} {before:.1f} TOPS, then {after:.1f}")
    return svg("Roofline of TPU v1", "; ".join(words), _WIDTH, _HEIGHT, parts)


def _bars(factors: Mapping[str, float], bandwidth: float) -> str:
    """A bar an application, with a line at the factor of the bandwidth."""
    left, full, row_height = 62, 240, 38
    top = max(*factors.values(), bandwidth, 1.0)
    parts, words = [], []
    for row, (name, factor) in enumerate(factors.items()):
        y = 22 + row * row_height
        width = full * factor / top
        parts += [
            text(left - 8, y + 17, name, "label", "end"),
            rect(left, y, width, 24, "bar b", 4),
        ]
        place = (
            (left + width - 8, "on", "end") if width > 60 else (left + width + 6, "label", "start")
        )
        parts.append(text(place[0], y + 17, f"{factor:.1f} x", *place[1:]))
        words.append(f"{name} {factor:.1f} times")
    height = 22 + row_height * len(factors)
    at = left + full * bandwidth / top
    parts.append(f'<path class="limit" d="M{at:.1f} 18V{height}"/>')
    parts.append(
        text(at, 12, f"bandwidth {bandwidth:g} x", "small", "end" if at > _WIDTH / 2 else "start")
    )
    return svg("Gain of each application", ", ".join(words), _WIDTH, height, parts)


def edge_tpu(
    macs: int = 300_000_000, weight_bytes: int = 4_000_000, activation_bytes: int = 150_000
) -> Picture:
    """Return what is published of the Edge TPU, and the least time of one inference. Raises
    INVALID_ARGUMENT."""
    estimate = analyze_int8(macs, weight_bytes, activation_bytes)
    facts = [
        (
            "Peak, 8-bit integers",
            f"{EDGE_TPU.peak_int8_ops_per_second / 1e12:g} TOPS",
            "peak_int8_ops_per_second",
        ),
        ("Power at the peak", f"{EDGE_TPU.watts:g} W", "watts"),
        ("Memory for weights", f"{EDGE_TPU.sram_bytes / 1e6:g} MB", "sram_bytes"),
        (
            "Link to the host",
            f"{EDGE_TPU.link_bytes_per_second / 1e6:g} MB/s",
            "link_bytes_per_second",
        ),
    ]
    rows = [(name, value, EDGE_TPU.sources[field]) for name, value, field in facts]
    parts, words = [], []
    longest = max(estimate.compute_seconds, estimate.link_seconds, 1e-9)
    for row, (name, seconds, kind) in enumerate(
        (("compute", estimate.compute_seconds, "bar a"), ("link", estimate.link_seconds, "bar b"))
    ):
        y, width = 6 + row * 32, 210 * seconds / longest
        shown = f"{seconds * 1e3:.3g} ms"
        parts += [text(76, y + 17, name, "label", "end"), rect(84, y, width, 24, kind, 4)]
        parts.append(text(90 + width, y + 17, shown, "label"))
        words.append(f"{name} {shown}")
    name = (
        f"{macs / 1e6:g} M products, {weight_bytes / 1e6:g} MB of weights, "
        f"{activation_bytes / 1e3:g} kB in and out"
    )
    picture = svg("Least time of one inference", ", ".join(words), 368, 72, parts)
    verdict = (
        f"At least {estimate.seconds * 1e3:.3g} ms, limited by the {_LIMITS[estimate.bound]}; "
        f"{estimate.streamed_weight_bytes / 1e6:g} MB of weights do not fit and are sent for "
        "each inference."
    )
    facts_table = table("Edge TPU", ("Figure", "Value", "Source"), rows)
    body = (
        f'<div class="lesson-pair">{figure(name, picture)}{facts_table}</div>'
        f'<p class="lesson-note">{verdict} The size of its array and its clock are not published, '
        "so there is no "
        "picture of it and no model of cycles. It is not a Cloud TPU.</p>"
    )
    return Picture("Edge TPU", f'<div class="lesson">{body}</div>')
