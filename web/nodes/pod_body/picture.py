"""The picture of a pod of three dimensions as one body: the frame of the pod, and each slice in it
as boxes, seen from above one edge. Pure: bit sets in, SVG out.

Isometric projection: x goes to the right and down, y to the left and down, z up. Boxes are drawn
from the back to the front, so that nearer ones hide those behind them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from markupsafe import Markup, escape

from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape
from podyard.hardware.torus import coordinate_of
from podyard.web.kit.charts import svg
from podyard.web.nodes.torus import Part, runs

BOXES_MAX = 200  # on a page: more hide each other, and the order of drawing looks at all pairs
RISE = 12  # pixels of a chip up
ACROSS, DOWN = 12, 6  # pixels of a chip along x or y, to the side and down
STUB = 0.45  # of a link that leads round to the other side, in chips
MARGIN = 8

Point = tuple[float, float, float]
Cell = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class IsometricBox:
    """Chips from `start` up to and without `stop`."""

    start: Cell
    stop: Cell

    def is_behind(self, other: IsometricBox) -> bool:
        """True if `other` can hide this box, and this one cannot hide `other`."""
        return any(mine <= its for mine, its in zip(self.stop, other.start, strict=True))


def body_picture(pod_id: str, shape: Shape, parts: Sequence[Part]) -> Markup | None:
    """Return the pod as one body; None for one of two dimensions, or with too many boxes."""
    if len(shape) != 3:
        return None
    boxes = [(box, part) for part in parts for box in boxes_of(shape, part.chips)]
    if len(boxes) > BOXES_MAX:
        return None
    view = _Projection(shape)
    body = [view.walls(), *(view.draw(box, part) for box, part in _from_the_back(boxes))]
    names = [part.name for part in parts if part.name and part.chips]
    text = f"{len(names)} slices in their places: {', '.join(names)}" if names else "No slices"
    role = "group" if any(part.url for part in parts) else "img"
    return svg(
        f"Body of pod {pod_id}", text, view.width, view.height, body, kind="pod body", role=role
    )


def boxes_of(shape: Shape, chips: int) -> list[IsometricBox]:
    """Return boxes that make up the chips: lines of neighbours, put together where they are alike
    and next to each other, along y and then along z."""
    lines = []
    for first, length in runs(shape, chips, 0):
        x, y, z = coordinate_of(shape, first)
        lines.append(IsometricBox((x, y, z), (x + length, y + 1, z + 1)))
    return _join_along(_join_along(lines, 1), 2)


def _join_along(boxes: Sequence[IsometricBox], axis: int) -> list[IsometricBox]:
    def others(box: IsometricBox) -> tuple[Cell, Cell]:
        start, stop = list(box.start), list(box.stop)
        start[axis] = stop[axis] = 0
        return (start[0], start[1], start[2]), (stop[0], stop[1], stop[2])

    joined: list[IsometricBox] = []
    ordered = sorted(boxes, key=lambda box: (others(box), box.start[axis]))
    for _, alike in groupby(ordered, key=others):
        row = list(alike)
        begin = row[0]
        for before, box in zip(row, [*row[1:], None], strict=True):
            if box is None or before.stop[axis] != box.start[axis]:
                joined.append(IsometricBox(begin.start, before.stop))
                begin = box or begin
    return joined


def _from_the_back(
    boxes: Sequence[tuple[IsometricBox, Part]],
) -> Iterator[tuple[IsometricBox, Part]]:
    """Yield each box after all that are behind it."""
    left = list(boxes)
    while left:
        first = next(
            (
                one
                for one in left
                if not any(
                    other[0].is_behind(one[0]) and not one[0].is_behind(other[0])
                    for other in left
                    if other is not one
                )
            ),
            left[0],
        )
        left.remove(first)
        yield first


class _Projection:
    """The projection of one pod."""

    def __init__(self, shape: Shape) -> None:
        self._x, self._y, self._z = shape
        self.width = (self._x + self._y) * ACROSS + 2 * MARGIN
        self.height = (self._x + self._y) * DOWN + self._z * RISE + 2 * MARGIN

    def walls(self) -> str:
        """The floor and the two walls at the back, with the lines of cubes."""
        x, y, z = self._x, self._y, self._z
        faces = (
            [(0, 0, 0), (x, 0, 0), (x, y, 0), (0, y, 0)],
            [(0, 0, 0), (x, 0, 0), (x, 0, z), (0, 0, z)],
            [(0, 0, 0), (0, y, 0), (0, y, z), (0, 0, z)],
        )
        drawn = "".join(f'<path class="wall" d="{self._outline(face)}"/>' for face in faces)
        lines: list[tuple[Point, Point]] = []
        for at in range(CUBE_EDGE_CHIPS, x, CUBE_EDGE_CHIPS):
            lines += [((at, 0, 0), (at, y, 0)), ((at, 0, 0), (at, 0, z))]
        for at in range(CUBE_EDGE_CHIPS, y, CUBE_EDGE_CHIPS):
            lines += [((0, at, 0), (x, at, 0)), ((0, at, 0), (0, at, z))]
        for at in range(CUBE_EDGE_CHIPS, z, CUBE_EDGE_CHIPS):
            lines += [((0, 0, at), (x, 0, at)), ((0, 0, at), (0, y, at))]
        return f'{drawn}<path class="cube-line" d="{self._segments(lines)}"/>'

    def draw(self, box: IsometricBox, part: Part) -> str:
        """A box: its three faces that are seen, the links on them, and the letter of its slice."""
        (x0, y0, z0), (x1, y1, z1) = box.start, box.stop
        top = [(x0, y0, z1), (x1, y0, z1), (x1, y1, z1), (x0, y1, z1)]
        left = [(x0, y1, z0), (x1, y1, z0), (x1, y1, z1), (x0, y1, z1)]
        right = [(x1, y0, z0), (x1, y1, z0), (x1, y1, z1), (x1, y0, z1)]
        faces = "".join(
            f'<path class="face {side} chip-{part.kind}" d="{self._outline(face)}"/>'
            for side, face in (("top", top), ("left", left), ("right", right))
        )
        links = "" if part.wraps is None else self._segments(_links(box, wraps=part.wraps))
        if links:
            faces += f'<path class="link" d="{links}" pointer-events="none"/>'
        if part.label:
            x, y = self._at(((x0 + x1) / 2, (y0 + y1) / 2, z1))
            size = "large" if min(x1 - x0, y1 - y0) >= CUBE_EDGE_CHIPS else "small"
            place = f'x="{x:g}" y="{y + (8 if size == "large" else 3):g}" pointer-events="none"'
            faces += f'<text class="chip-name {size}" {place}>{escape(part.label)}</text>'
        title = f"<title>{escape(part.title)}</title>" if part.title else ""
        # The table next to the picture has the same links for the keyboard.
        opening = f'<a href="{escape(part.url)}" tabindex="-1">' if part.url else "<g>"
        return f"{opening}{title}{faces}{'</a>' if part.url else '</g>'}"

    def _at(self, point: Point) -> tuple[float, float]:
        x, y, z = point
        return (
            MARGIN + (self._y + x - y) * ACROSS,
            MARGIN + (x + y) * DOWN + (self._z - z) * RISE,
        )

    def _outline(self, corners: Sequence[Point]) -> str:
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in map(self._at, corners)) + "z"

    def _segments(self, lines: Iterable[tuple[Point, Point]]) -> str:
        ends = ((*self._at(start), *self._at(stop)) for start, stop in lines)
        return "".join(f"M{x:g} {y:g}L{to_x:g} {to_y:g}" for x, y, to_x, to_y in ends)


def _links(box: IsometricBox, *, wraps: bool) -> Iterator[tuple[Point, Point]]:
    """Yield the links on the three faces that are seen, through the middles of chips; with `wraps`
    also the beginnings of those that lead round, out of the faces."""
    for axis in range(3):
        one, other = (index for index in range(3) if index != axis)
        for across, along in ((one, other), (other, one)):
            for chip in range(box.start[across], box.stop[across]):
                ends = []
                for end in (box.start[along] + 0.5, box.stop[along] - 0.5):
                    ends.append(_point({axis: box.stop[axis], across: chip + 0.5, along: end}))
                if ends[0] != ends[1]:
                    yield ends[0], ends[1]
        if wraps and box.stop[axis] - box.start[axis] > 1:
            for first in range(box.start[one], box.stop[one]):
                for second in range(box.start[other], box.stop[other]):
                    places = {one: first + 0.5, other: second + 0.5}
                    foot = _point({axis: box.stop[axis], **places})
                    yield foot, _point({axis: box.stop[axis] + STUB, **places})


def _point(places: dict[int, float]) -> Point:
    return places[0], places[1], places[2]
