"""One device's program from a global one: an axis of some arguments is split, and the split follows the operations.

Sums over a split axis are partial on every device; an `all_reduce` completes them. Where an operation mixes a split
axis in a way that has no rule here, an `all_gather` makes its operand whole. This is data parallelism as the SPMD
partitioner of XLA does it for programs whose arguments are split along one axis.
"""

from __future__ import annotations

import dataclasses
import math

from podyard.engine.program.doubts import Doubt
from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, walk
from podyard.engine.program.shardings import PLACED, WHOLE, missing_transfer

_SAME_SHAPE_EXEMPT = frozenset({"constant", "iota", "rng", "create_token"})
_WINDOWED = frozenset({"reduce_window", "select_and_scatter", "pad", "slice", "reverse", "dynamic_update_slice"})


def partition(program: Program, split_axes: dict[int, int], devices: int) -> Program:
    """`program` for one of `devices`, arguments split along `split_axes` (value -> axis)."""
    if devices == 1 or not (split_axes or _has_borders(program)):
        return dataclasses.replace(program, partitions=1, split_axes={})
    return _Partitioner(program, devices).run(split_axes)


def _has_borders(program: Program) -> bool:
    """Whether some of the program is one device's already, or says where its values are to lie."""
    return bool(program.placed_results) or any(
        operation.opcode in ("shard", "unshard") or PLACED in operation.attributes for operation in walk(program.body)
    )


