"""What is done with sums, and rows that a kernel keeps whole: from v4 on the largest number of a
row, what is left of it, its exponentials and their sum are worked out in the kernel of the product
that makes the row."""

from __future__ import annotations

import math

from podyard.engine.program.ir import HloOperation
from podyard.engine.timing.graph import ELEMENTWISE, REORDERING, SMALL_SIZE, Kernel
from podyard.engine.timing.pieces import Pieces
from podyard.engine.timing.touched import UPDATES

# Longer rows do not fit whole into the windows of a kernel.
_LONGEST_ROW = 8192
# Minus infinity, as a number and as the text of a program writes it in float32 and bfloat16.
_LEAST = (-math.inf, 0xFF800000, 0xFF80)


class Rows(Pieces):
    """Finds such reductions."""

    def _is_least(self, value: int) -> bool:
        """Return whether it is minus infinity, than which nothing is less."""
        maker = self.program.producer(value)
        while maker is not None and maker.opcode in ("broadcast_in_dim", "reshape"):
            maker = self.program.producer(maker.operands[0])
        return (
            maker is not None
            and maker.opcode == "constant"
            and maker.attributes.get("value") in _LEAST
        )

    def _is_of_sums(self, operation: HloOperation, in_flow: list[int]) -> bool:
        """Return whether it works on several sums: no kernel does that after it has summed up."""
        of_sums = any(value in self.reduced and value not in self.row_values for value in in_flow)
        return of_sums and bool(self.program.types[operation.results[0]].shape)

    def _reads_the_same(self, operation: HloOperation) -> Kernel | None:
        """A kernel that sums up numbers made of the same array as this sum, and runs after they are
        there."""
        type_, ready = (
            self.program.types[operation.operands[0]],
            max(map(self._ready, self._operands(operation))),
        )
        read = self._read_by(operation)
        for kernel in self.kernels:
            if self.order[kernel.index] <= ready:
                continue
            if (
                kernel.kind == "reduce"
                and kernel.anchor in kernel.reductions
                and type_.size >= SMALL_SIZE
            ):
                same = self.program.types[kernel.anchor.operands[0]].shape == type_.shape
                if same and read & self._read_by(kernel.anchor):
                    return kernel
        return None

    def _read_by(self, operation: HloOperation) -> set[int]:
        """The arrays, as large as what it sums up, that a reduction reads."""
        size = self.program.types[operation.operands[0]].size
        leaves = {leaf for value in self._operands(operation) for leaf in self._leaves(value, {})}
        return {leaf for leaf in leaves if self.program.types[leaf].size >= size}

    def _is_taken_from_rows(self, operation: HloOperation) -> bool:
        """From v4 on, whether the largest number of a row is taken from the row, and exponentials
        of what is left are summed up: one kernel does all that with whole rows, where they fit and
        the array has three axes at least."""
        type_ = self.program.types[operation.operands[0]]
        axes = operation.ints("dims")
        if (
            self.tiling.min_sublanes > 1
            or operation.opcode != "reduce"
            or len(axes) != 1
            or type_.dtype != "f32"
        ):
            return False
        wide = sum(extent > 1 for extent in type_.shape)
        if wide < 3 or type_.shape[axes[0]] > _LONGEST_ROW:
            return False
        if wide < len(type_.shape) and not self._is_reshaped(operation.operands[0]):
            return False
        source, spread, seen = (
            self.resolve(operation.operands[0]),
            list(operation.results),
            set[int](),
        )
        while spread:
            value = spread.pop()
            for user in self.users.get(value, ()):
                others = [one for one in user.operands if one != value]
                is_same = user.opcode in ("broadcast_in_dim", "reshape") or (
                    user.opcode == "maximum" and all(map(self._is_spread_constant, others))
                )
                if is_same and user.results[0] not in seen:
                    seen.add(user.results[0])
                    spread += user.results
                elif user.opcode == "subtract" and self.resolve(user.operands[0]) == source:
                    powers = [
                        one
                        for one in self.users.get(user.results[0], ())
                        if one.opcode == "exponential"
                    ]
                    reads = [two for one in powers for two in self.users.get(one.results[0], ())]
                    summed = any(
                        two.opcode == "reduce" and two.ints("dims") == axes for two in reads
                    )
                    shares = [two.results[0] for two in reads if two.opcode == "divide"]
                    if summed and shares and not any(map(self._is_stacked, shares)):
                        return True
        return False

    def _is_stacked(self, value: int) -> bool:
        """Return whether a turn of a loop puts the value aside."""
        users = self.users.get(value, ())
        moved = [
            user for user in users if user.opcode in REORDERING or user.opcode == "broadcast_in_dim"
        ]
        return any(user.opcode in UPDATES for user in users) or any(
            self._is_stacked(one.results[0]) for one in moved
        )

    def _is_spread_constant(self, value: int) -> bool:
        maker = self.program.producer(value)
        while maker is not None and maker.opcode in ("broadcast_in_dim", "reshape", "convert"):
            maker = self.program.producer(maker.operands[0])
        return maker is not None and maker.opcode == "constant"

    def _is_reshaped(self, value: int) -> bool:
        """Return whether a value was made in another shape: axes of one are not the maker's then,
        and fall away."""
        size, stack, seen = self.program.types[value].size, [value], set[int]()
        while stack:
            maker = self.program.producer(stack.pop())
            if maker is None or id(maker) in seen or maker.opcode not in ELEMENTWISE:
                continue
            if maker.opcode == "reshape" or (
                maker.opcode == "transpose" and self._keeps_order(maker)
            ):
                return True
            seen.add(id(maker))
            stack += [one for one in maker.operands if self.program.types[one].size == size]
        return False

    def _keeps_order(self, operation: HloOperation) -> bool:
        """Return whether a transposition moves only axes of one."""
        shape = self.program.types[operation.operands[0]].shape
        moved = [axis for axis in operation.ints("dims") if shape[axis] > 1]
        return moved == sorted(moved)
