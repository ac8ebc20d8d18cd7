"""Shardings of all values of a program from those that it gives, as Shardy propagates them.

Operations are visited until nothing changes, plain ones first, then factors that go through, then sums; a value's
sharding only grows, so each is visited a bounded number of times. In one operation the factor with the larger array
behind it wins, and one array never has an axis twice. Sources: openxla/shardy, op_priority_propagation.cc,
aggressive_factor_propagation.cc, sharding_projection.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from podyard.engine.program.factors import Factor, Rule, Shape, rule_of
from podyard.engine.program.ir import HloOperation, Program, TensorType, walk
from podyard.engine.program.shardings import MANUAL, PLACED, Axes, Mesh, Sharding

# By level: plain operations; factors that go through (of broadcasts only backward); the same; all.
_LEVELS = 4


class _Node:
    """An operation, or an edge along which values are the same: of a loop, a branch, a result."""

    __slots__ = ("is_broadcast", "manual", "rule", "values")

    def __init__(self, rule: Rule, values: Sequence[int], manual: Axes = (), is_broadcast: bool = False) -> None:
        self.rule = rule
        self.values = tuple(values)
        self.manual = frozenset(manual)
        self.is_broadcast = is_broadcast


def edge_rule(shapes: Sequence[Shape]) -> Rule:
    """Of values that are the same but for leading dimensions, which only some have (stacks that a loop goes over)."""
    rule = Rule([[()] * len(shape) for shape in shapes], [], [], is_plain=True, is_same=len(set(shapes)) == 1)
    for back in range(1, min(map(len, shapes), default=0) + 1):
        sizes = {shape[-back] for shape in shapes}
        if len(sizes) == 1:
            for tensor, shape in enumerate(shapes):
                rule.tensors[tensor][len(shape) - back] = (len(rule.sizes),)
            rule.sizes.append(shapes[0][-back])
            rule.kinds.append(Factor.PASS)
    return rule


def factor_axes(mesh: Mesh, factors: Sequence[int], sizes: Sequence[int], axes: Axes) -> dict[int, Axes]:
    """Which axes of a dimension split which of its factors. What fits no factor is left out."""
    if len(factors) == 1:
        return {factors[0]: axes} if axes else {}
    found: dict[int, Axes] = {}
    place = 0
    for axis in axes:
        while place < len(factors) and mesh.extent(found.get(factors[place], ())) == sizes[factors[place]]:
            place += 1
        if place == len(factors):
            break
        factor = factors[place]
        if sizes[factor] % (mesh.extent(found.get(factor, ())) * mesh.sizes[axis]):
            break
        found[factor] = (*found.get(factor, ()), axis)
    return found


def dimension_axes(mesh: Mesh, factors: Sequence[int], sizes: Sequence[int], found: dict[int, Axes]) -> Axes:
    """The axes of a dimension from those of its factors: minor ones only behind major ones that are split whole."""
    axes: Axes = ()
    for factor in factors:
        axes += found.get(factor, ())
        if mesh.extent(found.get(factor, ())) != sizes[factor]:
            break
    return axes


class Propagation:
    """`dims[value]`: the axes of each dimension; values that are whole are not in it."""

    def __init__(self, program: Program, types: Sequence[TensorType]) -> None:
        self.program = program
        self.mesh = program.mesh
        self.types = types
        self.dims: dict[int, list[Axes]] = {}
        self._closed: dict[int, tuple[bool, ...]] = {}
        self._nodes: list[_Node] = []
        self._users: dict[int, list[int]] = {}
        self.rules: dict[int, Rule] = {}

    def run(self) -> None:
        for value, sharding in self.program.shardings.items():
            self._place(value, sharding)
        for operation in walk(self.program.body):
            self._collect(operation)
        for place, sharding in self.program.result_shardings.items():
            value = self.program.body.results[place]
            outside = result_value(place)
            self._place(outside, sharding)
            self._add(_Node(edge_rule([self._shape(value)] * 2), (value, outside)))
        for level in range(_LEVELS):
            self._sweep(level)

    # --- what there is

    def _shape(self, value: int) -> Shape:
        return self.types[value].shape

    def _place(self, value: int, sharding: Sharding) -> None:
        if any(sharding.dims):
            self.dims[value] = list(sharding.dims)
        self._closed[value] = tuple(not sharding.is_open(dimension) for dimension in range(len(sharding.dims)))

    def _add(self, node: _Node) -> None:
        for value in dict.fromkeys(node.values):
            self._users.setdefault(value, []).append(len(self._nodes))
        self._nodes.append(node)

    def _collect(self, operation: HloOperation) -> None:
        if operation.opcode in ("while", "case", "if"):
            self._edges(operation)
            return
        placed, manual = operation.attributes.get(PLACED), operation.attributes.get(MANUAL, ())
        if isinstance(placed, Sharding):
            if operation.opcode == "shard":
                inside = tuple(tuple(axis for axis in axes if axis not in placed.manual) for axes in placed.dims)
                self._place(operation.results[0], Sharding(inside, placed.open_dims))
                self._hint(operation.operands[0], placed)
            else:
                self._place(operation.results[0], placed)
        shapes = [self._shape(value) for value in operation.operands]
        results = [self._shape(value) for value in operation.results]
        if operation.opcode in ("shard", "unshard"):
            tensors: list[list[tuple[int, ...]]] = [[(d,) for d in range(len(results[0]))] for _ in range(2)]
            sizes = [max(pair) for pair in zip(shapes[0], results[0], strict=True)]
            rule = Rule(tensors, sizes, [Factor.PASS] * len(sizes), is_plain=True)
            manual = placed.manual if isinstance(placed, Sharding) else ()
        else:
            rule = rule_of(operation, shapes, results)
        self.rules[id(operation)] = rule
        if rule.sizes:
            broadcast = operation.opcode == "broadcast_in_dim" and not rule.is_plain
            self._add(_Node(rule, (*operation.operands, *operation.results), tuple(manual), broadcast))  # type: ignore[arg-type]

    def _hint(self, value: int, sharding: Sharding) -> None:
        """What goes into a manual computation is wanted as it takes it."""
        if value not in self.dims and value not in self._closed and any(sharding.dims):
            self.dims[value] = list(sharding.dims)

    def _edges(self, operation: HloOperation) -> None:
        """Values of a loop that stand for each other from turn to turn; results of branches."""
        operands, results, last = operation.operands, operation.results, operation.bodies[-1]
        if operation.opcode != "while":
            edges = [[result, *(body.results[n] for body in operation.bodies)] for n, result in enumerate(results)]
        else:
            edges = [
                [results[n], operands[n], *(body.parameters[n] for body in operation.bodies), last.results[n]]
                for n in range(len(operands))
            ]
        for values in edges:
            self._add(_Node(edge_rule([self._shape(value) for value in values]), values))

    # --- how it spreads

    def _sweep(self, level: int) -> None:
        stack = [index for index in range(len(self._nodes) - 1, -1, -1) if _is_new_at(self._nodes[index], level)]
        waiting = bytearray(len(self._nodes))
        for index in stack:
            waiting[index] = 1
        while stack:
            index = stack.pop()
            waiting[index] = 0
            for value in self._visit(self._nodes[index], level):
                for user in reversed(self._users[value]):
                    if not waiting[user] and user != index:
                        waiting[user] = 1
                        stack.append(user)

    def _visit(self, node: _Node, level: int) -> list[int]:
        """Brings the shardings of one operation's arrays together; gives those that changed."""
        rule, dims = node.rule, self.dims
        if level == 0 and not rule.is_plain:
            return []
        given = [dims.get(value) for value in node.values]
        if not any(given) or (rule.is_same and given.count(given[0]) == len(given)):
            return []
        found = [self._project(node, tensor, value) for tensor, value in enumerate(node.values)]
        best: dict[int, tuple[int, int, int, Axes]] = {}
        for tensor, split in enumerate(found):
            if not split or (node.is_broadcast and level == 1 and tensor == 0):
                continue
            size = math.prod(self._size(node.values[tensor]))
            for factor, axes in split.items():
                kind = rule.kinds[factor]
                if kind == Factor.WHOLE or (level < _LEVELS - 1 and kind != Factor.PASS):
                    continue
                offer = (-kind, size, self.mesh.extent(axes), axes)
                if factor not in best or (offer[2], size) > (best[factor][2], best[factor][1]):
                    best[factor] = offer
        changed: dict[int, None] = {}
        for factor in sorted(best, key=lambda one: best[one][:3], reverse=True):
            for tensor in range(len(node.values)):
                if self._extend(node, tensor, factor, best[factor][3], found[tensor]):
                    changed[tensor] = None
        return [node.values[tensor] for tensor in changed if self._write(node, tensor, found[tensor])]

    def _size(self, value: int) -> Shape:
        return self.types[self._own(value)].shape

    def _own(self, value: int) -> int:
        """The value behind a result's outside."""
        return value if value >= 0 else self.program.body.results[-1 - value]

    def _project(self, node: _Node, tensor: int, value: int) -> dict[int, Axes]:
        found: dict[int, Axes] = {}
        given = self.dims.get(value)
        if given is None:
            return found
        for factors, axes in zip(node.rule.tensors[tensor], given, strict=True):
            if axes and factors:
                own = tuple(axis for axis in axes if axis not in node.manual) if node.manual else axes
                found |= factor_axes(self.mesh, factors, node.rule.sizes, own)
        return found

    def _extend(self, node: _Node, tensor: int, factor: int, axes: Axes, found: dict[int, Axes]) -> bool:
        """Splits a factor of one array further, as far as the array's other axes and its shape let it."""
        has = found.get(factor, ())
        if axes[: len(has)] != has or len(axes) == len(has):
            return False
        value = node.values[tensor]
        dimension = next((d for d, fs in enumerate(node.rule.tensors[tensor]) if factor in fs), None)
        if dimension is None or self._closed.get(value, ())[dimension : dimension + 1] == (True,):
            return False
        used = {axis for axes in self.dims.get(value, ()) for axis in axes} | {a for own in found.values() for a in own}
        used |= node.manual
        taken = list(has)
        size = node.rule.sizes[factor]
        alone = len(node.rule.tensors[tensor][dimension]) == 1
        for axis in axes[len(has) :]:
            extent = self.mesh.extent(taken) * self.mesh.sizes[axis]
            if axis in used or (size % extent and not (alone and size >= extent)):
                break
            taken.append(axis)
        if len(taken) == len(has):
            return False
        found[factor] = tuple(taken)
        return True

    def _write(self, node: _Node, tensor: int, found: dict[int, Axes]) -> bool:
        value = node.values[tensor]
        before = self.dims.get(value) or [()] * len(self._size(value))
        after = list(before)
        for dimension, factors in enumerate(node.rule.tensors[tensor]):
            if not factors:
                continue
            manual = tuple(axis for axis in before[dimension] if axis in node.manual)
            axes = manual + dimension_axes(self.mesh, factors, node.rule.sizes, found)
            if len(axes) > len(before[dimension]) and axes[: len(before[dimension])] == before[dimension]:
                after[dimension] = axes
        if after == before:
            return False
        self.dims[value] = after
        return True


def _is_new_at(node: _Node, level: int) -> bool:
    """Whether a level looks at more of an operation than the one before."""
    if level == _LEVELS - 1:
        return any(kind != Factor.PASS for kind in node.rule.kinds)
    if level == 0 or node.rule.is_plain:
        return level == 0 and node.rule.is_plain
    return level == 1 or node.is_broadcast


def result_value(place: int) -> int:
    """How the outside of a result of the program is numbered."""
    return -1 - place
