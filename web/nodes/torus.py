"""The picture of a pod: each chip a square, the slices in colours, and the links inside them. Pure:
bit sets in, SVG out.

Neighbours that are shown alike are one bar; a grid over all of it makes chips of bars, so that the
largest pod stays small on the page.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape
from podyard.hardware.torus import chips_of, coordinate_of, full_mask
from podyard.web.kit.charts import svg
from podyard.web.kit.formats import count

CELL = 14
LAYER_GAP = CELL  # so that one grid fits all layers
STUB = 5  # of a link that leads round to the other side
LAYERS_WIDTH_MAX = 1120  # pixels that the layers of one row have on a page of 1,280
WIDTH = 448.0  # pixels that a small pod is drawn up to; a larger one has its natural size
CHIPS_DRAWN_MAX = 8960  # a v5p pod; beyond, only the numbers next to the picture are shown
# They can be told apart, also from grey; with more slices they come round again, and the letters
# differ.
COLOURS = ("s1", "s2", "s3", "s4", "s5", "s7", "s8", "s9")


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Chips that are shown alike. `kind`: own, held, other, broken, or one of `COLOURS`; `label`:
    the letters of a slice; `url` and `title`: where a click leads, and what a pointer over it says;
    `wraps`: its links lead round to the other side of the slice, wherever it lies. None: no links
    are drawn."""

    kind: str
    name: str
    chips: int
    label: str = ""
    url: str = ""
    title: str = ""
    wraps: bool | None = None


