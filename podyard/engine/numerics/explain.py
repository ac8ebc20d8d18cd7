"""One matrix product on one array, cycle by cycle, for a reader: what each register holds, what
enters, what leaves.

The registers are those of `mxu.run_array`. Which operand a register holds is found by running the
same array a second time on the operands' numbers: 0 is what enters where there is no operand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from podyard.base.errors import invalid
from podyard.base.rng import Streams
from podyard.engine.numerics.mxu import Matrix, Phase, Tick, prepare, run_array
from podyard.engine.timing.systolic import Dataflow, systolic_cycles

# rows and columns: more cells than 16 x 16 do not fit on a screen with readable numbers
SIDE_MAX = 16
CYCLES_MAX = 600  # more cycles nobody steps through, and each adds its registers to the page
OPERAND_MAX = 5  # drawn operands are 1 to this: products and sums that can be checked by head

DATAFLOW_NAMES: dict[str, str] = {
    "ws": "weight stationary",
    "is": "input stationary",
    "os": "output stationary",
}
PHASE_TEXTS: dict[str, str] = {
    "load": "load: what stays is shifted in from the top",
    "stream": "stream: operands enter",
    "drain": "drain: nothing enters any more",
}

Number = int | float
# [rows][columns]; None: the register holds nothing of the product
Plane = tuple[tuple[Number | None, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """One element of x or w that entered: into which row ("left") or column ("top") of the
    array."""

    edge: str
    lane: int
    matrix: str
    row: int
    column: int
    value: Number


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """A sum that left the array for y[row, column]. `total`: the element with it, complete when
    `final`."""

    row: int
    column: int
    value: Number
    total: Number
    final: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ArrayCycle:
    """The registers at the end of cycle `number`. `working`: the cells that added a product in this
    cycle."""

    number: int
    fold: int
    phase: Phase
    activations: Plane
    weights: Plane
    sums: Plane
    working: tuple[tuple[bool, ...], ...]
    entered: tuple[Operand, ...]
    left: tuple[Output, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """x [m, k] times w [k, n] is y [m, n] on a rows x cols array; `cycles` in order, the first has
    number 0."""

    rows: int
    cols: int
    dataflow: Dataflow
    folds: int
    x: Plane
    w: Plane
    y: Plane
    cycles: tuple[ArrayCycle, ...]

    @property
    def title(self) -> str:
        m, k, n = len(self.x), len(self.w), len(self.w[0])
        kind = DATAFLOW_NAMES[self.dataflow]
        return f"[{m}, {k}] x [{k}, {n}] on a {self.rows} x {self.cols} array, {kind}"


def explain(  # noqa: PLR0913
    m: int,
    k: int,
    n: int,
    rows: int = 4,
    cols: int = 4,
    dataflow: Dataflow = "ws",
    seed: int = 0,
    operands: tuple[Matrix, Matrix] | None = None,
) -> Trace:
    """The cycles of [m, k] x [k, n] on a rows x cols array, with small whole numbers drawn from
    `seed` as operands, or with `operands` (both float32, rounded to bfloat16, or both int8).

    Raises PodyardError INVALID_ARGUMENT beyond SIDE_MAX rows or columns or CYCLES_MAX cycles, for
    sizes below 1, an unknown dataflow, and operands of other shapes or types.
    """
    if max(rows, cols) > SIDE_MAX:
        raise invalid(
            f"arrays of up to {SIDE_MAX} x {SIDE_MAX} are explained: a page shows no more than "
            "that readably"
        )
    last = systolic_cycles(m, k, n, rows, cols, dataflow)
    if last + 1 > CYCLES_MAX:
        raise invalid(
            f"[{m}, {k}] x [{k}, {n}] takes {last + 1} cycles on a {rows} x {cols} array, and at "
            f"most {CYCLES_MAX} are "
            "explained, because each is a separate picture: take a smaller product or a "
            "larger array"
        )
    x, w = prepare(*(_draw(m, k, n, seed) if operands is None else operands))
    if (x.shape, w.shape) != ((m, k), (k, n)):
        raise invalid(f"the operands are {x.shape} and {w.shape}, not [{m}, {k}] and [{k}, {n}]")
    x_numbers, w_numbers = (np.arange(1, a.size + 1).reshape(a.shape) for a in (x, w))
    y = np.zeros((m, n), x.dtype)
    missing = np.full((m, n), 1 if dataflow == "os" else -(-k // rows))
    cycles = []
    both = zip(
        run_array(x, w, rows, cols, dataflow),
        run_array(x_numbers, w_numbers, rows, cols, dataflow),
        strict=True,
    )
    for tick, numbers in both:
        left = []
        for row, column, value in zip(
            tick.out_rows, tick.out_columns, tick.out_values, strict=True
        ):
            with np.errstate(invalid="ignore", over="ignore"):
                y[row, column] += value
            missing[row, column] -= 1
            final = not missing[row, column]
            left.append(Output(int(row), int(column), value.item(), y[row, column].item(), final))
        cycles.append(_cycle(tick, numbers, dataflow, k, n, tuple(left)))
    folds = cycles[-1].fold + 1
    return Trace(rows, cols, dataflow, folds, _all(x), _all(w), _all(y), tuple(cycles))


def decimal_operands(m: int, k: int, n: int, seed: int = 0) -> tuple[Matrix, Matrix]:
    """x [m, k] and w [k, n] in float32 with two decimals, most of which bfloat16 cannot hold."""
    chance = Streams(seed).stream("explain decimals")
    drawn = np.array(
        [chance.randint(1, 100 * OPERAND_MAX - 1) / 100 for _ in range(m * k + k * n)], np.float32
    )
    return drawn[: m * k].reshape(m, k), drawn[m * k :].reshape(k, n)


def text_of(value: Number | None) -> str:
    """A number in at most 6 significant digits; nothing for None."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def as_text(trace: Trace) -> str:
    """The trace as plain text: the operands, one aligned block a cycle, the result."""
    head = [
        f"{trace.title}; {_count(len(trace.cycles), 'cycle')}, {_count(trace.folds, 'fold')}",
        "",
    ]
    blocks = [
        *head,
        *_beside([("x (activations)", trace.x), ("w (weights)", trace.w)], rows_named=False),
    ]
    for cycle in trace.cycles:
        blocks += ["", f"cycle {cycle.number}, fold {cycle.fold}, {PHASE_TEXTS[cycle.phase]}"]
        registers = [
            ("activations", cycle.activations),
            ("weights", cycle.weights),
            ("partial sums", cycle.sums),
        ]
        blocks += _beside(registers, rows_named=True)
        blocks += [f"  {line}" for line in sentences(cycle)]
    blocks += ["", *_beside([("y = x w", trace.y)], rows_named=False)]
    return "\n".join(blocks) + "\n"


