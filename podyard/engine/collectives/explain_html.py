"""An all-reduce as HTML: `figure` is the part that a page of any site can hold, `page` a whole file
without any other.

A frame says of each bar how full it is (percent), of each box what it is marked as, and which parts
are on: arrows, and the phases of the table and of the time line. The figure shows the first step;
its script draws all of them.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence

from podyard.engine import film
from podyard.engine.collectives.explain import (
    DIMENSIONS,
    Colour,
    ExplainedSlice,
    Frame,
    Ring,
    Table,
    Trace,
    coordinates,
    direction,
    facts,
    headline,
    orders_table,
    phases_table,
    progress,
    sentences,
)
from podyard.engine.collectives.schedule import Move
from podyard.engine.report.summary import percent, time_text

PACKAGE = "podyard.engine.collectives"

# All lengths are pixels of an unscaled picture. A ring: ranks are rows, chunks are columns.
_RING_LEFT, _RING_TOP, _RING_ROW, _RING_BOX = 74, 52, 74, 36
_PART_MIN, _PARTS_MIN = 9, 68  # width of one rank's part of a chunk, and of all of them
_PAD = 6
# A slice: boxes of chips with bars of the colours in them, and room for arrows between.
_BOX_WIDTH, _BOX_TOP, _BAR, _GAP = 60, 22, 11, 38
_EDGE, _EDGE_PLAIN = 30, 8  # around a grid with arrows that leave it, and without
_LAYER_TITLE = 24
_PICTURE_WIDTH_MAX = 1100  # layers next to each other up to this width
_LANE = 7  # between arrows on one link
_STUB = 22  # of an arrow that goes round
_SLANT = 14  # of one to another layer, to the right and up
_HEAD = 5
_MARKS = {(False, False): ".", (True, False): "n", (False, True): "d", (True, True): "b"}
_CLASSES = {".": "", "n": " now", "d": " done", "b": " now done"}
_LABEL_SHARE = 0.09  # of the time line: shorter phases have no room for their name

Point = tuple[float, float]


def page(trace: Trace) -> str:
    """One HTML file that asks for nothing else."""
    return film.page(PACKAGE, "An all-reduce, step by step", trace.title, figure(trace))


def figure(trace: Trace, at: int | None = None, url_of: Callable[[int], str] | None = None) -> str:
    """The figure at step `at` (None: the first one, and a script begins before it); the styles and
    scripts of `film` belong to it, and it holds none. `url_of`: the address of another step."""
    told = "".join(f"<p>{html.escape(fact)}</p>" for fact in facts(trace))
    if len(trace.frames) < 2:
        aside, below = _more(trace, frozenset())
        return f'<div class="film reduce">\n{_about(told, aside)}\n{below}</div>'
    drawing = _RingPicture(trace) if isinstance(trace, Ring) else _SlicePicture(trace)
    frames = [
        {
            "now": headline(trace, frame),
            "said": _frame_text(trace, frame),
            "bars": drawing.bars(frame),
            "marks": drawing.marks(frame),
            "on": drawing.on(frame),
        }
        for frame in trace.frames
    ]
    last = len(frames) - 1
    number = 1 if at is None else min(max(at, 0), last)
    shown = trace.frames[number]
    aside, below = _more(trace, drawing.spans_on(shown))
    about = _about(told, aside)
    opening = film.opening("reduce", frames, at=0 if at is None else number)
    return (
        f"{opening}{film.head('Step', headline(trace, shown), number, last, url_of)}"
        '<div class="reduce-stage"><div '
        f'class="reduce-main">{film.picture(drawing.label, drawing.svg(shown))}'
        f"{film.caption(_frame_text(trace, shown))}{film.legend(drawing.legend())}"
        f'<p class="reduce-key">{html.escape(drawing.key)}</p></div>\n{about}</div>\n{below}</div>'
    )


def _about(told: str, aside: str) -> str:
    return f'<div class="reduce-about"><div class="reduce-facts">{told}</div>\n{aside}</div>'


def _frame_text(trace: Trace, frame: Frame) -> str:
    return "\n".join(sentences(trace, frame))


class _RingPicture:
    """Rows of chunks; an arrow goes from a chunk to the same chunk of the next row, and from the
    last row round."""

    label = "The ranks and their chunks"
    key = "Each rank sends to the next one, and the last one round to the first."

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.part = max(_PART_MIN, _PARTS_MIN // ring.ranks)
        self.box = self.part * ring.ranks + 2 * _PAD
        self.pitch = self.box + 12

    def bars(self, frame: Frame) -> list[int]:
        ranks = range(self.ring.ranks)
        return [100 * (mask >> rank & 1) for held in frame.held for mask in held for rank in ranks]

    def marks(self, frame: Frame) -> str:
        received = {(move.receiver, move.into) for move in frame.moves}
        full = (1 << self.ring.ranks) - 1
        return "".join(
            _MARKS[(rank, chunk) in received, mask == full]
            for rank, held in enumerate(frame.held)
            for chunk, mask in enumerate(held)
        )

    def on(self, frame: Frame) -> list[int]:
        return sorted(move.sender * self.ring.ranks + move.first for move in frame.moves)

    def spans_on(self, _frame: Frame) -> frozenset[tuple[int, int]]:
        return frozenset()

    def legend(self) -> list[tuple[str, str]]:
        return [
            *((f"r{rank}", f"rank {rank}'s part") for rank in range(self.ring.ranks)),
            ("now", "received in this step"),
            ("done", "the sum of all ranks"),
        ]

    def svg(self, frame: Frame) -> str:
        k = self.ring.ranks
        width, height = _RING_LEFT + k * self.pitch, _RING_TOP + k * _RING_ROW + 6
        lines = [_svg_opening(width, height, "Chunks of all ranks, and what moves")]
        for chunk in range(k):
            lines.append(
                _text(_RING_LEFT + chunk * self.pitch + self.box / 2, 16, f"chunk {chunk}", "name")
            )
        for rank in range(k):
            lines.append(
                _text(0, _RING_TOP + rank * _RING_ROW + 23, f"rank {rank}", "rank", "start")
            )
        full, marks = self.bars(frame), self.marks(frame)
        for index in range(k * k):
            rank, chunk = divmod(index, k)
            x, y = _RING_LEFT + chunk * self.pitch, _RING_TOP + rank * _RING_ROW
            lines.append(
                f'<g class="box{_CLASSES[marks[index]]}">'
                f"{_rect(x, y, self.box, _RING_BOX, 'frame')}"
            )
            for part in range(k):
                left, level = x + _PAD + part * self.part, full[index * k + part]
                lines.append(
                    _bar(left + 1, y + _PAD, self.part - 2, _RING_BOX - 2 * _PAD, f"r{part}", level)
                )
            lines.append("</g>")
        on = set(self.on(frame))
        for index in range(k * k):
            rank, chunk = divmod(index, k)
            middle, y = (
                _RING_LEFT + chunk * self.pitch + self.box / 2,
                _RING_TOP + rank * _RING_ROW + _RING_BOX + 4,
            )
            ways = [((middle, y), (middle, y + _RING_ROW - _RING_BOX - 8))]
            if rank == k - 1:
                top = _RING_TOP - 4
                ways = [((middle, y), (middle, y + _STUB)), ((middle, top - _STUB), (middle, top))]
            lines.append(_arrow(ways, "move", index in on))
        return "".join([*lines, "</svg>"])


class _SlicePicture:
    """Boxes of chips, a grid a layer: x goes down, y to the right, z from layer to layer."""

    label = "The chips of the slice"

    def __init__(self, found: ExplainedSlice) -> None:
        self.found = found
        self.shape = found.kind.topology.shape
        self.rows, self.columns, self.layers = (*self.shape, 1)[:3]
        self.edge = _EDGE if self.layers > 1 or any(found.kind.topology.wrap) else _EDGE_PLAIN
        self.title = _LAYER_TITLE if self.layers > 1 else 0
        self.box = _BOX_TOP + _BAR * len(found.colours) + 3
        self.width = self.columns * (_BOX_WIDTH + _GAP) - _GAP + 2 * self.edge
        self.height = self.rows * (self.box + _GAP) - _GAP + 2 * self.edge + self.title
        self.key = self._key_text()
        self.columns = max(1, min(self.layers, _PICTURE_WIDTH_MAX // self.width))
        # Which arrow is which: every message between the same chips in the same colour is the same
        # one.
        ways = ((colour, move) for frame in found.frames for colour, move in self._colours(frame))
        self.arrows = {self._key(colour, move): (colour, move) for colour, move in ways}
        self.numbers = {key: number for number, key in enumerate(self.arrows)}
        self.spans = [
            (colour, span)
            for colour, one in enumerate(found.colours)
            for span in range(len(one.spans))
        ]

    def _key_text(self) -> str:
        texts = [
            (
                "A bar is full when a chip has the whole sum of a colour's share. x goes down, y "
                "to the right."
            )
        ]
        if self.layers > 1:
            texts.append("A slanted arrow goes to the next z (up) or to the previous one (down).")
        if any(self.found.kind.topology.wrap):
            texts.append("An arrow that leaves the grid comes back at the other end.")
        texts.append("The phases of the step are filled in the time line and marked in the table.")
        return " ".join(texts)

    def _colours(self, frame: Frame) -> Iterator[tuple[int, Move]]:
        for colour, moves in enumerate(self.found.moves_by_colour(frame)):
            for move in moves:
                yield colour, move

    @staticmethod
    def _key(colour: int, move: Move) -> tuple[int, int, int]:
        return colour, move.sender, move.receiver

    def bars(self, frame: Frame) -> list[int]:
        # A colour that is not complete must not look it.
        return [
            int(100 * share + 1e-9) for shares in progress(self.found, frame) for share in shares
        ]

    def marks(self, frame: Frame) -> str:
        full = (1 << self.found.kind.chip_count) - 1
        return "".join(_MARKS[False, all(mask == full for mask in held)] for held in frame.held)

    def on(self, frame: Frame) -> list[int]:
        numbers = {self.numbers[self._key(colour, move)] for colour, move in self._colours(frame)}
        for one in self.spans_on(frame):
            # After the arrows come the phases of the time line, then those of the table.
            span = self.spans.index(one)
            numbers |= {len(self.arrows) + span, len(self.arrows) + len(self.spans) + span}
        return sorted(numbers)

    def spans_on(self, frame: Frame) -> frozenset[tuple[int, int]]:
        """(colour, phase) of what moves in a step."""
        colours = self.found.colours if frame.number else ()
        return frozenset((colour, one.at(frame.number)[0]) for colour, one in enumerate(colours))

    def legend(self) -> list[tuple[str, str]]:
        return [
            *(
                (
                    f"c{index}",
                    (
                        f"colour {colour.name}: {percent(colour.share)} of the array, begins along "
                        f"{_first(colour)}"
                    ),
                )
                for index, colour in enumerate(self.found.colours)
            ),
            ("done", "a chip that has the whole sum"),
        ]

    def _corner(self, rank: int) -> tuple[int, int]:
        x, y, z = (*coordinates(self.shape, rank), 0)[:3]
        down, right = divmod(z, self.columns)
        left = right * self.width + self.edge + y * (_BOX_WIDTH + _GAP)
        return left, down * self.height + self.edge + self.title + x * (self.box + _GAP)

    def svg(self, frame: Frame) -> str:
        high = -(-self.layers // self.columns) * self.height
        lines = [
            _svg_opening(self.columns * self.width, high, "Chips, and what moves between them")
        ]
        for layer in range(self.layers if self.title else 0):
            down, right = divmod(layer, self.columns)
            x, y = right * self.width + self.edge, down * self.height + 17
            lines.append(_text(x, y, f"{DIMENSIONS[2]} = {layer}", "name", "start"))
        levels, marks = self.bars(frame), self.marks(frame)
        count = len(self.found.colours)
        for rank in range(self.found.kind.chip_count):
            x, y = self._corner(rank)
            name = ",".join(map(str, coordinates(self.shape, rank)))
            lines.append(
                f'<g class="box{_CLASSES[marks[rank]]}">'
                f"{_rect(x, y, _BOX_WIDTH, self.box, 'frame')}"
            )
            lines.append(_text(x + _BOX_WIDTH / 2, y + 15, name, "chip"))
            for colour in range(count):
                top, level = y + _BOX_TOP + colour * _BAR, levels[rank * count + colour]
                lines.append(_rect(x + _PAD, top, _BOX_WIDTH - 2 * _PAD, 8, "trough"))
                lines.append(_bar(x + _PAD, top, _BOX_WIDTH - 2 * _PAD, 8, f"c{colour}", level))
            lines.append("</g>")
        on = set(self.on(frame))
        for key, (colour, move) in self.arrows.items():
            lines.append(_arrow(self._ways(colour, move), f"c{colour}", self.numbers[key] in on))
        return "".join([*lines, "</svg>"])

    def _ways(self, colour: int, move: Move) -> list[tuple[Point, Point]]:
        """From box to box, or out at one end and in at the other; to another layer, out at a
        corner."""
        dimension, way, round_ = direction(self.shape, move)
        lanes = 2 * len(self.found.colours)
        lane = (2 * colour + (way > 0) - (lanes - 1) / 2) * _LANE
        if dimension == 2:
            x, y = self._corner(move.sender)
            shift = _LANE * colour - 5
            near = (
                (x + _BOX_WIDTH + shift, y + shift)
                if way > 0
                else (x - shift, y + self.box - shift)
            )
            return [(near, (near[0] + way * _SLANT, near[1] - way * _SLANT))]
        out, into = (
            self._port(move.sender, dimension, way, lane),
            self._port(move.receiver, dimension, -way, lane),
        )
        if not round_:
            return [(out, into)]
        far = way * _STUB
        if dimension == 0:
            return [(out, (out[0], out[1] + far)), ((into[0], into[1] - far), into)]
        return [(out, (out[0] + far, out[1])), ((into[0] - far, into[1]), into)]

    def _port(self, rank: int, dimension: int, way: int, lane: float) -> Point:
        """Return where an arrow touches a chip's box."""
        x, y = self._corner(rank)
        if dimension == 0:
            return x + _BOX_WIDTH / 2 + lane, y - 3.0 if way < 0 else y + self.box + 3.0
        return x - 3.0 if way < 0 else x + _BOX_WIDTH + 3.0, y + self.box / 2 + lane