def colour_of(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def pod_picture(pod_id: str, shape: Shape, parts: Sequence[Part]) -> Markup:
    """A pod as a grid of chips; a third dimension is drawn as layers side by side, each with the
    lines of its cubes."""
    columns, rows, layers = (*shape, 1)[:3]
    size_x, size_y = columns * CELL, rows * CELL
    per_row = max(1, min(layers, (LAYERS_WIDTH_MAX + LAYER_GAP) // (size_x + LAYER_GAP)))
    width = per_row * (size_x + LAYER_GAP) - LAYER_GAP
    height = math.ceil(layers / per_row) * (size_y + LAYER_GAP) - LAYER_GAP
    total = columns * rows * layers
    taken = 0
    for part in parts:
        taken |= part.chips
    body, overlay = [], []
    for layer in range(layers):
        x, y = layer % per_row * (size_x + LAYER_GAP), layer // per_row * (size_y + LAYER_GAP)
        place = f'x="{x}" y="{y}" width="{size_x}" height="{size_y}"'
        body.append(f'<rect class="chip-ground" {place} rx="3"/>')
        overlay.append(f'<rect {place} fill="url(#grid-{escape(pod_id)})" pointer-events="none"/>')
    if total <= CHIPS_DRAWN_MAX:
        free = Part("free", "", full_mask(shape) & ~taken)
        body += [_draw_part(shape, part, per_row) for part in (free, *parts) if part.chips]
        body += [_grid(pod_id), *overlay, _cubes(shape, per_row)]
        body += [_links(shape, part, per_row) for part in parts if part.chips]
        body += [_letters(shape, part, per_row) for part in parts if part.label and part.chips]
    scale = max(1.0, min(2.0, WIDTH / width))
    role = "group" if any(part.url for part in parts) else "img"
    return svg(
        f"Pod {pod_id}",
        _description(parts, total),
        width,
        height,
        body,
        kind="pod",
        scale=scale,
        role=role,
    )


def _description(parts: Sequence[Part], total: int) -> str:
    held = sum(part.chips.bit_count() for part in parts if part.kind != "broken")
    broken = sum(part.chips.bit_count() for part in parts if part.kind == "broken")
    names = [
        f"{count(part.chips.bit_count(), 'chip')} by {part.name}"
        for part in parts
        if part.name and part.chips
    ]
    text = f"{held:,} of {count(total, 'chip')} {'is' if held == 1 else 'are'} held" + (
        f", {', '.join(names)}" if names else ""
    )
    return text + (f"; {count(broken, 'chip')} broken" if broken else "")


def _draw_part(shape: Shape, part: Part, per_row: int) -> str:
    path = []
    for first, length in runs(shape, part.chips, 0):
        x, y = _cell(shape, first, per_row)
        path.append(f"M{x} {y}h{length * CELL}v{CELL}h-{length * CELL}z")
    if part.kind == "broken":
        for chip in chips_of(part.chips):
            x, y = _cell(shape, chip, per_row)
            path.append(
                f"M{x + 3} {y + 3}l{CELL - 6} {CELL - 6}m0-{CELL - 6}l-{CELL - 6} {CELL - 6}"
            )
    drawn = f'<path class="chip-{part.kind}" d="{"".join(path)}"/>'
    title = f"<title>{escape(part.title)}</title>" if part.title else ""
    # The table next to the picture has the same links for the keyboard.
    return (
        f'<a href="{escape(part.url)}" tabindex="-1">{title}{drawn}</a>'
        if part.url
        else f"<g>{title}{drawn}</g>"
    )


def runs(shape: Shape, chips: int, dimension: int) -> Iterator[tuple[int, int]]:
    """(first chip, how many) of the lines of neighbours along a dimension of the pod."""
    held, stride, extent = set(chips_of(chips)), math.prod(shape[:dimension]), shape[dimension]
    for chip in sorted(held):
        at = chip // stride % extent
        if at and chip - stride in held:
            continue
        length = 1
        while at + length < extent and chip + length * stride in held:
            length += 1
        yield chip, length


def _links(shape: Shape, part: Part, per_row: int) -> str:
    """Lines between neighbours of a layer. One that goes on beyond its last chip leads to the other
    side."""
    if part.wraps is None:
        return ""
    path = []
    for dimension, stroke in ((0, "h"), (1, "v")):
        stride, extent = math.prod(shape[:dimension]), shape[dimension]
        for first, length in runs(shape, part.chips, dimension):
            at = first // stride % extent
            end = first + (length - 1) * stride
            before = after = part.wraps and length > 1
            if length < extent:  # a slice that reaches over the end of the pod
                before = before or (
                    at == 0 and bool(part.chips >> first + (extent - 1) * stride & 1)
                )
                after = after or (
                    at + length == extent and bool(part.chips >> end - (extent - 1) * stride & 1)
                )
            if length == 1 and not before and not after:
                continue
            x, y = (edge + CELL // 2 for edge in _cell(shape, first, per_row))
            stub = CELL // 2 + STUB if before else 0
            x, y = (x - stub, y) if dimension == 0 else (x, y - stub)
            path.append(
                f"M{x} {y}{stroke}{stub + (length - 1) * CELL + (CELL // 2 + STUB if after else 0)}"
            )
    return f'<path class="link" d="{"".join(path)}" pointer-events="none"/>' if path else ""


def _grid(pod_id: str) -> str:
    lines = f'<path class="grid" d="M0 1h{CELL}M1 0v{CELL}"/>'
    size = f'width="{CELL}" height="{CELL}"'
    return (
        f'<defs><pattern id="grid-{escape(pod_id)}" {size} '
        f'patternUnits="userSpaceOnUse">{lines}</pattern></defs>'
    )


def _cubes(shape: Shape, per_row: int) -> str:
    """Lines around the cubes of a pod that has three dimensions."""
    if len(shape) < 3:
        return ""
    columns, rows, layers = shape
    path = []
    for layer in range(layers):
        x, y = _cell(shape, layer * columns * rows, per_row)
        path += [
            f"M{x + at * CELL} {y}v{rows * CELL}"
            for at in range(CUBE_EDGE_CHIPS, columns, CUBE_EDGE_CHIPS)
        ]
        path += [
            f"M{x} {y + at * CELL}h{columns * CELL}"
            for at in range(CUBE_EDGE_CHIPS, rows, CUBE_EDGE_CHIPS)
        ]
    return f'<path class="cube" d="{"".join(path)}" pointer-events="none"/>' if path else ""


def _letters(shape: Shape, part: Part, per_row: int) -> str:
    """The letter of a slice on each layer that it has chips of: in the middle of them where they
    are a box, else on the first."""
    of_layer = math.prod(shape[:2])
    layers = range(math.prod(shape[2:]))
    mask = (1 << of_layer) - 1
    on_layers = ((layer, part.chips >> layer * of_layer & mask) for layer in layers)
    return "".join(_letter(shape, part, layer, on, per_row) for layer, on in on_layers if on)


def _letter(shape: Shape, part: Part, layer: int, on_layer: int, per_row: int) -> str:
    first = layer * math.prod(shape[:2])
    cells = [_cell(shape, chip + first, per_row) for chip in chips_of(on_layer)]
    left, right = min(x for x, _ in cells), max(x for x, _ in cells) + CELL
    top, bottom = min(y for _, y in cells), max(y for _, y in cells) + CELL
    is_box = len(cells) * CELL * CELL == (right - left) * (bottom - top)
    x, y = (
        ((left + right) / 2, (top + bottom) / 2)
        if is_box
        else (cells[0][0] + CELL / 2, cells[0][1] + CELL / 2)
    )
    size = "large" if is_box and min(right - left, bottom - top) >= 4 * CELL else "small"
    place = f'x="{x:g}" y="{y + (8 if size == "large" else 3.5):g}"'
    return (
        f'<text class="chip-name {size}" {place} pointer-events="none">{escape(part.label)}</text>'
    )


def _cell(shape: Shape, chip: int, per_row: int) -> tuple[int, int]:
    x, y, z = (*coordinate_of(shape, chip), 0)[:3]
    size_x, size_y = shape[0] * CELL, shape[1] * CELL
    return x * CELL + z % per_row * (size_x + LAYER_GAP), y * CELL + z // per_row * (
        size_y + LAYER_GAP
    )
