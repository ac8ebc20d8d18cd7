"""What is known while the operations of a body are placed: kernels, when they run, and where every
value is."""

from __future__ import annotations

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType
from podyard.engine.program.shardings import PLACED
from podyard.engine.timing.graph import (
    JUST_AFTER,
    LEAVES,
    MATRIX,
    REORDERING,
    SMALL_SIZE,
    UNFUSED,
    Kernel,
    KernelKind,
)
from podyard.engine.timing.kernels import better_order
from podyard.engine.timing.layout import compact_layout, padded_bytes
from podyard.hardware.cost_model import Tiling


class Places:
    """The kernels of one body so far."""

    def __init__(self, program: Program, body: Body, tiling: Tiling) -> None:
        self.program = program
        self.body = body
        self.tiling = tiling
        self.kernels: list[Kernel] = []
        self.aliases: dict[int, int] = {}
        self.unknown: list[HloOperation] = []
        # When each kernel runs; a kernel that nothing waits for yet may be moved to a later time.
        self.order: list[float] = []
        # Where a value comes from: in the flow of a kernel, or floating (complete when that time
        # has come).
        self.home: dict[int, int] = {}
        self.after: dict[int, float] = dict.fromkeys(body.parameters, -1.0)
        self.floating: dict[int, HloOperation] = {}
        self.reduced: set[int] = set()
        # Of these, what the kernel that makes them spreads over its rows again.
        self.row_values: set[int] = set()
        # Floating values that a kernel of their own puts into memory.
        self.materialised: set[int] = set()
        # Reshapes that move nothing: the array that they are another view of.
        self.view_of: dict[int, int] = {}
        self.users: dict[int, list[HloOperation]] = {}
        self._seen: dict[object, tuple[int, ...]] = {}
        # Results of repetitions: those of what they repeat.
        self.first_of: dict[int, int] = {}
        self._results: set[int] = set()
        # Results of optimization barriers: the same values, which are computed again behind them.
        self._barred: set[int] = set()
        self._stored_results: set[int] = set()
        # Results of updates, with what they take the place of, and all arrays that are updated; the
        # kernels that write floating values into others.
        self.in_place: dict[int, int] = {}
        self.updated: set[int] = set()
        self._targets: set[int] = set()
        # Results of collectives, with what each is made from.
        self._sent: dict[int, int] = {}
        self.filled: set[int] = set()
        # Tables that rows are scattered into: each row starts at a lane until they are turned.
        self.across: set[int] = set()
        self._writers: dict[int, Kernel] = {}
        # Numbers that are repeated in memory: no kernel repeats them along an axis that it then
        # joins with another.
        self.repeated: set[int] = set()
        self._places: dict[int, int] = {}
        # Arguments that were turned around: they lie as those do.
        self.turned_around: set[int] = set()
        # Arrays that a copy of in another layout is made for convolutions, with the axes in its
        # tiles.
        self._copied: set[tuple[int, tuple[int, ...]]] = set()
        # Pieces of rows that are written by themselves, with their types in memory, and the last
        # kernel that does.
        self.pieces: dict[int, TensorType] = {}
        self._last_pieces: Kernel | None = None
        # Kernels that read what several gates are cut from, by that value.
        self._gates: dict[int, int] = {}
        # Arguments with heads as a middle axis.
        self.headed: set[int] = set()
        # What they are cut from: it is written as they read it.
        self.cut: set[int] = set()

    def resolve(self, value: int) -> int:
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def _operands(self, operation: HloOperation) -> list[int]:
        return [self.resolve(value) for value in operation.operands]

    def _turn_whole(self, type_: TensorType, ahead: bool = False, turns: int | None = None) -> None:
        copy = self._start("copy", None)
        copy.moved, copy.turned, copy.ahead, copy.turns = type_, True, ahead, turns

    def _turn_table(self, type_: TensorType, ahead: bool = False, turns: int | None = None) -> None:
        """A table so that its rows lie along the lanes, or back."""
        self._turn_whole(type_, ahead, turns)
        self.kernels[-1].is_table = True

    def _relayout(
        self, value: int, minor: tuple[int, ...], layouts: dict[int, tuple[int, ...]],
        lanes_only: bool = False, lane: int | None = None, leaves: bool = False,
    ) -> None:  # fmt: skip
        """Copies an array that has others than the `minor` axes in a tile, and notes it in
        `layouts`; with `lane`, another axis in lanes. One copy is enough for all that read it.
        `leaves`: the copy is for this kernel alone."""
        own, type_ = self.resolve(value), self.program.types[self.resolve(value)]
        layout = compact_layout(type_, self.tiling)
        good = layout.lane_axis in minor and (lanes_only or layout.sublane_axis in minor)
        good = good if lane is None else layout.lane_axis == lane
        if type_.size >= SMALL_SIZE and not good and own not in self.program.infed:
            lies = (
                better_order(type_, minor)
                if lane is None
                else (lane, *(one for one in minor if one != lane))
            )
            if (
                lane is None
                and (own, lies[::-1]) in self._copied
                and self._pads_no_more(type_, lies[::-1], lies)
            ):
                lies = lies[::-1]
            if leaves or (own, lies) not in self._copied:
                copy = self._start("copy", None)
                copy.moved, copy.minor, copy.ahead = type_, lies, own in self.body.parameters
                copy.copies = None if leaves else own
                self._copied |= set() if leaves else {(own, lies)}
            layouts[value] = lies

    def _pads_no_more(
        self, type_: TensorType, lies: tuple[int, ...], other: tuple[int, ...]
    ) -> bool:
        own, most = (padded_bytes(type_, lane, rows, self.tiling) for lane, rows in (lies, other))
        return own <= most

    def _ready(self, value: int) -> float:
        """When a value is complete."""
        return self.order[self.home[value]] if value in self.home else self.after.get(value, -1.0)

    def _start(
        self, kind: KernelKind, operation: HloOperation | None, in_flow: bool = True
    ) -> Kernel:
        kernel = Kernel(len(self.kernels), kind, operation)
        self.kernels.append(kernel)
        self.order.append(float(kernel.index))
        if operation is not None:
            for value in operation.results:
                if in_flow:
                    self.home[value] = kernel.index
                else:
                    self.after[value] = kernel.index
        return kernel

    def _float(self, operation: HloOperation, after: float) -> None:
        for value in operation.results:
            self.floating[value] = operation
            self.after[value] = after

    def _homes_and_waits(self, operands: list[int]) -> tuple[list[int], list[float]]:
        """Kernels that have operands in flow, and when the others are complete; an updated array
        never is in flow."""
        homes = [
            self.home[value]
            for value in operands
            if value in self.home and value not in self.updated
        ]
        waits = [
            self._ready(value)
            for value in operands
            if value in self.updated or value not in self.home
        ]
        return homes, waits

    def _computes(self, value: int) -> bool:
        done: dict[int, HloOperation] = {}
        self._leaves(value, done)
        return any(operation.opcode not in REORDERING for operation in done.values())

    def _materialise(self, value: int, kernel: Kernel) -> None:
        self.home[value] = kernel.index
        self.materialised.add(value)
        kernel.outputs.append(value)

    def _write_cut(self, value: int) -> None:
        """Starts a kernel that writes a part of an array as soon as that is there."""
        kernel = self._start("loop", None)
        self.order[kernel.index] = self.after[value] + JUST_AFTER
        self._materialise(value, kernel)

    def _is_from_stack(self, value: int) -> bool:
        """Return whether a value is a slice at a place that is known when the program runs, or
        another shape of one."""
        made = self.floating.get(value)
        while made is not None and made.opcode == "reshape":
            made = self.floating.get(self.resolve(made.operands[0]))
        return made is not None and made.opcode == "dynamic_slice"

    def _cut_out(self, operation: HloOperation) -> None:
        """What is joined is read where it lies if it is the beginning of an array; another part is
        cut out before."""
        for value in (
            map(self.resolve, operation.operands) if operation.opcode == "concatenate" else ()
        ):
            made = self.floating.get(value)
            is_part = made is not None and made.opcode == "slice" and any(made.ints("starts"))
            if (
                is_part
                and value not in self.materialised
                and self.program.types[value].size >= SMALL_SIZE
            ):
                self._write_cut(value)

    def _cut_before(self, barrier: HloOperation) -> None:
        """What a turn of a loop cuts from stacks and hands to what is computed again (a checkpoint)
        is written first:
        no kernel reaches across a barrier."""
        is_real = barrier.opcode == "optimization_barrier" and PLACED not in barrier.attributes
        for given, behind in (
            zip(barrier.operands, barrier.results, strict=False) if is_real else ()
        ):
            value = self.resolve(given)
            is_part = self._is_from_stack(value) and value not in self.materialised
            # What else reads it (a norm) would be worked out with it in the model, in wider
            # numbers.
            is_part &= all(
                user.opcode in (*MATRIX, "reshape") for user in self.users.get(behind, ())
            )
            if is_part and self.program.types[value].size >= SMALL_SIZE:
                self._write_cut(value)

    def _convert_before(self, product: HloOperation) -> None:
        """Weights with heads as a middle axis are converted by a kernel before the first product
        that reads them."""
        for value in map(self.resolve, product.operands):
            made = self.floating.get(value)
            if made is None or made.opcode != "convert" or value in self.materialised:
                continue
            if self.resolve(made.operands[0]) in self.headed:
                self._materialise(value, self._start("loop", None))

    def _large_leaves(self, value: int) -> bool:
        return any(self.program.types[leaf].size >= SMALL_SIZE for leaf in self._leaves(value, {}))

    def _leaves(
        self, value: int, done: dict[int, HloOperation], reader: Kernel | None = None
    ) -> list[int]:
        """The values in memory that a floating value is computed from; the operations on the way go
        into `done`. `reader`: the kernel that needs it, which can only read what is in memory
        before it runs."""
        leaves: list[int] = []
        stack, seen = [value], set()
        while stack:
            current = self.resolve(stack.pop())
            if current in seen:
                continue
            seen.add(current)
            if current in self.view_of:
                leaves.append(self.resolve(self.view_of[current]))
                continue
            operation = self.floating.get(current)
            if operation is None or (current in self.materialised and self._reads(current, reader)):
                leaves.append(current)
                continue
            done[id(operation)] = operation
            stack += operation.operands
        return leaves

    def _reads(self, value: int, reader: Kernel | None) -> bool:
        """Return whether a reader takes a materialised value from memory: it is there, and not
        larger than its sources."""
        home = self.home[value]
        if reader is None or (value in self._targets | self.repeated and home != reader.index):
            return True
        if home == reader.index or self.order[home] >= self.order[reader.index]:
            return False
        if value in self.pieces:
            return True
        if (
            reader.anchor is not None
            and value in map(self.resolve, reader.anchor.operands)
            and reader.kind in UNFUSED
        ):
            return True
        sources = [
            leaf
            for operand in self.floating[value].operands
            for leaf in self._leaves(self.resolve(operand), {})
        ]
        # What each source takes is counted once, as if it were read for this value alone.
        return self._bytes(value) <= sum(self._bytes(source) for source in set(sources))

    def _in_same_tiles(self, value: int) -> int | None:
        """The array in memory that a value is, where outer axes are split, joined or in another
        order and no more: it
        is another view of the same tiles. None for others."""
        while value in self.floating and value not in self.materialised:
            made = self.floating[value]
            if made.opcode not in ("reshape", "transpose"):
                return None
            source = self.resolve(made.operands[0])
            given, type_ = self.program.types[source], self.program.types[value]
            old, new = (compact_layout(one, self.tiling) for one in (given, type_))
            before, after = (old.lane_axis, old.sublane_axis), (new.lane_axis, new.sublane_axis)
            if None in (*before, *after):
                return None
            if made.opcode == "transpose":
                is_kept = (
                    tuple(made.ints("dims")[axis] for axis in after if axis is not None) == before
                )
            else:
                ends = [len(one.shape) - 1 for one in (given, type_)]
                is_kept = [before, after] == [(end, end - 1) for end in ends] and self._splits_rows(
                    given, type_
                )
            if not is_kept:
                return None
            value = source
        return value

    def _splits_rows(self, given: TensorType, type_: TensorType) -> bool:
        """Return whether rows stay whole, and tiles of rows together, from one shape to another."""
        (rows, lanes), (new_rows, new_lanes) = given.shape[-2:], type_.shape[-2:]
        few, many = sorted((rows, new_rows))
        whole = few == many or few % self.tiling.sublanes(many, given.itemsize) == 0
        return lanes == new_lanes and many % few == 0 and whole

    def _bytes(self, value: int) -> float:
        type_ = self.program.types[value]
        return type_.size * type_.itemsize

    def _is_constant(self, value: int) -> bool:
        return value in self.floating and self.floating[value].opcode in LEAVES
