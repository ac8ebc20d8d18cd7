"""An all-reduce for a reader, step by step: what every rank or chip holds of the sum, what moves,
how long it takes.

`explain` finds it, `as_text` writes it, `explain_html` draws it. Steps are those of
`collectives.schedule` and `collectives.torus`; seconds are those of `timing.collectives`.
"""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
from collections import Counter
from collections.abc import Iterator

from podyard.base.errors import invalid
from podyard.engine.collectives.schedule import (
    Move,
    Op,
    Schedule,
    chunk_bounds,
    ring_all_reduce,
    sent_elements,
    summation_order,
)
from podyard.engine.collectives.torus import TorusPhase, colour_orders, torus_all_reduce
from podyard.engine.report.summary import bytes_text, percent, time_text
from podyard.engine.timing.collectives import (
    COLLECTIVE_START_SECONDS,
    ICI_HOP_SECONDS,
    AllReducePlan,
    all_reduce_plan,
    colours_of,
    phase_seconds,
)
from podyard.hardware.accelerator_types import AcceleratorType, parse

# every rank holds as many chunks as there are ranks, each of as many parts: 512 cells are enough
RANKS_MAX = 8
# more chips than a 4x4x4 cube are not drawn one by one: nobody can see what moves between them
CHIPS_MAX = 64
BYTES_MAX = 2**50  # far above any memory, and far below what a float no longer counts exactly
DEFAULT_BYTES = 64 * 2**20
DEFAULT_RANKS = 4
DIMENSIONS = "xyz"
COLOURS = "ABC"
TEXT_COLUMNS = 110

