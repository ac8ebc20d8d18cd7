"""The matrix unit, register by register: the specification that the fast paths are held to.

An array of `rows` x `columns` cells multiplies x [m, k] by w [k, n]. Each cell has three registers:
an operand that moves one cell to the right in every cycle, a second operand, and a sum. Operands
enter skewed: lane i of an edge takes its first operand i cycles after lane 0, so that the right
pairs meet. Three dataflows:

- `ws`, weight stationary: a tile of w [k, n] is shifted in from the top, one row a cycle, and
  stays. Activations move right, sums move down and leave at the bottom, the column of lane i one
  cycle after that of lane i - 1.
- `is`, input stationary: the same with the roles exchanged. A tile of x, transposed to [k, m],
  stays, w moves right.
- `os`, output stationary: x moves right, w moves down, each cell keeps the sum of one element of
  the result and hands it out when the last product is in; the way out is next to the array and
  costs no cycles.

What does not fit is cut into folds, one after another: each loads, streams and drains before the
next begins. `ws` and `is` cut the depth k into tiles of `rows`, whose results are added outside of
the array in the order of the tiles; `os` never cuts the depth. Cycles are those that SCALE-Sim
counts when memory never stalls (`systolic_cycles`).

Operands are bfloat16 numbers with sums in float32 (the product of two is exact there, unless it
leaves the range), or 8-bit integers with sums in 32 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.numerics.bf16 import round_to_bf16
from podyard.engine.timing.systolic import Dataflow

# The largest product is (-128)^2: up to this depth no sum can leave 32 bits.
INT8_DEPTH_MAX = (2**31 - 1) // 128**2

Matrix = NDArray[Any]  # float32, or whole numbers; the functions below say which
Phase = Literal["load", "stream", "drain"]


@dataclasses.dataclass(frozen=True, slots=True)
class MxuRun:
    """`result` [m, n] in float32 or int32. `cycles`: the number of the last cycle, where the first
    has number 0, which is what SCALE-Sim reports as its count of cycles."""

    result: Matrix
    cycles: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fold:
    """One filling of the array. `first_row`, `first_column`: where its tile begins in what is laid
    over the array's
    rows and columns (ws: k and n; is: k and m; os: m and n). `depth` rows and `width` columns of it
    are used, and `streamed` operands pass through a lane."""

    index: int
    first_row: int
    first_column: int
    depth: int
    width: int
    streamed: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """The registers [rows, columns] at the end of one cycle, and what passed the edges in it.

    `across`: the operands that move right. `held`: the second operands, which stay (ws, is) or move
    down (os). `step`: cycles since the first operand of this fold's stream entered, below 0 while
    loading: cell (r, c) works on operand `step - r - c` of the stream. `left_edge` [rows] and
    `top_edge` [columns] entered; `top_edge` is None where nothing can. `out_rows`, `out_columns`:
    the elements of the result that `out_values` belong to and are added to.
    """

    number: int
    fold: Fold
    phase: Phase
    step: int
    across: Matrix
    held: Matrix
    sums: Matrix
    left_edge: Matrix
    top_edge: Matrix | None
    out_rows: NDArray[np.intp]
    out_columns: NDArray[np.intp]
    out_values: Matrix


class SystolicArray:
    """The registers, advanced one cycle at a time. `sums_move`: whether sums move down (ws, is) or
    stay (os)."""

    def __init__(self, rows: int, columns: int, dtype: np.dtype[Any], sums_move: bool) -> None:
        self.across = np.zeros((rows, columns), dtype)
        self.held = np.zeros((rows, columns), dtype)
        self.sums = np.zeros((rows, columns), dtype)
        self._sums_move = sums_move

    def tick(self, left_edge: Matrix, top_edge: Matrix | None) -> None:
        """One cycle: `left_edge` [rows] enters; with `top_edge` [columns] the second operands move
        down one row."""
        self.across = np.concatenate((left_edge[:, None], self.across[:, :-1]), axis=1)
        if top_edge is not None:
            self.held = np.concatenate((top_edge[None], self.held[:-1]))
        before = self.sums
        if self._sums_move:
            before = np.concatenate((np.zeros_like(before[:1]), before[:-1]))
        # An infinity meets a lane that nothing streams through as 0 x infinity; no such sum is ever
        # taken out.
        with np.errstate(invalid="ignore", over="ignore"):
            self.sums = before + self.across * self.held

    def clear_sums(self) -> None:
        """Sets the sums that stay to 0, as the next fold's first operands arrive."""
        self.sums = np.zeros_like(self.sums)


