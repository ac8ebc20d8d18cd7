"""What an operation touches of an array that it reads or writes only in part: slices, rows of a
table, updates in
place. Rows count as the compiler counts them: in whole tiles of the array that they are cut
from."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from podyard.engine.program.ir import HloOperation, Program, TensorType
from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.kernels import UPDATED_TABLES, is_turned_by_sparse_cores, tile_bytes
from podyard.engine.timing.layout import (
    LANES,
    compact_layout,
    in_whole_tiles,
    nbytes_in_memory,
    padded_bytes,
)
from podyard.hardware.cost_model import CostModel, Tiling

# Tables whose rows would take more padding are left as they lie. (17 compiled on v5e: with 128 MB
# they are turned, with 144 MB not; 500,000 rows of 16 on five generations.)
_MOST_PADDING_BYTES = 128 * 2**20

SLICING = frozenset({"slice", "dynamic_slice"})
# The operand that is written into the first one.
# A scatter writes the numbers that it starts from itself up to so many bytes, and so many times the
# rows that it changes: 15.4 MB of zeros and 16.4, 6.1 times as many rows and 12.2, in compiled
# steps of one table.
_FILLED_BYTES = 16 * 10**6
_ROWS_FILLED = 8
UPDATES = {"dynamic_update_slice": 1, "scatter": 2}


def row_count(program: Program, operation: HloOperation) -> int:
    """Return how many slices of `sizes` a gather takes, or a scatter writes."""
    moved = operation.results[0] if operation.opcode == "gather" else operation.operands[-1]
    return program.types[moved].size // max(1, math.prod(operation.ints("sizes")))


def is_one_slice(program: Program, operation: HloOperation) -> bool:
    """Return whether a gather or a scatter of one array is a slice at one place: the compiler makes
    that of it."""
    sizes = operation.ints("sizes")
    return bool(sizes) and len(operation.results) == 1 and row_count(program, operation) == 1


def fills_itself(program: Program, operation: HloOperation) -> bool:
    """Return whether a scatter writes the numbers that it starts from itself: not where it changes
    a small part of many."""
    if operation.opcode != "scatter":
        return False
    table = program.types[operation.operands[0]]
    rows = table.size // max(1, math.prod(operation.ints("sizes")))
    return table.nbytes < _FILLED_BYTES or rows <= _ROWS_FILLED * row_count(program, operation)


def part_bytes(type_: TensorType, extents: tuple[int, ...], tiling: Tiling) -> int:
    """Bytes of the tiles of an array that a part of it lies in, at best."""
    layout = compact_layout(type_, tiling)
    count = 1
    for axis, extent in enumerate(extents):
        unit = 1
        if axis == layout.lane_axis and len(extents) > 1:
            unit = LANES
        elif axis == layout.sublane_axis:
            unit = tiling.sublanes(type_.shape[axis], type_.itemsize)
        count *= -(-extent // unit) * unit
    return min(layout.nbytes, math.ceil(count * type_.itemsize))


class Touched:
    """Bytes that one kernel reads and writes of values that it does not touch whole. `again`: what
    it cuts from values that it reads whole, too; each piece is read by itself."""

    def __init__(
        self, program: Program, kernel: Kernel, resolve: Callable[[int], int], costs: CostModel
    ) -> None:
        self.read: dict[int, float] = {}
        self.written: dict[int, float] = {}
        self.again: dict[int, float] = {}
        anchor = [kernel.anchor] if kernel.anchor is not None else []
        for operation in (*kernel.operations, *kernel.reductions, *anchor):
            part = _part(program, operation, costs)
            for place, operand in enumerate(operation.operands):
                value = resolve(operand)
                self.read[value] = self.read.get(value, 0.0) + (
                    part if part is not None and not place else math.inf
                )
                if part is not None and not place and operation.opcode == "slice":
                    self.again[value] = self.again.get(value, 0.0) + part
        for operation in kernel.updates:
            target, update = (
                program.types[operation.operands[place]] for place in (0, UPDATES[operation.opcode])
            )
            self.written[operation.results[0]] = _laid_bytes(target, update, costs.tiling)
        self.again = {
            value: nbytes for value, nbytes in self.again.items() if self.read[value] == math.inf
        }
        self.read = {value: nbytes for value, nbytes in self.read.items() if nbytes < math.inf}


def _laid_bytes(target: TensorType, part: TensorType, tiling: Tiling) -> int:
    """Bytes of a part that lies in memory as the array that it is put into."""
    layout = compact_layout(target, tiling)
    if (
        layout.lane_axis is None
        or layout.sublane_axis is None
        or len(part.shape) != len(target.shape)
    ):
        return nbytes_in_memory(part, tiling)
    return padded_bytes(part, layout.lane_axis, layout.sublane_axis, tiling)


def lies_across(type_: TensorType, sizes: tuple[int, ...], tiling: Tiling) -> bool:
    """Return whether the rows that are looked up lie across the lanes, so that the array has to be
    turned; not if that takes too much padding."""
    lane = compact_layout(type_, tiling).lane_axis
    is_across = (
        lane is not None
        and len(sizes) > 1
        and sizes[lane] == 1 < type_.shape[lane]
        and max(sizes) > 1
    )
    return is_across and _padding(type_, tiling) <= _MOST_PADDING_BYTES


def updated_tables(program: Program, kernel: Kernel, tiling: Tiling) -> tuple[list[int], list[int]]:
    """Arguments and results of an element-wise kernel that lie with their rows in lanes: rows are
    scattered into one that lies so, and one argument is updated with it. With the state of an
    optimizer the table is turned first."""
    tables = set()
    for value in kernel.inputs:
        made, type_ = program.producer(value), program.types[value]
        if (
            made is not None
            and made.opcode == "scatter"
            and lies_across(type_, made.ints("sizes"), tiling)
        ):
            tables.add(type_.shape)
    alike = [
        one
        for one in kernel.inputs
        if one in program.body.parameters and program.types[one].shape in tables
    ]
    if kernel.kind != "loop" or len(alike) != 1:
        return [], []
    return alike, [one for one in kernel.outputs if program.types[one].shape in tables]


def with_padding(
    program: Program, kernel: Kernel, moved: tuple[float, float],
    is_here: Callable[[int, Kernel], bool],
    costs: CostModel,
) -> tuple[float, float]:  # fmt: skip
    """Bytes that a kernel reads and writes, `moved`, with the padding of updated tables in HBM. (17
    compiled tables, 10 of them on five generations.)"""
    arguments, results = updated_tables(program, kernel, costs.tiling)
    sides = ((arguments, costs.near_read_share), (results, costs.near_write_share))
    read, written = (
        own
        + sum(
            _missing(program.types[one], share if is_here(one, kernel) else 1.0, costs)
            for one in values
        )
        for own, (values, share) in zip(moved, sides, strict=True)
    )
    return read, written


def beside_sparse_cores(program: Program, kernel: Kernel, costs: CostModel) -> int:
    """Bytes of a result that SparseCores turn: it is not written over what it is made from."""
    _, results = updated_tables(program, kernel, costs.tiling)
    turned = [
        type_ for one in results if is_turned_by_sparse_cores(type_ := program.types[one], costs)
    ]
    return sum(nbytes_in_memory(one, costs.tiling) + _padding(one, costs.tiling) for one in turned)


def _missing(type_: TensorType, counted: float, costs: CostModel) -> float:
    """Bytes with padding where this share of those without counts already; nothing of what fits on
    the chip."""
    own = nbytes_in_memory(type_, costs.tiling)
    whole = own + _padding(type_, costs.tiling)
    is_near = counted < 1 and whole <= costs.prefetch_bytes / UPDATED_TABLES
    return 0.0 if is_near else whole - counted * own


def _padding(type_: TensorType, tiling: Tiling) -> int:
    """Bytes of padding that rows in lanes take and columns in lanes do not."""
    last = len(type_.shape) - 1
    return padded_bytes(type_, last, last - 1, tiling) - nbytes_in_memory(type_, tiling)


def _part(program: Program, operation: HloOperation, costs: CostModel) -> float | None:
    """Bytes that are read of the first operand; None for all of it."""
    opcode = operation.opcode
    if opcode == "slice":
        source, part = program.types[operation.operands[0]], program.types[operation.results[0]]
        # Both lie alike: as the part does if that fills all tiles of either.
        is_filled = (
            max(_laid_bytes(part, one, costs.tiling) - one.nbytes for one in (source, part)) <= 0
        )
        return (
            tile_bytes(in_whole_tiles(part), costs)
            if is_filled
            else _laid_bytes(source, part, costs.tiling)
        )
    if opcode in SLICING or (opcode == "gather" and is_one_slice(program, operation)):
        return tile_bytes(program.types[operation.results[0]], costs)
    if opcode in ("gather", "scatter") and operation.ints("sizes"):
        source, rows = program.types[operation.operands[0]], row_count(program, operation)
        return min(
            tile_bytes(source, costs),
            rows * part_bytes(source, operation.ints("sizes"), costs.tiling),
        )
    return 0.0 if opcode == "dynamic_update_slice" else None


class TypesInMemory:
    """The types that values have in memory, and their bytes in tiles. They do not change and are
    asked for again and again, so that they are remembered."""

    def __init__(
        self,
        program: Program,
        stored: Mapping[int, TensorType],
        fixed: Collection[int],
        costs: CostModel,
    ) -> None:
        """`stored`: types that are not the program's. `fixed`: values that come from outside or go
        there, whose axes of one matter."""
        self._program = program
        self._stored = stored
        self._fixed = fixed
        self._costs = costs
        self._types: dict[int, TensorType] = {}
        self._nbytes: dict[int, float] = {}

    def of(self, value: int) -> TensorType:
        return self._stored.get(value) or self._program.types[value]

    def without_ones(self, value: int) -> TensorType:
        """Return the type as tiles see it: axes of one matter only where they come from outside,
        or go there."""
        type_ = self._types.get(value)
        if type_ is None:
            type_ = self.of(value)
            if 1 in type_.shape and value not in self._fixed:
                shape = tuple(extent for extent in type_.shape if extent > 1)
                type_ = TensorType(shape, type_.dtype)
            self._types[value] = type_
        return type_

    def nbytes(self, value: int) -> float:
        nbytes = self._nbytes.get(value)
        if nbytes is None:
            nbytes = self._nbytes[value] = tile_bytes(self.without_ones(value), self._costs)
        return nbytes