def split_type(type_: TensorType, axis: int, devices: int) -> TensorType:
    """The part of one device; an axis that does not divide is rounded up, as padding does."""
    shape = tuple(-(-extent // devices) if index == axis else extent for index, extent in enumerate(type_.shape))
    return TensorType(shape, type_.dtype)


class _Partitioner:
    def __init__(self, program: Program, devices: int) -> None:
        self.program = program
        self.devices = devices
        self.global_types = list(program.types)
        self.types = list(program.types)
        self.axes: dict[int, int] = {}
        self.producers: dict[int, HloOperation] = {}
        # Values that an inserted collective replaces.
        self.renamed: dict[int, int] = {}
        # Values that were made whole already, in this body or around it.
        self.whole: dict[int, int] = {}
        # Parameters of loops that are split from the second turn on, hence from the first.
        self.carried: dict[int, int] = {}
        self.doubts: list[Doubt] = []

    def run(self, split_axes: dict[int, int]) -> Program:
        for value, axis in split_axes.items():
            self._split(value, axis)
        body = self._body(self.program.body)
        for place, wanted in self.program.placed_results.items():
            self._check_placement(wanted, body.results[place], f"result {place}")
        doubts = [*self.program.doubts, *self.doubts]
        return Program(body, self.types, partitions=1, donated=dict(self.program.donated), doubts=doubts)

    def _check_placement(self, wanted: int, value: int, what: str) -> None:
        axis = self.axes.get(value, WHOLE)
        if axis != wanted:
            self.doubts.append(missing_transfer(what, wanted, axis))

    def _split(self, value: int, axis: int) -> None:
        self.axes[value] = axis
        self.types[value] = split_type(self.global_types[value], axis, self.devices)

    def _new_value(self, type_: TensorType) -> int:
        self.types.append(type_)
        self.global_types.append(type_)
        return len(self.types) - 1

    def _now(self, value: int) -> int:
        return self.renamed.get(value, value)

    def _body(self, body: Body) -> Body:
        operations: list[HloOperation] = []
        around, self.whole = self.whole, self.whole.copy()
        for operation in body.operations:
            self.producers.update(dict.fromkeys(operation.results, operation))
            operations += self._operation(operation)
        self.whole = around
        results = [self._now(value) for value in body.results]
        return Body(list(body.parameters), operations, results)

    def _operation(self, operation: HloOperation) -> list[HloOperation]:
        opcode, before = operation.opcode, list[HloOperation]()
        operands = [self._now(value) for value in operation.operands]
        if opcode in ("shard", "unshard"):
            return self._boundary(operation, operands)
        if operation.bodies and opcode in ("while", "case", "if"):
            return [self._control(operation, operands)]
        split = [value in self.axes for value in operands]
        partial = False
        if any(split) and opcode not in _SAME_SHAPE_EXEMPT:
            rule = getattr(self, f"_{opcode}", None)
            before, operands = self._agree(operation, operands)
            if opcode in _WINDOWED:
                axis: int | None = self._of_windowed(operation, operands)
            elif rule is not None:
                axis, partial = rule(operation, operands)
            else:
                axis = self._of_elementwise(operation, operands)
            if axis is None and not partial:
                gathers, operands = self._gather_operands(operands, operation)
                before += gathers
            elif axis is not None:
                for result in operation.results:
                    if len(self.global_types[result].shape) > axis:
                        self._split(result, axis)
                self._follow(operation, operands, axis)
        moved = dataclasses.replace(operation, operands=tuple(operands))
        self._localise(moved)
        if PLACED in operation.attributes:
            self._check_placement(operation.int(PLACED), operation.results[0], f"the result at {operation.where}")
        return [*before, moved, *(self._complete_sums(moved) if partial else [])]

    def _boundary(self, operation: HloOperation, operands: list[int]) -> list[HloOperation]:
        """Inside of a manual computation everything is one device's already."""
        self.axes.pop(operands[0], None) if operation.opcode == "shard" else None
        self.types[operands[0]] = (
            self.types[operation.results[0]] if operation.opcode == "shard" else self.types[operands[0]]
        )
        if operation.opcode == "unshard":
            self.types[operation.results[0]] = self.types[operands[0]]
            if operation.int(PLACED, WHOLE) != WHOLE:
                self.axes[operation.results[0]] = operation.int(PLACED)
        return [dataclasses.replace(operation, operands=tuple(operands))]

    def _control(self, operation: HloOperation, operands: list[int]) -> HloOperation:
        """Parameters of a body are split like what they stand for, results like what the body returns; of a loop that
        stacks its results (or takes slices of a stack) one axis further (or less)."""
        loop = operation.opcode == "while"
        bodies = self._turn(operation, operands) if loop else tuple(self._body(body) for body in operation.bodies)
        for result, made in zip(operation.results, bodies[-1].results, strict=False):
            self._split_alike(result, made)
        return dataclasses.replace(operation, operands=tuple(operands), bodies=bodies)

    def _turn(self, operation: HloOperation, operands: list[int]) -> tuple[Body, ...]:
        """The bodies of a loop. What comes split out of a turn goes split into the next; the turn is read again."""
        while True:
            for body in operation.bodies:
                for parameter, operand in zip(body.parameters, operands, strict=False):
                    if parameter in self.carried:
                        self._split_if_whole(operand, self.carried[parameter])
                    self._split_alike(parameter, operand)
            before = self.axes.copy(), self.types.copy(), self.global_types.copy(), self.renamed.copy()
            bodies = tuple(self._body(body) for body in operation.bodies)
            found = self._carried_anew(operation, operands, bodies[-1])
            if not found:
                return bodies
            self.carried |= found
            self.axes, self.types, self.global_types, self.renamed = before

    def _carried_anew(self, operation: HloOperation, operands: list[int], turned: Body) -> dict[int, int]:
        """Parameters that start whole and come out split, with their axes; none that are slices of a stack."""
        found: dict[int, int] = {}
        for place, (operand, made) in enumerate(zip(operands, turned.results, strict=False)):
            type_ = self.global_types[operand]
            stays = type_ == self.global_types[turned.parameters[place]] == self.global_types[operation.results[place]]
            if stays and made in self.axes and operand not in self.axes and self.producers.get(operand) is not None:
                found |= {body.parameters[place]: self.axes[made] for body in operation.bodies}
        return found

    def _split_alike(self, value: int, other: int) -> None:
        if other in self.axes and value not in self.axes:
            axis = self.axes[other] + len(self.global_types[value].shape) - len(self.global_types[other].shape)
            if 0 <= axis < len(self.global_types[value].shape):
                self._split(value, axis)

    def _complete_sums(self, operation: HloOperation) -> list[HloOperation]:
        """Completes partial sums; later readers get the sums."""
        after = []
        for value in operation.results:
            whole = self._new_value(self.types[value])
            self.renamed[value] = whole
            after.append(HloOperation("all_reduce", (value,), (whole,), {}, where=operation.where))
        return after

    def _gather_operands(self, operands: list[int], operation: HloOperation) -> tuple[list[HloOperation], list[int]]:
        before, whole = [], list[int]()
        for value in operands:
            if value not in self.axes:
                whole.append(value)
                continue
            if value not in self.whole:
                self.whole[value] = self._new_value(self.global_types[value])
                attributes: dict[str, object] = {"dim": self.axes[value]}
                before.append(
                    HloOperation("all_gather", (value,), (self.whole[value],), attributes, where=operation.where)
                )
            whole.append(self.whole[value])
        return before, whole

    def _agree(self, operation: HloOperation, operands: list[int]) -> tuple[list[HloOperation], list[int]]:
        """Sides of a product that are split along axes that do not meet: the smaller is made whole."""
        odd = list[int]()
        if operation.opcode == "dot_general" and operands[0] in self.axes and operands[1] in self.axes:
            left, right = operands[:2]
            lhs = operation.ints("lhs_batching") + operation.ints("lhs_contracting")
            rhs = operation.ints("rhs_batching") + operation.ints("rhs_contracting")
            if (self.axes[left], self.axes[right]) not in zip(lhs, rhs, strict=True):
                odd = [left if self.global_types[left].size < self.global_types[right].size else right]
        before, whole = self._gather_operands(odd, operation)
        made = dict(zip(odd, whole, strict=True))
        return before, [made.get(value, value) for value in operands]

    def _localise(self, operation: HloOperation) -> None:
        """Attributes that repeat the shape of the result."""
        if operation.opcode in ("slice",) and operation.results[0] in self.axes:
            axis = self.axes[operation.results[0]]
            limits = list(operation.ints("limits"))
            limits[axis] = self.types[operation.operands[0]].shape[axis]
            operation.attributes = {**operation.attributes, "limits": tuple(limits)}

    def _follow(self, operation: HloOperation, operands: list[int], axis: int) -> None:
        """What is only there to meet a split array (constants spread out, random masks) is made split, too."""
        shape = self.global_types[operation.results[0]].shape
        stack = [value for value in operands if value not in self.axes and self.global_types[value].shape == shape]
        while stack:
            value = stack.pop()
            producer = self.producers.get(value)
            if (
                producer is None
                or value in self.axes
                or producer.opcode in ("dot_general", "convolution", "reduce", "gather")
            ):
                continue
            for result in producer.results:
                if self.global_types[result].shape == shape:
                    self._split(result, axis)
            stack += [
                one for one in producer.operands if one not in self.axes and self.global_types[one].shape == shape
            ]

    # --- where the split goes

    def _of_elementwise(self, operation: HloOperation, operands: list[int]) -> int | None:
        shape = self.global_types[operation.results[0]].shape
        for value in operands:
            if value in self.axes and self.global_types[value].shape == shape:
                return self.axes[value]
        return None

    def _of_windowed(self, operation: HloOperation, operands: list[int]) -> int | None:
        """Kept while the operation leaves the axis as it is."""
        for value in operands:
            axis = self.axes.get(value)
            before = self.global_types[value].shape
            after = self.global_types[operation.results[0]].shape
            if axis is not None and len(before) == len(after) and before[axis] == after[axis]:
                return axis
        return None

    def _broadcast_in_dim(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        source, axis = self.global_types[operands[0]].shape, self.axes[operands[0]]
        dims = operation.ints("dims")
        result = self.global_types[operation.results[0]].shape
        return (dims[axis] if result[dims[axis]] == source[axis] else None), False

    def _reshape(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        source, axis = self.global_types[operands[0]].shape, self.axes[operands[0]]
        result = self.global_types[operation.results[0]].shape
        before = math.prod(source[:axis])
        for index, extent in enumerate(result):
            if math.prod(result[:index]) == before and extent > 1:
                return (index if extent % self.devices == 0 or extent == source[axis] else None), False
        return None, False

    def _transpose(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        return operation.ints("dims").index(self.axes[operands[0]]), False

    def _reduce(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        axis = next(self.axes[value] for value in operands if value in self.axes)
        dims = operation.ints("dims")
        if axis in dims:
            return None, True
        return axis - sum(dim < axis for dim in dims), False

    def _dot_general(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        left, right = operands[:2]
        lhs_batching, rhs_batching = operation.ints("lhs_batching"), operation.ints("rhs_batching")
        lhs_contracting, rhs_contracting = operation.ints("lhs_contracting"), operation.ints("rhs_contracting")
        left_rank, right_rank = len(self.types[left].shape), len(self.types[right].shape)
        left_free = [axis for axis in range(left_rank) if axis not in (*lhs_batching, *lhs_contracting)]
        right_free = [axis for axis in range(right_rank) if axis not in (*rhs_batching, *rhs_contracting)]
        if left in self.axes:
            axis = self.axes[left]
            if axis in lhs_contracting:
                self._split_if_whole(right, rhs_contracting[lhs_contracting.index(axis)])
                return None, True
            if axis in lhs_batching:
                self._split_if_whole(right, rhs_batching[lhs_batching.index(axis)])
                return lhs_batching.index(axis), False
            return len(lhs_batching) + left_free.index(axis), False
        axis = self.axes[right]
        if axis in rhs_contracting:
            self._split_if_whole(left, lhs_contracting[rhs_contracting.index(axis)])
            return None, True
        if axis in rhs_batching:
            self._split_if_whole(left, lhs_batching[rhs_batching.index(axis)])
            return rhs_batching.index(axis), False
        return len(lhs_batching) + len(left_free) + right_free.index(axis), False

    def _split_if_whole(self, value: int, axis: int) -> None:
        """The other side of a product that is split: a device reads its part of it."""
        if value not in self.axes and self.producers.get(value) is not None:
            self._split(value, axis)

    def _convolution(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        left, kernel = operands[:2]
        lhs_dims, kernel_dims, out_dims = (operation.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims"))
        if left in self.axes:
            axis = self.axes[left]
            if axis == lhs_dims[0]:
                return out_dims[0], False
            return None, axis == lhs_dims[1]
        axis = self.axes[kernel]
        if axis == kernel_dims[1]:
            return out_dims[1], False
        return None, axis == kernel_dims[0]

    def _gather(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        """Rows looked up by split indices, or in a split table whose axis stays."""
        result = self.global_types[operation.results[0]].shape
        for value in (operands[1], operands[0]):
            if value in self.axes:
                axis, extent = self.axes[value], self.global_types[value].shape[self.axes[value]]
                if axis < len(result) and result[axis] == extent:
                    return axis, False
        return None, False

    def _scatter(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        target, updates = operands[0], operands[-1]
        result = self.global_types[operation.results[0]].shape
        if target in self.axes:
            return self.axes[target], False
        axis = next(self.axes[value] for value in operands if value in self.axes)
        extent = self.global_types[updates].shape[axis] if axis < len(self.global_types[updates].shape) else -1
        if axis < len(result) and result[axis] == extent and len(result) == len(self.global_types[updates].shape):
            return axis, False
        return None, True

    def _sort(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        axis = next(self.axes[value] for value in operands if value in self.axes)
        return (axis if axis != operation.int("dim") else None), False

    def _concatenate(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        axis = next(self.axes[value] for value in operands if value in self.axes)
        if axis == operation.int("dim"):
            return None, False
        for value in operands:
            self._split_if_whole(value, axis)
        return axis, False

    def _dynamic_slice(self, operation: HloOperation, operands: list[int]) -> tuple[int | None, bool]:
        axis = self.axes.get(operands[0])
        if axis is None:
            return None, False
        same = self.global_types[operands[0]].shape[axis] == self.global_types[operation.results[0]].shape[axis]
        return (axis if same else None), False