def sentences(cycle: ArrayCycle) -> list[str]:
    """Return what passed the edges, in words: up to one line for each edge and one for the
    results."""
    lines = []
    for edge in ("left", "top"):
        names = [
            f"{o.matrix}[{o.row},{o.column}] = {text_of(o.value)}"
            for o in cycle.entered
            if o.edge == edge
        ]
        if names:
            lines.append(f"in at the {edge}: {', '.join(names)}")
    if cycle.left:
        lines.append(f"out: {', '.join(_output_text(output) for output in cycle.left)}")
    return lines


def _output_text(output: Output) -> str:
    name = f"y[{output.row},{output.column}]"
    if output.total == output.value:
        return f"{name} = {text_of(output.value)}" + ("" if output.final else " so far")
    return f"{name} + {text_of(output.value)} = {text_of(output.total)}" + (
        "" if output.final else " so far"
    )


def _draw(m: int, k: int, n: int, seed: int) -> tuple[Matrix, Matrix]:
    chance = Streams(seed).stream("explain")
    drawn = np.array([chance.randint(1, OPERAND_MAX) for _ in range(m * k + k * n)], np.float32)
    return drawn[: m * k].reshape(m, k), drawn[m * k :].reshape(k, n)


def _cycle(
    tick: Tick, numbers: Tick, dataflow: Dataflow, k: int, n: int, left: tuple[Output, ...]
) -> ArrayCycle:
    rows, columns = tick.sums.shape
    row, column = np.indices((rows, columns))
    # The place in the stream that a cell works on in this cycle.
    index = tick.step - row - column
    if dataflow == "os":
        has_sum = (index >= 0) & (row < tick.fold.depth) & (column < tick.fold.width)
    else:
        has_sum = (index >= 0) & (index < tick.fold.streamed) & (column < tick.fold.width)
    across, held = _plane(tick.across, numbers.across > 0), _plane(tick.held, numbers.held > 0)
    working = (numbers.across > 0) & (numbers.held > 0)
    left_matrix, top_matrix = ("w", "x") if dataflow == "is" else ("x", "w")
    entered = _operands_at("left", left_matrix, tick.left_edge, numbers.left_edge, k, n)
    if tick.top_edge is not None and numbers.top_edge is not None:
        entered += _operands_at("top", top_matrix, tick.top_edge, numbers.top_edge, k, n)
    return ArrayCycle(
        number=tick.number,
        fold=tick.fold.index,
        phase=tick.phase,
        activations=held if dataflow == "is" else across,
        weights=across if dataflow == "is" else held,
        sums=_plane(tick.sums, has_sum),
        working=tuple(tuple(line) for line in working.tolist()),
        entered=entered,
        left=left,
    )


def _operands_at(
    edge: str, matrix: str, values: Matrix, numbers: Matrix, k: int, n: int
) -> tuple[Operand, ...]:
    found = []
    for lane, (value, number) in enumerate(zip(values.tolist(), numbers.tolist(), strict=True)):
        if number > 0:
            row, column = divmod(number - 1, k if matrix == "x" else n)
            found.append(Operand(edge, lane, matrix, row, column, value))
    return tuple(found)


def _plane(values: Matrix, live: Matrix) -> Plane:
    return tuple(
        tuple(value if shown else None for value, shown in zip(line, live_line, strict=True))
        for line, live_line in zip(values.tolist(), live.tolist(), strict=True)
    )


def _all(values: Matrix) -> Plane:
    return tuple(tuple(line) for line in values.tolist())


def _beside(planes: Sequence[tuple[str, Plane]], rows_named: bool) -> list[str]:
    """Planes side by side, each with its name above; a dot stands for a register that holds nothing
    of the product."""
    height = max(len(plane) for _, plane in planes)
    blocks = []
    for name, plane in planes:
        texts = [[text_of(value) or "." for value in line] for line in plane]
        width = max(len(text) for line in texts for text in line)
        lines = [name, *(" ".join(text.rjust(width) for text in line) for line in texts)]
        blocks.append([*lines, *[""] * (height - len(plane))])
    widths = [max(len(line) for line in block) for block in blocks]
    labels = ["", *(f"row {row}" if rows_named else "" for row in range(height))]
    label_width = max(len(label) for label in labels)
    joined = []
    for index, label in enumerate(labels):
        parts = [block[index].ljust(width) for block, width in zip(blocks, widths, strict=True)]
        joined.append(f"  {label.ljust(label_width)}  {'   '.join(parts)}".rstrip())
    return joined


def _count(value: int, noun: str) -> str:
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"
