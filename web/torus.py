"""The picture of a pod: each chip a square, the slices in colours. Pure: bit sets in, SVG out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape
from podyard.hardware.torus import coordinate_of, full_mask
from podyard.web.charts import svg
from podyard.web.formats import count

CELL, CELL_GAP, LAYER_GAP = 14, 2, 16
LAYERS_PER_ROW = 8
WIDTH = 448.0  # pixels that a small pod is drawn up to; a larger one has its natural size
CHIPS_DRAWN_MAX = 8960  # a v5p pod; beyond, only the numbers next to the picture are shown
CHIPS_APART_MAX = 512  # in a larger pod, neighbours of one slice are drawn as one bar: else the page is too long
COLOURS = 5  # that can be told apart, also from grey; with more slices they come round again, and the letters differ


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Chips that are shown alike. `kind`: own, held, other, broken, or s1 to s5; `label`: letters on the first chip."""

    kind: str
    name: str
    chips: int
    label: str = ""


def colour_of(index: int) -> str:
    return f"s{index % COLOURS + 1}"


def pod_picture(pod_id: str, shape: Shape, parts: Sequence[Part]) -> Markup:
    """A pod as a grid of chips; a third dimension is drawn as layers side by side, each with the lines of its cubes."""
    columns, rows, layers = (*shape, 1)[:3]
    size_x, size_y = columns * CELL, rows * CELL
    per_row = min(layers, LAYERS_PER_ROW)
    width = per_row * (size_x + LAYER_GAP) - LAYER_GAP
    height = math.ceil(layers / per_row) * (size_y + LAYER_GAP) - LAYER_GAP
    total = columns * rows * layers
    taken = 0
    for part in parts:
        taken |= part.chips
    body = []
    for layer in range(layers):
        x, y = layer % per_row * (size_x + LAYER_GAP), layer // per_row * (size_y + LAYER_GAP)
        body.append(f'<rect class="chip-ground" x="{x}" y="{y}" width="{size_x}" height="{size_y}" rx="3"/>')
    if total <= CHIPS_DRAWN_MAX:
        apart = total <= CHIPS_APART_MAX
        free = Part("free", "", full_mask(shape) & ~taken)
        for part in (free, *parts):
            body.append(_squares(shape, part, apart, per_row))
        body.append(_cubes(shape, per_row))
        body += [_letter(shape, part, per_row) for part in parts if part.label and part.chips]
    scale = max(1.0, min(2.0, WIDTH / width))
    return svg(f"Pod {pod_id}", _description(parts, total), width, height, body, kind="pod", scale=scale)


def _description(parts: Sequence[Part], total: int) -> str:
    held = sum(part.chips.bit_count() for part in parts if part.kind != "broken")
    broken = sum(part.chips.bit_count() for part in parts if part.kind == "broken")
    names = [f"{count(part.chips.bit_count(), 'chip')} by {part.name}" for part in parts if part.name and part.chips]
    text = f"{held:,} of {count(total, 'chip')} are held" + (f", {', '.join(names)}" if names else "")
    return text + (f"; {count(broken, 'chip')} broken" if broken else "")


def _squares(shape: Shape, part: Part, apart: bool, per_row: int) -> str:
    path = []
    for first, length in _runs(shape, part.chips, apart):
        x, y = _cell(shape, first, per_row)
        wide, side = length * CELL - CELL_GAP, CELL - CELL_GAP
        path.append(f"M{x + 1} {y + 1}h{wide}v{side}h-{wide}z")
        if part.kind == "broken":
            path.append(f"m{2} {2}l{side - 4} {side - 4}m0-{side - 4}l-{side - 4} {side - 4}")
    return f'<path class="chip-{part.kind}" d="{"".join(path)}"/>' if path else ""


def _runs(shape: Shape, chips: int, apart: bool) -> Iterator[tuple[int, int]]:
    """(first chip, how many in a row along the first dimension)."""
    columns = shape[0]
    for row in range(math.prod(shape) // columns):
        line = chips >> row * columns & (1 << columns) - 1
        column = 0
        while line >> column:
            column += (line >> column & -(line >> column)).bit_length() - 1
            length = 1
            while not apart and line >> column + length & 1:
                length += 1
            yield row * columns + column, length
            column += length


def _cubes(shape: Shape, per_row: int) -> str:
    """Lines around the cubes of a pod that has three dimensions."""
    if len(shape) < 3:
        return ""
    columns, rows, layers = shape
    path = []
    for layer in range(layers):
        x, y = _cell(shape, layer * columns * rows, per_row)
        path += [f"M{x + at * CELL} {y}v{rows * CELL}" for at in range(CUBE_EDGE_CHIPS, columns, CUBE_EDGE_CHIPS)]
        path += [f"M{x} {y + at * CELL}h{columns * CELL}" for at in range(CUBE_EDGE_CHIPS, rows, CUBE_EDGE_CHIPS)]
    return f'<path class="cube" d="{"".join(path)}"/>' if path else ""


def _letter(shape: Shape, part: Part, per_row: int) -> str:
    x, y = _cell(shape, (part.chips & -part.chips).bit_length() - 1, per_row)
    middle = CELL / 2
    return f'<text class="chip-name" x="{x + middle:g}" y="{y + middle + 3.5:g}">{escape(part.label)}</text>'


def _cell(shape: Shape, chip: int, per_row: int) -> tuple[int, int]:
    x, y, z = (*coordinate_of(shape, chip), 0)[:3]
    size_x, size_y = shape[0] * CELL, shape[1] * CELL
    return x * CELL + z % per_row * (size_x + LAYER_GAP), y * CELL + z // per_row * (size_y + LAYER_GAP)