_MAP_KEY = (
    "In the maps below, o is a chip, x goes down, y to the right, and z from one block to the "
    "next. > < v ^ is a "
    "message to the neighbour (at an edge: round to the other end), + and - one to the next and "
    "to the previous block."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """After step `number` (0: before the first). `held[rank][chunk]`: bit r is set when rank r's
    part is in the sum
    that the rank holds for the chunk. `moves` are the messages of this step."""

    number: int
    moves: tuple[Move, ...]
    held: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Ring:
    """An all-reduce of `nbytes` around a ring. `frames`: the start, then one a step."""

    nbytes: int
    schedule: Schedule
    frames: tuple[Frame, ...]

    @property
    def ranks(self) -> int:
        return self.schedule.rank_count

    @property
    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sends in all steps."""
        return sent_elements(self.schedule, self.nbytes)

    @property
    def title(self) -> str:
        ranks = f"{self.ranks} ranks" if self.ranks > 1 else "1 rank"
        return f"{bytes_text(self.nbytes)} per rank over a ring of {ranks}"


@dataclasses.dataclass(frozen=True, slots=True)
class RankSpan:
    """A phase of a colour, to scatter sums or (`gathers`) to gather them. `nbytes`: what a chip
    sends, on average; seconds since the start of the whole."""

    phase: TorusPhase
    gathers: bool
    nbytes: float
    start: float
    seconds: float

    @property
    def text(self) -> str:
        return (
            f"{'gathers' if self.gathers else 'scatters'} along {DIMENSIONS[self.phase.dimension]}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Colour:
    """`share` of the vector on its own way round the torus; `spans` follow each other."""

    name: str
    share: float
    spans: tuple[RankSpan, ...]

    @property
    def seconds(self) -> float:
        return sum(span.seconds for span in self.spans)

    def at(self, step: int) -> tuple[int, int]:
        """(index of the span, step within it, from 1) of a step of the schedule, from 1."""
        for index, span in enumerate(self.spans):
            if step <= span.phase.steps:
                return index, step
            step -= span.phase.steps
        raise AssertionError(f"colour {self.name} has ended {step} steps before")


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainedSlice:
    """An all-reduce of `nbytes` per device on the chips of a slice. `plan` is what the TPU compiler
    picks and its modelled seconds. `frames` is empty where there are more than CHIPS_MAX chips."""

    kind: AcceleratorType
    nbytes: int
    plan: AllReducePlan
    colours: tuple[Colour, ...]
    schedule: Schedule | None
    frames: tuple[Frame, ...]

    @property
    def title(self) -> str:
        return f"{bytes_text(self.nbytes)} per device on {self.kind.name}: {_shape_text(self.kind)}"

    @property
    def parts(self) -> list[int]:
        """Of each colour of the schedule, the index in `colours`: those of one order of the
        dimensions are one here, as in the model of time, because they share the same links."""
        orders = colour_orders(self.kind.topology.shape, self.kind.topology.wrap)
        return [list(dict.fromkeys(orders)).index(order) for order in orders]

    def moves_by_colour(self, frame: Frame) -> list[list[Move]]:
        """The messages of a step, for each of `colours`."""
        found: list[list[Move]] = [[] for _ in self.colours]
        parts = self.parts
        for move in frame.moves:
            found[parts[move.first // self.kind.chip_count]].append(move)
        return found


Trace = Ring | ExplainedSlice
Table = tuple[tuple[str, ...], ...]  # the first line names the columns


def explain(
    ranks: int | None = None, accelerator_type: str | None = None, nbytes: int = DEFAULT_BYTES
) -> Trace:
    """A ring of `ranks` (DEFAULT_RANKS where nothing is asked for), or the torus of an accelerator
    type.

    Raises PodyardError INVALID_ARGUMENT for both at once, ranks outside 1 to RANKS_MAX, a type that
    does not exist, and bytes outside 0 to BYTES_MAX.
    """
    if not 0 <= nbytes <= BYTES_MAX:
        raise invalid(
            f"an array of 0 to {BYTES_MAX} bytes is explained, not one of {nbytes}", "nbytes"
        )
    if accelerator_type is not None:
        if ranks is not None:
            raise invalid("either a number of ranks or an accelerator type is explained, not both")
        return _slice(parse(accelerator_type), nbytes)
    ranks = DEFAULT_RANKS if ranks is None else ranks
    if not 1 <= ranks <= RANKS_MAX:
        raise invalid(
            f"1 to {RANKS_MAX} ranks are explained, not {ranks}: more chunks cannot be read",
            "ranks",
        )
    schedule = ring_all_reduce(ranks)
    return Ring(nbytes, schedule, tuple(_frames(schedule)))


def move_bytes(schedule: Schedule, nbytes: int, move: Move) -> int:
    bounds = chunk_bounds(nbytes, schedule.chunk_count)
    return bounds[move.stop - 1][1] - bounds[move.first][0]


def progress(found: ExplainedSlice, frame: Frame) -> list[list[float]]:
    """[chip][colour]: of all the parts that the sums of a colour's chunks are to have, the share
    that the chip has."""
    chips, parts = found.kind.chip_count, found.parts
    shares = []
    for held in frame.held:
        totals = [0] * len(found.colours)
        for index, part in enumerate(parts):
            totals[part] += sum(
                mask.bit_count() for mask in held[index * chips : (index + 1) * chips]
            )
        shares.append(
            [total / (chips**2 * parts.count(index)) for index, total in enumerate(totals)]
        )
    return shares


def coordinates(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return where the chip is, per dimension: ranks count the last dimension first."""
    found = []
    for extent in reversed(shape):
        rank, position = divmod(rank, extent)
        found.append(position)
    return tuple(reversed(found))


def direction(shape: tuple[int, ...], move: Move) -> tuple[int, int, bool]:
    """(dimension, +1 or -1, whether it goes round from one end to the other) of a message between
    neighbours."""
    pairs = zip(coordinates(shape, move.sender), coordinates(shape, move.receiver), strict=True)
    dimension, difference = next((index, b - a) for index, (a, b) in enumerate(pairs) if a != b)
    if abs(difference) == 1:
        return dimension, difference, False
    return dimension, -1 if difference > 0 else 1, True


def _slice(kind: AcceleratorType, nbytes: int) -> ExplainedSlice:
    plan = all_reduce_plan(kind.name, nbytes)
    drawn = kind.chip_count <= CHIPS_MAX
    schedule = torus_all_reduce(kind.topology.shape, kind.topology.wrap) if drawn else None
    frames = tuple(_frames(schedule)) if schedule is not None else ()
    return ExplainedSlice(kind, nbytes, plan, _colours(kind, nbytes), schedule, frames)


def _colours(kind: AcceleratorType, nbytes: int) -> tuple[Colour, ...]:
    if kind.chip_count == 1:
        return ()
    colours = []
    for name, forward in zip(COLOURS, colours_of(kind), strict=False):
        spans: list[RankSpan] = []
        start = COLLECTIVE_START_SECONDS
        for gathers, phase in (
            *((False, one) for one in forward),
            *((True, one) for one in reversed(forward)),
        ):
            seconds = phase_seconds(kind, phase, nbytes)
            spans.append(RankSpan(phase, gathers, nbytes * phase.sent_share, start, seconds))
            start += seconds
        colours.append(Colour(name, forward[0].share, tuple(spans)))
    return tuple(colours)


def _frames(schedule: Schedule) -> Iterator[Frame]:
    held = [[1 << rank] * schedule.chunk_count for rank in range(schedule.rank_count)]
    for number, step in enumerate(itertools.chain([()], schedule.steps)):
        before = [tuple(chunks) for chunks in held]
        for move in step:
            target, source = held[move.receiver], before[move.sender]
            for offset in range(move.stop - move.first):
                new = source[move.first + offset]
                target[move.into + offset] = (
                    new | target[move.into + offset] if move.op is Op.ADD else new
                )
        yield Frame(number, step, tuple(map(tuple, held)))


def headline(trace: Trace, frame: Frame) -> str:
    """Return which step a frame is."""
    if not frame.number:
        return "Start: nothing is added yet"
    steps = len(trace.frames) - 1
    half = "scatter: sums are made" if frame.number <= steps // 2 else "gather: sums are handed on"
    return f"Step {frame.number} of {steps} \u00b7 {half}"


def sentences(trace: Trace, frame: Frame) -> list[str]:
    """Return what moves in a step, in words: one line for all of a ring, one for each colour of a
    slice."""
    if not frame.moves:
        names = (
            [f"{colour.name}: nothing moves yet." for colour in trace.colours]
            if isinstance(trace, ExplainedSlice)
            else []
        )
        return names or ["Nothing moves yet."]
    if isinstance(trace, Ring):
        each = (
            f"Each rank sends {_sizes(trace.schedule, trace.nbytes, frame.moves)} to the "
            "next one, which "
        )
        adds = frame.moves[0].op is Op.ADD
        return [
            each + ("adds it to its own chunk." if adds else "keeps it instead of its own chunk.")
        ]
    assert trace.schedule is not None
    lines = []
    for colour, moves in zip(trace.colours, trace.moves_by_colour(frame), strict=True):
        which, step = colour.at(frame.number)
        span = colour.spans[which]
        total = sum(move_bytes(trace.schedule, trace.nbytes, move) for move in moves)
        lines.append(
            f"{colour.name} {span.text}, step {step} of {span.phase.steps}: "
            f"{bytes_text(total)} in all."
        )
    return lines


def facts(trace: Trace) -> list[str]:
    """Return what is to be said once: bytes and seconds in all, and where they come from."""
    if isinstance(trace, Ring):
        return _ring_facts(trace)
    if not trace.colours:
        return ["One chip: nothing is sent to another one, and the modelled time is 0 s."]
    plan, rate = trace.plan, trace.kind.generation.ici_link_bytes_per_second
    slowest = max(trace.colours, key=lambda colour: colour.seconds)
    chips = trace.kind.chip_count
    sent = sum(span.nbytes for colour in trace.colours for span in colour.spans)
    lines = [
        (
            f"Each of {chips} chips sends {bytes_text(sent)} on average, "
            f"2 ({chips} - 1) / {chips} of the array, once for all cores."
        ),
        (
            f"Modelled time: {time_text(plan.seconds)}, which is "
            f"{time_text(COLLECTIVE_START_SECONDS)} for start and "
            f"barrier and {time_text(slowest.seconds)} for colour {slowest.name}; all colours "
            "move at the same time."
        ),
        (
            f"A phase takes its bytes / {rate / 1e9:g} GB/s a link (both links where it wraps "
            "round), and "
            f"{time_text(ICI_HOP_SECONDS)} a hop."
        ),
        (
            f"The TPU compiler's choice: {plan.family}, {_count(plan.colours, 'colour')}, "
            f"{_count(plan.phases, 'phase')}, rings of {_rings(plan)} devices. The steps are this "
            "project's own, "
            "and the time is of them."
        ),
    ]
    if not trace.frames:
        lines.append(
            f"More than {CHIPS_MAX} chips are not drawn one by one, because nobody could see what "
            "moves: phases only."
        )
    if trace.kind.topology.twisted:
        lines.append("The torus is twisted; the model takes it as one that is not.")
    return lines


def orders_table(ring: Ring) -> Table:
    """In which order the ranks' parts of each chunk are added: the same on every run and for every
    transport."""
    lines = []
    for chunk in range(ring.schedule.chunk_count):
        first, *others = summation_order(ring.schedule, chunk)
        text = "(" * (len(others) - 1) + str(first)
        text += "".join(
            f" + {rank}" + ")" * (index < len(others)) for index, rank in enumerate(others, 1)
        )
        lines.append((str(chunk), text))
    return (("chunk", "order of the ranks"), *lines)


def phases_table(found: ExplainedSlice) -> Table:
    """Every phase of every colour with what it moves and its modelled seconds."""
    lines = [
        (
            "colour",
            "share",
            "phase",
            "chips",
            "wraps",
            "of the array",
            "sent per chip",
            "hops",
            "from",
            "takes",
        )
    ]
    for colour in found.colours:
        for span in colour.spans:
            phase = span.phase
            lines.append(
                (
                    colour.name, percent(colour.share), span.text, str(phase.extent),
                    "yes" if phase.wraps else "no",
                    percent(phase.share), bytes_text(span.nbytes), str(phase.steps),
                    time_text(span.start),
                    time_text(span.seconds),
                )
            )  # fmt: skip
    return tuple(lines)


def as_text(trace: Trace) -> str:
    """All of it as plain text of at most 110 columns."""
    lines = [f"All-reduce of {trace.title}", ""]
    for fact in facts(trace):
        lines += textwrap.wrap(fact, TEXT_COLUMNS, subsequent_indent="  ")
    table = orders_table(trace) if isinstance(trace, Ring) else phases_table(trace)
    lines += ["", *_align(table)] if len(table) > 1 else []
    if isinstance(trace, ExplainedSlice) and trace.frames[1:]:
        lines += ["", *textwrap.wrap(_MAP_KEY, TEXT_COLUMNS)]
    for frame in trace.frames[0 if isinstance(trace, Ring) else 1 :]:
        lines += ["", headline(trace, frame), *(f"  {line}" for line in sentences(trace, frame))]
        lines += _ring_rows(trace, frame) if isinstance(trace, Ring) else _maps(trace, frame)
    return "\n".join(lines) + "\n"


def _ring_facts(ring: Ring) -> list[str]:
    k, sent = ring.ranks, ring.bytes_sent
    if k == 1:
        return ["One rank has the sum already: nothing is sent."]
    most, least = max(sent), min(sent)
    exact = f"{most:,} bytes" if most == least else f"{least:,} to {most:,} bytes"
    return [
        (
            f"Each rank sends {bytes_text(most)} ({exact}): 2 ({k} - 1) / {k} of its vector, the "
            "least possible. "
            f"All of them together: {bytes_text(sum(sent))}."
        ),
        (
            f"Time: {2 * (k - 1)} steps, each as long as the largest chunk takes on a link. Ranks "
            "alone have no links, "
            "hence no seconds; an accelerator type has both."
        ),
    ]


def _shape_text(kind: AcceleratorType) -> str:
    wraps = [name for name, wraps in zip(DIMENSIONS, kind.topology.wrap, strict=False) if wraps]
    links = f"wraps round along {', '.join(wraps)}" if wraps else "no links that wrap round"
    return f"{kind.topology.text} chips, {links}"


def _rings(plan: AllReducePlan) -> str:
    return " and ".join(
        ring if count == 1 else f"{count} x {ring}"
        for ring, count in Counter(plan.ring_sizes.split(",")).items()
    )


def _sizes(schedule: Schedule, nbytes: int, moves: tuple[Move, ...]) -> str:
    sizes = {bytes_text(move_bytes(schedule, nbytes, move)) for move in moves}
    return "one chunk of " + " or ".join(sorted(sizes))


def _count(value: int, noun: str) -> str:
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"


def _align(table: Table) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  "
        + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def _ring_rows(ring: Ring, frame: Frame) -> list[str]:
    """A line a rank: of each chunk the ranks whose parts are in it, and what was sent on."""
    sent = {move.sender: move for move in frame.moves}
    lines = [("", *(f"chunk {chunk}" for chunk in range(ring.schedule.chunk_count)), "")]
    for rank, held in enumerate(frame.held):
        cells = [
            "".join(str(r) if mask >> r & 1 else "." for r in range(ring.ranks)) for mask in held
        ]
        moved = f"chunk {sent[rank].first} to {sent[rank].receiver}" if rank in sent else ""
        lines.append((f"rank {rank}", *cells, moved))
    return _align(tuple(lines))


def _maps(found: ExplainedSlice, frame: Frame) -> list[str]:
    """For every colour a map of the chips, a block a layer, with an arrow for each message."""
    lines: list[str] = []
    for colour, moves in zip(found.colours, found.moves_by_colour(frame), strict=True):
        lines += [
            f"  {colour.name}",
            *(f"    {line}" for line in _map(found.kind.topology.shape, moves)),
        ]
    return lines


def _map(shape: tuple[int, ...], moves: list[Move]) -> list[str]:
    """x goes down, y to the right, and z from one block to the next: a chip has the middle of 4
    columns and 2 lines."""
    rows, columns, layers = (*shape, 1)[:3]
    width = 4 * columns + 3
    canvas = [[" "] * (width * layers) for _ in range(2 * rows + 1)]

    def place(rank: int) -> tuple[int, int]:
        x, y, z = (*coordinates(shape, rank), 0)[:3]
        return 2 * x + 1, z * width + 4 * y + 2

    for rank in range(rows * columns * layers):
        line, column = place(rank)
        canvas[line][column] = "o"
    for move in moves:
        line, column = place(move.sender)
        dimension, way, _ = direction(shape, move)
        if dimension == 0:
            canvas[line + way][column if way > 0 else column + 1] = "v" if way > 0 else "^"
        elif dimension == 1:
            canvas[line][column + 3 * way] = ">" if way > 0 else "<"
        else:
            canvas[line][column + way] = "+" if way > 0 else "-"
    return [text for text in ("".join(line).rstrip() for line in canvas) if text]
