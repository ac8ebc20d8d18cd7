"""Relations between the dimensions of an operation's arrays: its factors, as Shardy's sharding
rules.

A factor is a loop that the operation goes over; a dimension is one factor, or several (of a
reshape). Source: openxla/shardy,
shardy/dialect/sdy/transforms/propagation/op_sharding_rule_registry.cc.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence

from podyard.engine.program.attributes import flat_ints
from podyard.engine.program.ir import HloOperation

Shape = tuple[int, ...]


class Factor(enum.IntEnum):
    """PASS: goes through. SUM: is summed up. SHIFT: goes through, and neighbours exchange their
    edges. HELD: stays
    split where it lies, what is put in there is whole. WHOLE: what is split along it must be made
    whole."""

    PASS, SUM, SHIFT, HELD, WHOLE = range(5)


@dataclasses.dataclass(slots=True)
class Rule:
    """`tensors`: for each operand, then each result, the factors of each dimension, major first."""

    tensors: list[list[tuple[int, ...]]]
    sizes: list[int]
    kinds: list[Factor]
    # Whether data only goes through, element by element, or in another order.
    is_plain: bool = False
    # Whether all arrays have the same shape and order.
    is_same: bool = False
    # Factors along which nothing spreads.
    blocked: set[int] = dataclasses.field(default_factory=set)


class _FactorBuilder:
    def __init__(self, operands: Sequence[Shape], results: Sequence[Shape]) -> None:
        self.shapes = [*operands, *results]
        self.first = len(operands)
        self.rule = Rule([[()] * len(shape) for shape in self.shapes], [], [])

    def add(self, size: int, kind: Factor, *places: tuple[int, int]) -> None:
        """A factor of `size` in dimension `d` of tensor `t` for each (t, d) of `places`."""
        if size <= 1:
            return
        self.rule.sizes.append(size)
        self.rule.kinds.append(kind)
        for tensor, dimension in places:
            self.rule.tensors[tensor][dimension] += (len(self.rule.sizes) - 1,)

    def alike(
        self, kinds: Mapping[int, Factor] | None = None, otherwise: Factor | None = None
    ) -> None:
        """Dimensions of the first result, with those of the same size of every other tensor of its
        rank. `otherwise`: the kind where the first operand's has another size."""
        shape = self.shapes[self.first]
        for dimension, size in enumerate(shape):
            places, kind = [], (kinds or {}).get(dimension, Factor.PASS)
            for tensor, other in enumerate(self.shapes):
                if len(other) == len(shape) and other[dimension] == size:
                    places.append((tensor, dimension))
            first = self.shapes[0]
            if otherwise is not None and len(first) == len(shape) and first[dimension] != size:
                kind = otherwise
                if kind == Factor.SHIFT:
                    places.append((0, dimension))
                elif kind == Factor.WHOLE:
                    self.add(first[dimension], kind, (0, dimension))
                    kind = Factor.PASS
            self.add(size, kind, *places)


_PLAIN = ("reshape", "transpose")
_Read = Callable[[_FactorBuilder, HloOperation], None]


def rule_of(operation: HloOperation, operands: Sequence[Shape], results: Sequence[Shape]) -> Rule:
    """Of an operation without a rule: its same-sized dimensions, as of an element-wise one."""
    builder = _FactorBuilder(operands, results)
    rule = _RULES.get(operation.opcode)
    if rule is not None:
        rule(builder, operation)
    elif results:
        builder.alike()
        alike = [shape for shape in operands if shape]
        builder.rule.is_plain = all(shape == results[0] for shape in alike)
        builder.rule.is_same = (
            builder.rule.is_plain and len(alike) == len(operands) and len(set(results)) == 1
        )
    builder.rule.is_plain = builder.rule.is_plain or operation.opcode in _PLAIN
    return builder.rule


def has_rule(operation: HloOperation, operands: Sequence[Shape], results: Sequence[Shape]) -> bool:
    """Return whether what the operation does to its dimensions is known, or follows from their
    being the same."""
    return operation.opcode in _RULES or (
        bool(results) and all(shape in ((), results[0]) for shape in operands)
    )


def _broadcast(builder: _FactorBuilder, operation: HloOperation) -> None:
    source, dims = builder.shapes[0], operation.ints("dims")
    for dimension, size in enumerate(builder.shapes[-1]):
        places = [(1, dimension)]
        if dimension in dims and source[dims.index(dimension)] == size:
            places.append((0, dims.index(dimension)))
        builder.add(size, Factor.PASS, *places)
    # only dimensions of one are new
    builder.rule.is_plain = math.prod(source) == math.prod(builder.shapes[-1])


def _transpose(builder: _FactorBuilder, operation: HloOperation) -> None:
    for place, dimension in enumerate(operation.ints("dims")):
        builder.add(builder.shapes[0][dimension], Factor.PASS, (0, dimension), (1, place))