def _first(colour: Colour) -> str:
    return DIMENSIONS[colour.spans[0].phase.dimension]


def _more(trace: Trace, on: Collection[tuple[int, int]]) -> tuple[str, str]:
    """The parts next to the picture, after the facts, and the wide parts below it."""
    if isinstance(trace, Ring):
        return _table("The one order of summation", orders_table(trace), ()), ""
    if not trace.colours:
        return "", ""
    kinds = [
        _part(trace, (index, at) in on)
        for index, one in enumerate(trace.colours)
        for at in range(len(one.spans))
    ]
    return _time_line(trace, on), _table(
        "Phases and their modelled time", phases_table(trace), kinds
    )


def _part(found: ExplainedSlice, is_on: bool) -> str:
    """The classes of what a step lights up, where there are steps."""
    return f"part{' on' if is_on else ''}" if found.frames else ""


def _time_line(found: ExplainedSlice, on: Collection[tuple[int, int]]) -> str:
    """A line a colour, in percent of the whole, so that it is as wide as there is room."""
    whole = found.plan.seconds
    lines = []
    for index, colour in enumerate(found.colours):
        marks = []
        for at, span in enumerate(colour.spans):
            left, width = 100 * span.start / whole, 100 * span.seconds / whole
            name = f"{span.text}: {time_text(span.seconds)}"
            axis = DIMENSIONS[span.phase.dimension]
            text = f'<text x="{left + width / 2:.3f}%" y="18" text-anchor="middle">{axis}</text>'
            marks.append(
                f'<g class="{_part(found, (index, at) in on)} span c{index}"><title>{name}</title>'
                f'<rect x="{left:.3f}%" y="1" width="{width:.3f}%" height="24"/>'
                f"{text if span.seconds >= _LABEL_SHARE * whole else ''}</g>"
            )
        label = html.escape(
            f"Colour {colour.name}: {', '.join(span.text for span in colour.spans)}"
        )
        lines.append(
            f'<div class="reduce-line"><span>{colour.name}</span>'
            '<svg width="100%" height="26" role="img" '
            f'aria-label="{label}">{"".join(marks)}</svg></div>'
        )
    ends = (
        '<p class="reduce-ends"><span>0 s (grey: start and barrier, '
        f"waiting)</span><span>{time_text(whole)}</span></p>"
    )
    return f'<h2>Modelled time</h2><div class="reduce-time">{"".join(lines)}{ends}</div>\n'


