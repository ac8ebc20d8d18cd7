"""A Cloud TPU device as it was sold, next to its four chips: why 4 x 123 TFLOPS were sold as 420.

Two families of figures are public, each consistent in itself. The device's are those of Google's
product page and announcements (2017 and 2018); the chip's are those of the documentation, in the
data files of the generations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.errors import invalid
from podyard.engine.lesson.picture import Picture, figure, rect, svg, table, text
from podyard.hardware.accelerator_types import AcceleratorType, parse
from podyard.hardware.generation import GIB

_PRODUCT_PAGE = (
    "cloud.google.com/tpu, product page of 2018 to 2022, as others quote it; the page "
    "itself is gone"
)


@dataclasses.dataclass(frozen=True, slots=True)
class SoldDevice:
    """Figures of a device of four chips as the product page had them, and those of a whole pod.
    `clock_note`: what is known of the clock that the peak implies."""

    teraflops: int
    memory_gb: int
    pod_devices: int
    pod_text: str
    source: str
    clock_note: str

    def clock_hz(self, kind: AcceleratorType) -> float:
        """The clock at which all matrix units of the device reach the peak that was sold."""
        one = kind.generation
        cells = one.mxu_rows * one.mxu_columns * one.mxu_count_per_core * kind.core_count
        return self.teraflops * 1e12 / (2 * cells)


SOLD: Mapping[str, SoldDevice] = {
    "v2-8": SoldDevice(
        teraflops=180,
        memory_gb=64,
        pod_devices=64,
        pod_text="11.5 petaflops",
        source=_PRODUCT_PAGE + "; 180 TFLOPS and 64 GB also at anandtech.com/show/12429 (2018)",
        clock_note=(
            "Both are one clock, rounded: a chip has 45.9 TFLOPS at 700 MHz, sold as 45, "
            "documented as 46."
        ),
    ),
    "v3-8": SoldDevice(
        teraflops=420,
        memory_gb=128,
        pod_devices=256,
        pod_text="100+ petaflops",
        source=_PRODUCT_PAGE,
        clock_note=(
            "The chip's figure came later and belongs to a clock of 940 MHz, which the TPU "
            "compiler's cost model "
            "confirms (936.9 MHz). Why the device was sold with less is not published; a lower "
            "clock at the time of "
            "the announcement fits the numbers."
        ),
    ),
}

_WIDTH = 368


def device(accelerator_type: str = "v3-8") -> Picture:
    """The device as sold, and its chips. Raises PodyardError INVALID_ARGUMENT for other types than
    v2-8 and v3-8."""
    if accelerator_type not in SOLD:
        raise invalid(
            f'"{accelerator_type}" was not sold as a device: use {" or ".join(SOLD)}', "type"
        )
    kind, sold = parse(accelerator_type), SOLD[accelerator_type]
    name = f"{accelerator_type}: one board, {kind.chip_count} chips, {kind.core_count} cores"
    left = figure(name, _board(kind))
    right = figure("Four chips, and the device as sold", _comparison(kind, sold))
    body = (
        f'<div class="lesson-pair">{left}{right}</div>{_reasons(kind, sold)}{_sources(kind, sold)}'
    )
    return Picture(f"The device {accelerator_type} as sold", f'<div class="lesson">{body}</div>')


def _chip_teraflops(kind: AcceleratorType) -> float:
    return kind.generation.peak_bf16_flops_per_second / 1e12


def _board(kind: AcceleratorType) -> str:
    one = kind.generation
    parts = [rect(4, 4, 360, 250, "board", 16)]
    size, gap = 132, 40
    left, top = (_WIDTH - 2 * size - gap) / 2, 22
    height = 92
    step_x, step_y = size + gap, height + 32
    for row in range(2):
        y = top + row * step_y + height / 2
        parts.append(f'<path class="wire" d="M{left + size:g} {y:g}h{gap}"/>')
    for column in range(2):
        x = left + column * step_x + size / 2
        parts.append(f'<path class="wire" d="M{x:g} {top + height}v32"/>')
    for index in range(kind.chip_count):
        x, y = left + index % 2 * step_x, top + index // 2 * step_y
        parts.append(rect(x, y, size, height, "chip", 10))
        for core in range(one.cores_per_chip):
            core_x = x + 8 + core * 60
            parts.append(rect(core_x, y + 8, 56, 34, "core", 6))
            for unit in range(one.mxu_count_per_core):
                at = core_x + 28 - (one.mxu_count_per_core * 20 - 4) / 2 + unit * 20
                parts.append(rect(at, y + 17, 16, 16, "unit", 2))
        parts.append(
            text(x + size / 2, y + 62, f"{_chip_teraflops(kind):g} TFLOPS", "label", "middle")
        )
        parts.append(
            text(x + size / 2, y + 80, f"{one.hbm_bytes / GIB:g} GiB HBM", "small", "middle")
        )
    told = (
        f"{kind.chip_count} chips of {_chip_teraflops(kind):g} TFLOPS and "
        f"{one.hbm_bytes / GIB:g} GiB"
    )
    return svg("The board", f"{told}, linked in a square", _WIDTH, 270, parts)


def _comparison(kind: AcceleratorType, sold: SoldDevice) -> str:
    """Bars of what four chips add up to and of what was sold, for arithmetic, clock and memory."""
    one, chips = kind.generation, kind.chip_count
    total, gib = chips * _chip_teraflops(kind), one.hbm_bytes / GIB
    groups = [
        ("Peak, TFLOPS", f"{chips} x {_chip_teraflops(kind):g}", total, sold.teraflops),
        ("Clock, MHz, that gives this peak", "chip", one.clock_hz / 1e6, sold.clock_hz(kind) / 1e6),
        ("Memory, GB as sold, GiB in truth", f"{chips} x {gib:g}", chips * gib, sold.memory_gb),
    ]  # fmt: skip
    parts, words = [], []
    for index, (name, label, chip_value, sold_value) in enumerate(groups):
        y = index * 86
        parts.append(text(4, y + 16, name, "small"))
        for row, (who, value, kind_class) in enumerate(
            ((label, chip_value, "bar a"), ("sold", sold_value, "bar b"))
        ):
            top = y + 24 + row * 26
            width = 200 * value / max(chip_value, sold_value)
            parts += [
                text(72, top + 15, who, "label", "end"),
                rect(80, top, width, 20, kind_class, 4),
                text(86 + width, top + 15, f"{value:.3g}", "label"),
            ]
        words.append(f"{name}: {label} {chip_value:.3g}, sold {sold_value:.3g}")
    return svg("Chips and device", "; ".join(words), _WIDTH, 262, parts)


def _reasons(kind: AcceleratorType, sold: SoldDevice) -> str:
    one, chips = kind.generation, kind.chip_count
    peak, of_chip, gib = _chip_teraflops(kind), sold.teraflops / chips, one.hbm_bytes / GIB
    units = one.mxu_count_per_core * one.cores_per_chip
    per_cycle = 2 * one.mxu_rows * one.mxu_columns * units
    pod, pod_chips = sold.pod_devices, sold.pod_devices * chips
    lines = [
        (
            f"{chips} x {peak:g} = {chips * peak:g} TFLOPS, but the device was sold with "
            f"{sold.teraflops}: "
            f"{of_chip:g} for each chip."
        ),
        (
            f"A chip has {units} matrix units of {one.mxu_rows} x {one.mxu_columns} cells. Each "
            "cell multiplies and "
            f"adds once in a cycle: 2 x {one.mxu_rows} x {one.mxu_columns} x {units} = "
            f"{per_cycle:,} operations."
        ),
        (
            f"At {one.clock_hz / 1e6:g} MHz these are "
            f"{per_cycle * one.clock_hz / 1e12:.1f} TFLOPS. "
            f"For {of_chip:g} TFLOPS the clock is {sold.clock_hz(kind) / 1e6:.0f} MHz."
        ),
        sold.clock_note,
        (
            f"Each family of figures agrees with itself. A pod of {pod} devices was sold with "
            f"{sold.pod_text}: "
            f"{pod} x {sold.teraflops} TFLOPS = {pod * sold.teraflops / 1000:.1f} petaflops. "
            f"Its {pod_chips} chips of {peak:g} TFLOPS are {pod_chips * peak / 1000:.1f} petaflops."
        ),
        (
            f"The {sold.memory_gb} GB are {chips} x {gib:g} GiB, written as GB. A program on one "
            "core can use "
            f"{one.hbm_usable_bytes_per_device / GIB:.2f} GiB of its "
            f"{gib / one.cores_per_chip:g} GiB."
        ),
    ]
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ol class="lesson-reasons">{items}</ol>'


def _sources(kind: AcceleratorType, sold: SoldDevice) -> str:
    one = kind.generation
    rows = [
        ("Peak of the device", f"{sold.teraflops} TFLOPS", sold.source),
        ("Memory of the device", f"{sold.memory_gb} GB", sold.source),
        ("Peak of a chip", f"{_chip_teraflops(kind):g} TFLOPS",
            one.sources["peak_bf16_flops_per_second"]),
        ("Memory of a chip", f"{one.hbm_bytes / GIB:g} GiB", one.sources["hbm_bytes"]),
        ("Memory that a program can use",
            f"{one.hbm_usable_bytes_per_device / GIB:.2f} GiB per core",
         one.sources["hbm_usable_bytes_per_device"]),
        ("Clock", f"{one.clock_hz / 1e6:g} MHz", one.sources["clock_hz"]),
    ]  # fmt: skip
    return table("Figures and sources", ("Figure", "Value", "Source"), rows)