def _reshape(builder: _FactorBuilder, _: HloOperation) -> None:
    """Factors are the stretches between the places where both shapes are cut, as far as they divide
    each other."""
    source, made = builder.shapes[:2]
    place, other = len(source), len(made)
    left = right = 1
    parts: list[tuple[int, list[tuple[int, int]]]] = []
    while True:  # from the minor end
        while left == 1 and place > 0:
            place -= 1
            left = source[place]
        while right == 1 and other > 0:
            other -= 1
            right = made[other]
        if left == 1 or right == 1:
            break
        smaller = min(left, right)
        # no common part: what is left of both goes its own way
        if left % smaller or right % smaller:
            break
        parts.append((smaller, [(0, place), (1, other)]))
        left, right = left // smaller, right // smaller
    for size, places in reversed(parts):
        builder.add(size, Factor.PASS, *places)


def _reduce(builder: _FactorBuilder, operation: HloOperation) -> None:
    dims, count, made = operation.ints("dims"), len(builder.shapes) - builder.first, 0
    for dimension, size in enumerate(builder.shapes[0]):
        same = [t for t in range(builder.first) if builder.shapes[t] == builder.shapes[0]]
        places = [(tensor, dimension) for tensor in same]
        if dimension not in dims:
            places += [(builder.first + result, made) for result in range(count)]
            made += 1
        builder.add(size, Factor.SUM if dimension in dims else Factor.PASS, *places)


def _dot(builder: _FactorBuilder, operation: HloOperation) -> None:
    left, right = builder.shapes[:2]
    batching = list(
        zip(operation.ints("lhs_batching"), operation.ints("rhs_batching"), strict=True)
    )
    contracting = list(
        zip(operation.ints("lhs_contracting"), operation.ints("rhs_contracting"), strict=True)
    )
    used = [*batching, *contracting]
    place = 0
    for lhs, rhs in batching:
        builder.add(left[lhs], Factor.PASS, (0, lhs), (1, rhs), (2, place))
        place += 1
    for tensor, shape in ((0, left), (1, right)):
        for dimension, size in enumerate(shape):
            if dimension not in [pair[tensor] for pair in used]:
                builder.add(size, Factor.PASS, (tensor, dimension), (2, place))
                place += 1
    for lhs, rhs in contracting:
        builder.add(left[lhs], Factor.SUM, (0, lhs), (1, rhs))


def _convolution(builder: _FactorBuilder, operation: HloOperation) -> None:
    left, kernel, made = builder.shapes[:3]
    lhs, kernel_dims, out = (
        operation.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims")
    )
    if operation.int("batch_group_count", 1) == 1:
        builder.add(left[lhs[0]], Factor.PASS, (0, lhs[0]), (2, out[0]))
    if operation.int("feature_group_count", 1) > 1:
        if left[lhs[1]] == made[out[1]]:  # depthwise
            builder.add(made[out[1]], Factor.PASS, (0, lhs[1]), (1, kernel_dims[1]), (2, out[1]))
    elif operation.int("batch_group_count", 1) > 1:
        builder.add(left[lhs[1]], Factor.SUM, (0, lhs[1]), (1, kernel_dims[0]))
    else:
        builder.add(made[out[1]], Factor.PASS, (1, kernel_dims[1]), (2, out[1]))
        builder.add(left[lhs[1]], Factor.SUM, (0, lhs[1]), (1, kernel_dims[0]))
    for source, taps, target in zip(lhs[2:], kernel_dims[2:], out[2:], strict=True):
        if left[source] == kernel[taps] and made[target] == 1:  # a separate product
            builder.add(left[source], Factor.SUM, (0, source), (1, taps))
        else:
            kind = (
                Factor.PASS if kernel[taps] == 1 and left[source] == made[target] else Factor.SHIFT
            )
            builder.add(max(left[source], made[target]), kind, (0, source), (2, target))


def _same(otherwise: Factor) -> _Read:
    return lambda builder, _: builder.alike(otherwise=otherwise)


def _of_window(builder: _FactorBuilder, operation: HloOperation) -> None:
    window = operation.ints("window")
    builder.alike(
        {d: Factor.WHOLE for d, size in enumerate(window) if size > 1}, otherwise=Factor.SHIFT
    )


def _along(name: str) -> _Read:
    def read(builder: _FactorBuilder, operation: HloOperation) -> None:
        dims = operation.ints(name) or (operation.int(name, -1),)
        rank = len(builder.shapes[builder.first])
        builder.alike({dimension % rank: Factor.WHOLE for dimension in dims} if rank else None)

    return read


def _of_slice(builder: _FactorBuilder, _: HloOperation) -> None:
    """Neighbours exchange edges where a part is taken; a part of a few is taken by all."""
    builder.alike(otherwise=Factor.SHIFT)


def _concatenate(builder: _FactorBuilder, operation: HloOperation) -> None:
    dim, made = operation.int("dim"), builder.shapes[-1]
    tensors = range(len(builder.shapes))
    for dimension, size in enumerate(made):
        kind = Factor.SHIFT if dimension == dim else Factor.PASS
        builder.add(size, kind, *((tensor, dimension) for tensor in tensors))


