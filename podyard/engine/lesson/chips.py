"""Chips of two generations next to each other, drawn to one scale, and the figures of all
generations with sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from podyard.base.errors import invalid
from podyard.engine.lesson.picture import Picture, figure, rect, svg, table, text
from podyard.hardware.generation import GIB, Generation
from podyard.hardware.generations import GENERATIONS

_WIDTH, _HEIGHT = 420, 330
_CHIP_X, _CHIP_Y, _CHIP_WIDTH, _CHIP_HEIGHT = 62, 40, 296, 250
_CELL_PER_EDGE = 0.22  # pixels of one cell of a matrix unit: an edge of 256 cells is 56 pixels
_MXU_GAP = 6
_MEMORY_CELL_GIB = 8  # one box of the memory's drawing
_MEMORY_BOX = 19
_BAND_PER_GB = 26 / 2765  # pixels of the road to the memory: the widest one, v5p's, is 26

_BAR_LEFT, _BAR_WIDTH, _BAR_ROW = 42, 190, 25


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """`value_of` in `unit`; None where the generation has none."""

    name: str
    unit: str
    field: str
    value_of: Callable[[Generation], float | None]


def _peak(generation: Generation) -> float | None:
    return generation.peak_bf16_flops_per_second / 1e12 or None


MEASURES: tuple[Measure, ...] = (
    Measure("Peak, bfloat16", "TFLOPS", "peak_bf16_flops_per_second", _peak),
    Measure("Memory", "GiB", "hbm_bytes", lambda one: one.hbm_bytes / GIB),
    Measure("Memory bandwidth", "GB/s", "hbm_bytes_per_second",
        lambda one: one.hbm_bytes_per_second / 1e9),
    Measure(
        "One link, one direction", "GB/s", "ici_link_bytes_per_second",
        lambda one: one.ici_link_bytes_per_second / 1e9 or None,
    ),
)  # fmt: skip


def generation_called(name: str) -> Generation:
    """Raises PodyardError INVALID_ARGUMENT for a generation that does not exist."""
    if name not in GENERATIONS:
        raise invalid(f'unknown generation "{name}": use {", ".join(GENERATIONS)}', "generation")
    return GENERATIONS[name]


def chips(first: str = "v2", second: str = "v3") -> Picture:
    """Two chips to one scale, their figures and the ratio, and a bar for every generation.

    Raises PodyardError INVALID_ARGUMENT for a generation that does not exist.
    """
    pair = [generation_called(name) for name in (first, second)]
    drawn = "".join(
        figure(
            f"TPU {one.name}: {cores_text(one)}",
            svg(f"A TPU {one.name} chip", chip_text(one), _WIDTH, _HEIGHT, chip(one)),
        )
        for one in pair
    )
    bars = "".join(_bars(measure, (first, second)) for measure in MEASURES)
    body = (
        f'<div class="lesson-pair">{drawn}</div>{_ratios(*pair)}<div '
        f'class="lesson-bars">{bars}</div>'
        '<p class="lesson-note">Figures are of one chip. TPU v1 has 8-bit integers only, so '
        "its peak of "
        f"{(GENERATIONS['v1'].peak_int8_ops_per_second or 0) / 1e12:g} TOPS is not among the bars "
        "for bfloat16.</p>"
    )
    return Picture(f"TPU {first} and TPU {second}", f'<div class="lesson">{body}</div>')


def sources(name: str) -> Picture:
    """The figures of a generation that have a source, with it. Raises PodyardError
    INVALID_ARGUMENT."""
    one = generation_called(name)
    clock = f"{one.clock_hz / 1e6:g} MHz"
    values: list[tuple[str, str, str]] = [
        ("Cores on a chip", f"{one.cores_per_chip}", "cores_per_chip"),
        ("Matrix units in a core", f"{one.mxu_count_per_core}", "mxu_count_per_core"),
        ("Size of a matrix unit", f"{one.mxu_rows} x {one.mxu_columns}", "mxu_rows"),
        ("Clock", clock, "clock_hz"),
    ]
    for measure in MEASURES:
        value = measure.value_of(one)
        values.append(
            (measure.name, "none" if value is None else f"{value:g} {measure.unit}", measure.field)
        )
    if one.peak_int8_ops_per_second:
        values.append(
            (
                "Peak, 8-bit integers",
                f"{one.peak_int8_ops_per_second / 1e12:g} TOPS",
                "peak_int8_ops_per_second",
            )
        )
    values += [
        ("Links of a chip", f"{one.ici_links_per_chip}", "ici_links_per_chip"),
        ("Largest pod", " x ".join(map(str, one.pod_shape)) + " chips", "pod_shape"),
    ]
    rows = [
        (label, value, one.sources[field]) for label, value, field in values if field in one.sources
    ]
    peak = (
        2
        * one.mxu_rows
        * one.mxu_columns
        * one.mxu_count_per_core
        * one.cores_per_chip
        * one.clock_hz
    )
    note = (
        f"2 operations x {one.mxu_rows} x {one.mxu_columns} cells x "
        f"{one.mxu_count_per_core * one.cores_per_chip} "
        f"matrix units x {clock} = {peak / 1e12:.1f} T operations a second."
    )
    body = table(f"TPU {name}: figures and sources", ("Figure", "Value", "Source"), rows)
    return Picture(
        f"Sources of TPU {name}",
        f'<div class="lesson">{body}<p class="lesson-note">{note}</p></div>',
    )


def cores_text(one: Generation) -> str:
    """Return what computes on a chip, in words."""
    cores = f"{one.cores_per_chip} core" + ("s" if one.cores_per_chip > 1 else "")
    units = one.mxu_count_per_core
    each = " each" if one.cores_per_chip > 1 else ""
    arrays = f"{units} matrix unit" + ("s" if units > 1 else "")
    return f"{cores} with {arrays} of {one.mxu_rows} x {one.mxu_columns}{each}"


def chip_text(one: Generation) -> str:
    """The drawing in words."""
    links = (
        f"{one.ici_links_per_chip} links of {one.ici_link_bytes_per_second / 1e9:g} GB/s"
        if one.ici_links_per_chip
        else "no links"
    )
    memory = (
        f"{one.hbm_bytes / GIB:g} GiB of {memory_word(one)} at "
        f"{one.hbm_bytes_per_second / 1e9:g} GB/s"
    )
    return f"{cores_text(one)}; {memory}; {links}."


def memory_word(one: Generation) -> str:
    return "HBM" if one.ici_links_per_chip else "DDR3"


def chip(one: Generation) -> list[str]:
    """Cores above, memory below, links at the edges: lengths of matrix units, memory and bandwidth
    are to scale."""
    parts = [rect(_CHIP_X, _CHIP_Y, _CHIP_WIDTH, _CHIP_HEIGHT, "chip", 14), *_links(one)]
    gap, inner = 10, _CHIP_WIDTH - 32
    width = (inner - gap * (one.cores_per_chip - 1)) / one.cores_per_chip
    for core in range(one.cores_per_chip):
        x = _CHIP_X + 16 + core * (width + gap)
        parts += [
            rect(x, _CHIP_Y + 14, width, 122, "core", 9),
            text(x + 10, _CHIP_Y + 32, f"core {core}", "small"),
        ]
        parts += _units(one, x, width)
    middle = _CHIP_X + _CHIP_WIDTH / 2
    band = max(1.5, one.hbm_bytes_per_second / 1e9 * _BAND_PER_GB)
    parts.append(rect(middle - band / 2, _CHIP_Y + 136, band, 36, "band", 0))
    parts.append(
        text(
            middle + band / 2 + 8,
            _CHIP_Y + 159,
            f"{one.hbm_bytes_per_second / 1e9:g} GB/s",
            "label",
        )
    )
    parts += _memory(one)
    return parts


def _units(one: Generation, x: float, width: float) -> list[str]:
    """The matrix units of a core, as squares."""
    edge = one.mxu_rows * _CELL_PER_EDGE
    columns = 2 if one.mxu_count_per_core == 4 and edge < 40 else one.mxu_count_per_core
    rows = -(-one.mxu_count_per_core // columns)
    left = x + (width - columns * edge - (columns - 1) * _MXU_GAP) / 2
    top = _CHIP_Y + 84 - (rows * edge + (rows - 1) * _MXU_GAP) / 2
    step = edge + _MXU_GAP
    parts = []
    for index in range(one.mxu_count_per_core):
        at_x, at_y = left + index % columns * step, top + index // columns * step
        parts.append(rect(at_x, at_y, edge, edge, "unit", 3))
        lines = "".join(
            f"M{at_x + edge * part / 4:.1f} {at_y:.1f}v{edge:.1f}M{at_x:.1f} "
            f"{at_y + edge * part / 4:.1f}h{edge:.1f}"
            for part in (1, 2, 3)
        )
        parts.append(f'<path class="unit-grid" d="{lines}"/>')
    return parts


def _memory(one: Generation) -> list[str]:
    """A box for each 8 GiB; the last one is narrower where they do not come out even."""
    gibs = one.hbm_bytes / GIB
    boxes = gibs / _MEMORY_CELL_GIB
    total = boxes * _MEMORY_BOX
    left = _CHIP_X + (_CHIP_WIDTH - total) / 2
    y = _CHIP_Y + 172
    parts = []
    for index in range(-int(-boxes // 1)):
        width = min(1.0, boxes - index) * _MEMORY_BOX - 3
        parts.append(rect(left + index * _MEMORY_BOX + 1.5, y, width, 34, "memory", 3))
    name = f"{gibs:g} GiB {memory_word(one)}"
    return [*parts, text(_CHIP_X + _CHIP_WIDTH / 2, y + 56, name, "label", "middle")]


def _links(one: Generation) -> list[str]:
    left, right = _CHIP_X, _CHIP_X + _CHIP_WIDTH
    top, bottom = _CHIP_Y, _CHIP_Y + _CHIP_HEIGHT
    middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
    if not one.ici_links_per_chip:
        return [text(middle_x, bottom + 24, "no links to other chips", "small", "middle")]
    ends = [
        (left, middle_y, -34, 0), (right, middle_y, 34, 0), (middle_x, top, 0, -26),
        (middle_x, bottom, 0, 26),
        (right - 4, top + 4, 26, -26), (left + 4, bottom - 4, -26, 26),
    ]  # fmt: skip
    parts = [_arrow(x, y, dx, dy) for x, y, dx, dy in ends[: one.ici_links_per_chip]]
    rate = f"{one.ici_links_per_chip} links, {one.ici_link_bytes_per_second / 1e9:g} GB/s each way"
    return [*parts, text(middle_x + 16, bottom + 22, rate, "small")]


def _arrow(x: float, y: float, dx: float, dy: float) -> str:
    """A line with a head at both ends."""
    length = max(abs(dx), abs(dy))
    ux, uy = dx / length * 6, dy / length * 6
    heads = "".join(
        f"M{at_x - way * (ux - uy * 0.7):.1f} "
        f"{at_y - way * (uy + ux * 0.7):.1f}L{at_x:.1f} {at_y:.1f}"
        f"L{at_x - way * (ux + uy * 0.7):.1f} {at_y - way * (uy - ux * 0.7):.1f}"
        for at_x, at_y, way in ((x + dx, y + dy, 1), (x + ux * 0.4, y + uy * 0.4, -1))
    )
    return f'<path class="wire" d="M{x:.1f} {y:.1f}l{dx:.1f} {dy:.1f}{heads}"/>'


def _bars(measure: Measure, chosen: Sequence[str]) -> str:
    values = {name: measure.value_of(one) for name, one in GENERATIONS.items()}
    top = max(value for value in values.values() if value is not None)
    parts, words = [], []
    for row, (name, value) in enumerate(values.items()):
        y = row * _BAR_ROW
        kind = "bar a" if name == chosen[0] else "bar b" if name == chosen[1] else "bar"
        shown = "none" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:g}"
        width = 0.0 if value is None else value / top * _BAR_WIDTH
        parts += [
            text(_BAR_LEFT - 8, y + 16, name, "label" if name in chosen else "small", "end"),
            rect(_BAR_LEFT, y + 3, width, 17, kind, 3),
            text(_BAR_LEFT + width + 6, y + 16, shown, "label" if name in chosen else "small"),
        ]
        words.append(f"{name} {shown}")
    label = f"{measure.name}, {measure.unit}"
    height = len(values) * _BAR_ROW
    return figure(label, svg(label, ", ".join(words), _BAR_LEFT + _BAR_WIDTH + 54, height, parts))


def _ratios(first: Generation, second: Generation) -> str:
    rows = []
    for measure in MEASURES:
        one, other = measure.value_of(first), measure.value_of(second)
        ratio = f"{other / one:.2g} times" if one and other else "cannot be compared"
        rows.append(
            (
                measure.name,
                *(
                    "none" if value is None else f"{value:g} {measure.unit}"
                    for value in (one, other)
                ),
                ratio,
            )
        )
    intensity = [(_peak(one) or 0) * 1e12 / one.hbm_bytes_per_second for one in (first, second)]
    if all(intensity):
        rows.append(
            (
                "Operations per byte of memory",
                *(f"{value:.0f}" for value in intensity),
                f"{intensity[1] / intensity[0]:.2g} times",
            )
        )
    caption = f"TPU {second.name} against TPU {first.name}"
    return table(caption, ("Of one chip", f"TPU {first.name}", f"TPU {second.name}", "Ratio"), rows)