def prepare(x: Matrix, w: Matrix) -> tuple[Matrix, Matrix]:
    """Return what the cells see: float32 operands rounded to bfloat16 (kept in float32), int8
    operands widened to int32.

    x [m, k] and w [k, n]. Raises PodyardError INVALID_ARGUMENT for anything but matrices of fitting
    shapes and of one of the two types, for an empty one, and for 8-bit integers deeper than
    INT8_DEPTH_MAX, whose sum could overflow.
    """
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0]:
        raise invalid(f"a matrix unit multiplies [m, k] by [k, n], not {x.shape} by {w.shape}")
    if 0 in (*x.shape, *w.shape):
        raise invalid(f"a matrix product has positive sizes, not {x.shape} by {w.shape}")
    if x.dtype == np.float32 and w.dtype == np.float32:
        return round_to_bf16(x), round_to_bf16(w)
    if x.dtype == np.int8 and w.dtype == np.int8:
        if x.shape[1] > INT8_DEPTH_MAX:
            raise invalid(
                f"8-bit products are summed in 32 bits: at most {INT8_DEPTH_MAX} deep, not "
                f"{x.shape[1]}"
            )
        return x.astype(np.int32), w.astype(np.int32)
    raise invalid(
        f"a matrix unit multiplies float32 by float32 or int8 by int8, not {x.dtype} by {w.dtype}"
    )


def mxu_matmul(
    x: Matrix, w: Matrix, rows: int = 128, columns: int = 128, dataflow: Dataflow = "ws"
) -> MxuRun:
    """x [m, k] times w [k, n] on a rows x columns array, both float32 (rounded to bfloat16 first)
    or both int8.

    Source: the dataflows and the count are SCALE-Sim's (arXiv 1811.02883). Raises PodyardError
    INVALID_ARGUMENT for operands that `prepared` refuses, an array without cells, an unknown
    dataflow.
    """
    x, w = prepare(x, w)
    result = np.zeros((x.shape[0], w.shape[1]), x.dtype)
    last = 0
    for tick in run_array(x, w, rows, columns, dataflow):
        with np.errstate(invalid="ignore", over="ignore"):
            result[tick.out_rows, tick.out_columns] += tick.out_values
        last = tick.number
    return MxuRun(result, last)


def run_array(x: Matrix, w: Matrix, rows: int, columns: int, dataflow: Dataflow) -> Iterator[Tick]:
    """The cycles of x [m, k] times w [k, n], operands of one type that are used as they are,
    products in that type.

    Raises PodyardError INVALID_ARGUMENT, when the first cycle is asked for, as `mxu_matmul` does
    for the array.
    """
    if rows < 1 or columns < 1:
        raise invalid(f"an array has at least one row and one column, not {rows}x{columns}")
    if dataflow == "ws":
        yield from _run_stationary(x, w, rows, columns, transposed=False)
    elif dataflow == "is":
        yield from _run_stationary(w.T, x.T, rows, columns, transposed=True)
    elif dataflow == "os":
        yield from _run_output_stationary(x, w, rows, columns)
    else:
        raise invalid(f"dataflow {dataflow!r} is not one of ws, is, os")