def _update(builder: _FactorBuilder, _: HloOperation) -> None:
    """An array, what is put into it, and where."""
    into, put = builder.shapes[0], builder.shapes[1]
    for dimension, size in enumerate(into):
        if put[dimension] == size:
            builder.add(
                size, Factor.PASS, (0, dimension), (1, dimension), (builder.first, dimension)
            )
        else:
            builder.add(size, Factor.HELD, (0, dimension), (builder.first, dimension))
            builder.add(put[dimension], Factor.WHOLE, (1, dimension))


def _pairs(builder: _FactorBuilder, _: HloOperation) -> None:
    """Each operand becomes a result."""
    for tensor in range(min(builder.first, len(builder.shapes) - builder.first)):
        for dimension, size in enumerate(builder.shapes[tensor]):
            builder.add(size, Factor.PASS, (tensor, dimension), (builder.first + tensor, dimension))
    builder.rule.is_plain = True


def _numbers_of(operation: HloOperation, *names: str) -> list[tuple[int, ...]]:
    numbers = operation.attributes.get("dimension_numbers")
    return [flat_ints(numbers.get(name)) if isinstance(numbers, dict) else () for name in names]


def _gather(builder: _FactorBuilder, operation: HloOperation) -> None:
    source, indices, made = builder.shapes[0], builder.shapes[1], builder.shapes[-1]
    offset, collapsed, batching, own, vector = _numbers_of(
        operation, "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims",
        "index_vector_dim",
    )  # fmt: skip
    sizes = operation.ints("sizes")
    if len(sizes) != len(source):
        builder.alike(otherwise=Factor.WHOLE)
        return
    at = vector[0] if vector else len(indices) - 1
    positions = [dimension for dimension in range(len(indices)) if dimension != at]
    free = [dimension for dimension in range(len(made)) if dimension not in offset]
    for index, target in zip(positions, free, strict=False):
        places = [(1, index), (2, target)]
        places += [(0, batching[own.index(index)])] if index in own else []
        builder.add(indices[index], Factor.PASS, *places)
    kept = [d for d in range(len(source)) if d not in collapsed and d not in batching]
    for dimension, target in zip(kept, offset, strict=False):
        if sizes[dimension] == source[dimension]:
            builder.add(source[dimension], Factor.PASS, (0, dimension), (2, target))
        else:
            builder.add(source[dimension], Factor.WHOLE, (0, dimension))
    for dimension in collapsed:
        builder.add(source[dimension], Factor.SUM, (0, dimension))


def _scatter(builder: _FactorBuilder, operation: HloOperation) -> None:
    count = (builder.first - 1) // 2 or 1
    source, indices, updates = builder.shapes[0], builder.shapes[count], builder.shapes[count + 1]
    window, inserted, batching, own, vector = _numbers_of(
        operation, "update_window_dims", "inserted_window_dims", "input_batching_dims",
        "scatter_indices_batching_dims", "index_vector_dim",
    )  # fmt: skip
    results = range(builder.first, builder.first + count)
    at = vector[0] if vector else len(indices) - 1
    positions = [dimension for dimension in range(len(indices)) if dimension != at]
    spread = [dimension for dimension in range(len(updates)) if dimension not in window]
    tensors = [*range(count), *results]
    for index, update in zip(positions, spread, strict=False):
        places = [(count, index), *((count + 1 + n, update) for n in range(count))]
        if index in own:
            places += [(tensor, batching[own.index(index)]) for tensor in tensors]
        builder.add(updates[update], Factor.PASS if index in own else Factor.SUM, *places)
    kept = [d for d in range(len(source)) if d not in inserted and d not in batching]
    for dimension, update in zip(kept, window, strict=False):
        places = [(tensor, dimension) for tensor in tensors]
        if updates[update] == source[dimension]:
            places += [(count + 1 + n, update) for n in range(count)]
        builder.add(source[dimension], Factor.PASS, *places)
    for dimension in inserted:
        builder.add(source[dimension], Factor.HELD, *((tensor, dimension) for tensor in tensors))


def _with_batches(kept: int) -> _Read:
    """Of linear algebra: all but the last dimensions."""

    def read(builder: _FactorBuilder, _: HloOperation) -> None:
        rank = len(builder.shapes[builder.first])
        builder.alike(dict.fromkeys(range(max(0, rank - kept), rank), Factor.WHOLE))

    return read


_RULES: dict[str, _Read] = {
    "broadcast_in_dim": _broadcast, "transpose": _transpose, "reshape": _reshape, "reduce": _reduce,
    "dot_general": _dot, "convolution": _convolution, "gather": _gather, "scatter": _scatter,
    "concatenate": _concatenate, "dynamic_update_slice": _update, "pad": _of_slice,
    "slice": _of_slice,
    "dynamic_slice": _same(Factor.WHOLE), "reverse": _along("dims"), "sort": _along("dim"),
    "top_k": _along("axis"),
    "reduce_window": _of_window, "select_and_scatter": _of_window, "fft": _with_batches(3),
    "cholesky": _with_batches(2),
    "triangular_solve": _with_batches(2), "cumsum": _along("axis"),
    "all_gather": _same(Factor.WHOLE),
    "optimization_barrier": _pairs, "reduce_scatter": _same(Factor.WHOLE),
    "all_to_all": _same(Factor.WHOLE),
}  # fmt: skip