def _table(caption: str, table: Table, kinds: Sequence[str]) -> str:
    """`kinds`: the classes of the lines, where they have any."""
    names, *lines = table
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    body = "".join(
        f'<tr class="{kind}">' + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>"
        for line, kind in itertools.zip_longest(lines, kinds, fillvalue="")
    )
    # It scrolls in itself, like the picture.
    name = html.escape(caption)
    return (
        f'<h2>{name}</h2><div class="reduce-table" tabindex="0" role="region" '
        f'aria-label="{name}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></'
        "table></div>\n"
    )


def _svg_opening(width: float, height: float, label: str) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg {size} role="img" aria-label="{label}">'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> str:
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" '
        f'text-anchor="{anchor}">{html.escape(text)}</text>'
    )


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="{min(6, height // 4):g}"/>'
    )


def _bar(x: float, y: float, full: float, height: float, kind: str, level: int) -> str:
    """`level` in percent of the width `full`."""
    return (
        f'<rect class="bar {kind}" x="{x:g}" y="{y:g}" width="{full * level / 100:g}" '
        f'height="{height:g}" '
        f'data-full="{full:g}"/>'
    )


def _arrow(ways: Sequence[tuple[Point, Point]], kind: str, on: bool) -> str:
    """Lines with a head at each end point; `ways` has two where a message goes round."""
    path = ""
    for (x, y), (to_x, to_y) in ways:
        length = math.hypot(to_x - x, to_y - y)
        along_x, along_y = (to_x - x) / length * _HEAD, (to_y - y) / length * _HEAD
        path += (
            f"M{x:g} {y:g}L{to_x:g} {to_y:g}M{to_x - along_x - along_y:.4g} "
            f"{to_y - along_y + along_x:.4g}"
            f"L{to_x:g} {to_y:g}L{to_x - along_x + along_y:.4g} {to_y - along_y - along_x:.4g}"
        )
    return f'<path class="part arrow {kind}{" on" if on else ""}" d="{path}"/>'