def _run_stationary(
    moving: Matrix, stationary: Matrix, rows: int, columns: int, transposed: bool
) -> Iterator[Tick]:
    """moving [t, k] times stationary [k, c]; `transposed`: the result's rows are c."""
    streamed = moving.shape[0]
    array = SystolicArray(rows, columns, moving.dtype, sums_move=True)
    number = 0
    nothing = np.zeros(rows, moving.dtype)
    for fold in _folds(stationary.shape[0], stationary.shape[1], streamed, rows, columns):
        rows_used = slice(fold.first_row, fold.first_row + fold.depth)
        tile = np.zeros((rows, columns), moving.dtype)
        tile[: fold.depth, : fold.width] = stationary[
            rows_used, fold.first_column : fold.first_column + fold.width
        ]
        ticks = streamed + rows + columns - 2
        left_edges = _skew(moving[:, rows_used], rows, ticks)
        for step in range(-rows, ticks):
            # The tile's last row enters first: it has the longest way down.
            top_edge = tile[-step - 1] if step < 0 else None
            left_edge = nothing if step < 0 else left_edges[step]
            array.tick(left_edge, top_edge)
            # Sum t of column c is complete when it has passed all rows, which it enters t + c
            # cycles after the first.
            column = np.arange(fold.width)
            index = step - (rows - 1) - column
            leaving = (index >= 0) & (index < streamed)
            column, index = column[leaving], index[leaving]
            values = array.sums[-1, column]
            at, across = index, column + fold.first_column
            if transposed:
                at, across = across, at
            phase = _phase(step, fold.depth, streamed)
            registers = (array.across, array.held, array.sums)
            yield Tick(
                number, fold, phase, step, *registers, left_edge, top_edge, at, across, values
            )
            number += 1


def _run_output_stationary(x: Matrix, w: Matrix, rows: int, columns: int) -> Iterator[Tick]:
    depth = x.shape[1]
    array = SystolicArray(rows, columns, x.dtype, sums_move=False)
    number = 0
    for fold in _folds(x.shape[0], w.shape[1], depth, rows, columns):
        array.clear_sums()
        ticks = depth + rows + columns - 2
        left_edges = _skew(x[fold.first_row : fold.first_row + fold.depth].T, rows, ticks)
        top_edges = _skew(w[:, fold.first_column : fold.first_column + fold.width], columns, ticks)
        for step in range(ticks):
            array.tick(left_edges[step], top_edges[step])
            # Cell (r, c) adds its last product depth - 1 + r + c cycles after the first operand
            # entered.
            row = np.arange(fold.depth)
            column = step - (depth - 1) - row
            complete = (column >= 0) & (column < fold.width)
            row, column = row[complete], column[complete]
            values = array.sums[row, column]
            at, across = row + fold.first_row, column + fold.first_column
            phase = _phase(step, max(fold.depth, fold.width), depth)
            registers = (array.across, array.held, array.sums)
            yield Tick(
                number,
                fold,
                phase,
                step,
                *registers,
                left_edges[step],
                top_edges[step],
                at,
                across,
                values,
            )
            number += 1


def _folds(on_rows: int, on_columns: int, streamed: int, rows: int, columns: int) -> Iterator[Fold]:
    index = 0
    for first_column in range(0, on_columns, columns):
        for first_row in range(0, on_rows, rows):
            depth, width = min(rows, on_rows - first_row), min(columns, on_columns - first_column)
            yield Fold(index, first_row, first_column, depth, width, streamed)
            index += 1


def _skew(operands: Matrix, lanes: int, ticks: int) -> Matrix:
    """Return what enters an edge of `lanes` lanes in each of `ticks` cycles. Lane i of operands [t,
    used lanes] is i late."""
    edges = np.zeros((ticks, lanes), operands.dtype)
    for lane in range(operands.shape[1]):
        edges[lane : lane + operands.shape[0], lane] = operands[:, lane]
    return edges


def _phase(step: int, lanes: int, streamed: int) -> Phase:
    if step < 0:
        return "load"
    return "stream" if step < streamed + lanes - 1 else "drain"
