"""Shardings of all values of a program from those that it gives, as Shardy propagates them.

Operations are visited in five rounds: what data only goes through where nobody else reads it, then
everywhere, then factors that go through (of broadcasts backward only), then sums and the rest, then
broadcasts forward. In a round an operation is visited again when one of its arrays changed, the
last change first. A value's sharding only grows, so each is visited a bounded number of times.
Sources: openxla/shardy, op_priority_propagation.cc, basic_propagation.cc,
aggressive_factor_propagation.cc, sharding_projection.cc, apply_sharding_constraints.cc.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from podyard.engine.program.factors import Factor, Rule, Shape, rule_of
from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, all_operands
from podyard.engine.program.shardings import MANUAL, PLACED, Axes, Mesh, Sharding

_ROUNDS = 5
_NONE, _FORWARD, _BACKWARD, _BOTH = range(4)
_SLICES = ("dynamic_slice", "dynamic_update_slice")
_THROUGH = (Factor.PASS, Factor.HELD)


class _Node:
    """An operation, or an edge along which values are the same: of a loop, a branch, a result.
    `count`: of operands. `free`: what nothing but data goes through, in which directions;
    `is_alone`: nobody else reads its operands."""

    __slots__ = ("count", "free", "is_alone", "is_broadcast", "manual", "rule", "sizes", "values")

    def __init__(
        self, rule: Rule, operands: Sequence[int], results: Sequence[int], free: int = _NONE
    ) -> None:
        self.rule = rule
        self.values = (*operands, *results)
        self.count = len(operands)
        self.free = free
        self.manual: frozenset[int] = frozenset()
        self.is_broadcast, self.is_alone = False, True
        self.sizes = [
            math.prod(rule.sizes[f] for dim in tensor for f in dim) for tensor in rule.tensors
        ]

    def direction(self, kind: Factor, turn: int) -> int:
        way = self.free if turn or self.is_alone else _NONE
        if turn == _ROUNDS - 1:
            return _BOTH
        if turn > 2 or (turn == 2 and kind in _THROUGH):
            return way | (_BACKWARD if self.is_broadcast else _BOTH)
        return way


def edge_rule(shape: Shape, count: int) -> Rule:
    """Of `count` arrays that are the same."""
    kept = [size for size in shape if size > 1]
    factors = iter(range(len(kept)))
    dims = [(next(factors),) if size > 1 else () for size in shape]
    return Rule(
        [list(dims) for _ in range(count)],
        kept,
        [Factor.PASS] * len(kept),
        is_plain=True,
        is_same=True,
    )


def factor_axes(
    mesh: Mesh, factors: Sequence[int], sizes: Sequence[int], axes: Axes
) -> dict[int, Axes]:
    """Return which axes of a dimension split which of its factors; what fits none of them is left
    out."""
    return _project(mesh, factors, sizes, axes)[0]


def _project(
    mesh: Mesh, factors: Sequence[int], sizes: Sequence[int], axes: Axes
) -> tuple[dict[int, Axes], Axes]:
    """The axes of each factor of a dimension, and those that are left over."""
    if len(factors) == 1:
        return ({factors[0]: axes} if axes else {}), ()
    found: dict[int, Axes] = {}
    place = 0
    for index, axis in enumerate(axes):
        while (
            place < len(factors) - 1
            and mesh.extent(found.get(factors[place], ())) == sizes[factors[place]]
        ):
            place += 1
        factor = factors[place]
        is_last = place == len(factors) - 1
        if not is_last and sizes[factor] % (mesh.extent(found.get(factor, ())) * mesh.sizes[axis]):
            return found, axes[index:]
        found[factor] = (*found.get(factor, ()), axis)
    return found, ()


def dimension_axes(
    mesh: Mesh, factors: Sequence[int], sizes: Sequence[int], found: dict[int, Axes]
) -> Axes:
    """The axes of a dimension from those of its factors: minor ones only behind major ones that are
    split whole."""
    axes: Axes = ()
    for factor in factors:
        axes += found.get(factor, ())
        if mesh.extent(found.get(factor, ())) < sizes[factor]:
            break
    return axes


class Propagation:
    """`dims[value]`: the axes of each dimension; values that are whole are not in it."""

    def __init__(self, program: Program, types: Sequence[TensorType]) -> None:
        self.program = program
        self.mesh = program.mesh
        self.types = types
        self.dims: dict[int, list[Axes]] = {}
        self.rules: dict[int, Rule] = {}
        self._closed: dict[int, tuple[bool, ...]] = {}
        self._nodes: list[_Node] = []
        # Of the values that a loop carries, the one that stands for all of a place.
        self._same: dict[int, int] = {}
        self._carried: set[int] = set()
        self._reads: Counter[int] = Counter()
        # What is looked at again when a value changes.
        self._makers: dict[int, int] = {}
        self._users: dict[int, list[int]] = {}

    def run(self) -> None:
        for value, sharding in self.program.shardings.items():
            self._place(value, sharding)
        self._collect(self.program.body)
        ends = []
        for place, sharding in self.program.result_shardings.items():
            value = self.program.body.results[place]
            self._place(result_value(place), sharding)
            ends.append(
                _Node(edge_rule(self._shape(value), 2), (self._one(value),), (result_value(place),))
            )
        for node in self._nodes:
            read = [value for value in node.values[: node.count] if self._size(value)]
            node.is_alone = all(self._reads[value] < 2 for value in read)
        for turn in range(_ROUNDS):
            for end in ends:
                self._visit(end, _ROUNDS - 1)
            self._sweep(turn)
        for end in ends:
            self._visit(end, _ROUNDS - 1)
        for value, one in self._same.items():
            if one in self.dims:
                self.dims[value] = list(self.dims[one])

    # --- what there is

    def _shape(self, value: int) -> Shape:
        return self.types[value].shape

    def _size(self, value: int) -> Shape:
        return self._shape(value if value >= 0 else self.program.body.results[-1 - value])

    def _one(self, value: int) -> int:
        return self._same.get(value, value)

    def _place(self, value: int, sharding: Sharding) -> None:
        if any(sharding.dims):
            self.dims[value] = list(sharding.dims)
        self._closed[value] = tuple(
            not sharding.is_open(dimension) for dimension in range(len(sharding.dims))
        )

    def _add(self, node: _Node) -> None:
        for value in dict.fromkeys(node.values[: node.count]):
            self._users.setdefault(value, []).append(len(self._nodes))
        for value in node.values[node.count :]:
            self._makers[value] = len(self._nodes)
        self._nodes.append(node)

    def _collect(self, body: Body) -> None:
        for operation in _from_results(body):
            self._reads.update(operation.operands)
            if operation.opcode in ("while", "case", "if"):
                self._edges(operation)
            elif operation.opcode == "optimization_barrier" and PLACED not in operation.attributes:
                for value, made in zip(operation.operands, operation.results, strict=False):
                    self._add(
                        _Node(edge_rule(self._shape(made), 2), (self._one(value),), (made,), _BOTH)
                    )
            else:
                self._operation(operation)
        self._reads.update(body.results)

    def _operation(self, operation: HloOperation) -> None:
        placed, manual = operation.attributes.get(PLACED), operation.attributes.get(MANUAL, ())
        operands = [self._one(value) for value in operation.operands]
        if isinstance(placed, Sharding):
            if operation.opcode == "shard":
                inside = tuple(
                    tuple(axis for axis in axes if axis not in placed.manual)
                    for axes in placed.dims
                )
                self._place(operation.results[0], Sharding(inside, placed.open_dims))
            else:
                self._place(operation.results[0], placed)
            if operation.opcode != "unshard":
                self._wish(operands[0], placed)
        shapes = [self._shape(value) for value in operation.operands]
        results = [self._shape(value) for value in operation.results]
        if operation.opcode in ("shard", "unshard"):
            tensors: list[list[tuple[int, ...]]] = [
                [(d,) for d in range(len(results[0]))] for _ in range(2)
            ]
            sizes = [max(pair) for pair in zip(shapes[0], results[0], strict=True)]
            rule = Rule(tensors, sizes, [Factor.PASS] * len(sizes), is_plain=True)
            manual = placed.manual if isinstance(placed, Sharding) else ()
        else:
            rule = rule_of(operation, shapes, results)
        self.rules[id(operation)] = rule
        if rule.sizes:
            is_slice = operation.opcode in _SLICES
            node = _Node(
                rule,
                operands,
                operation.results,
                _FORWARD if is_slice else _BOTH if rule.is_plain else _NONE,
            )
            node.manual = frozenset(manual)  # type: ignore[call-overload]
            node.is_broadcast = (
                operation.opcode == "broadcast_in_dim" and not rule.is_plain
            ) or _is_choice(operation, shapes)
            self._add(node)

    def _wish(self, value: int, sharding: Sharding) -> None:
        """Wish that what is to be split in one way only is so from its maker on; what a loop
        carries is not bound by it."""
        is_bound = value in self.dims or value in self._closed or value in self._carried
        if not is_bound and not any(sharding.open_dims):
            self._place(value, sharding)

    def _edges(self, operation: HloOperation) -> None:
        """Return edges of a loop, which carries one value from turn to turn; what it never changes
        is the value outside; a branch gives what is behind it."""
        is_loop = operation.opcode == "while"
        sources = [
            [body.results[n] for body in operation.bodies[is_loop:]]
            for n in range(len(operation.results))
        ]
        edges = dict(enumerate(operation.results))
        for place, result in enumerate(operation.results if is_loop else ()):
            parameters = [body.parameters[place] for body in operation.bodies]
            one = result
            if sources[place][0] == parameters[-1]:
                one = self._one(operation.operands[place])
                del edges[place]
            self._same.update(dict.fromkeys((*parameters, result), one))
        self._carried.update(edges.values() if is_loop else ())
        for body in operation.bodies:
            self._collect(body)
        for place, result in edges.items():
            given = [*(operation.operands[place : place + 1] if is_loop else ()), *sources[place]]
            operands = [self._one(value) for value in given]
            self._add(
                _Node(edge_rule(self._shape(result), len(operands) + 1), operands, (result,), _BOTH)
            )

    # --- how it spreads

    def _sweep(self, turn: int) -> None:
        stack = [n for n in range(len(self._nodes) - 1, -1, -1) if turn > 1 or self._nodes[n].free]
        waiting = bytearray(len(self._nodes))
        for index in stack:
            waiting[index] = 1
        while stack:
            index = stack.pop()
            waiting[index] = 0
            for value in self._visit(self._nodes[index], turn):
                for other in (
                    self._makers.get(value, index),
                    *reversed(self._users.get(value, ())),
                ):
                    if (
                        not waiting[other]
                        and other != index
                        and (turn > 1 or self._nodes[other].free)
                    ):
                        waiting[other] = 1
                        stack.append(other)

    def _visit(self, node: _Node, turn: int) -> list[int]:
        """Brings the shardings of one operation's arrays together; gives those that changed."""
        rule, dims, count = node.rule, self.dims, node.count
        given = [dims.get(value) for value in node.values]
        if not any(given) or (rule.is_same and given.count(given[0]) == len(given)):
            return []
        found, left = list[dict[int, Axes]](), list[dict[int, Axes]]()
        for tensor, own in enumerate(given):
            split, over = self._split(node, tensor, own)
            found.append(split)
            left.append(over)
        ranked = []
        for factor in dict.fromkeys(factor for own in found for factor in own):
            way = _NONE if factor in rule.blocked else node.direction(rule.kinds[factor], turn)
            axes = self._compatible([own.get(factor) for own in found], node, factor, way)
            if axes:
                sources = [
                    t for t, own in enumerate(found) if axes == own.get(factor, ())[: len(axes)]
                ]
                source = max(sources, key=lambda tensor: node.sizes[tensor], default=-1)
                size = node.sizes[source] if sources else -1
                extent = self.mesh.extent(axes) if rule.is_plain else 0
                ranked.append((-size, -extent, source, factor, axes))
        ranked.sort()
        changed: dict[int, None] = {}
        tensors = range(len(node.values))
        for tensor in (*tensors[count:], *tensors[:count]):
            for _, _, _, factor, axes in ranked:
                has = found[tensor].get(factor, ())
                more = self._extend(node, tensor, factor, axes, found[tensor], left[tensor])
                if rule.is_plain and tensor < count:
                    for result in found[count:]:
                        made = result.get(factor, ())
                        more = made if len(made) < len(more) and more[: len(made)] == made else more
                if len(more) > len(has) and more[: len(has)] == has:
                    found[tensor][factor] = more
                    changed[tensor] = None
        return [node.values[t] for t in sorted(changed) if self._write(node, t, found[t], left[t])]

    def _split(
        self, node: _Node, tensor: int, given: Sequence[Axes] | None
    ) -> tuple[dict[int, Axes], dict[int, Axes]]:
        """The axes of an array's factors; of dimensions, those that fit none of their factors."""
        found: dict[int, Axes] = {}
        left: dict[int, Axes] = {}
        if given is not None:
            for dimension, (factors, axes) in enumerate(
                zip(node.rule.tensors[tensor], given, strict=True)
            ):
                if axes and factors:
                    own = (
                        tuple(axis for axis in axes if axis not in node.manual)
                        if node.manual
                        else axes
                    )
                    split, over = _project(self.mesh, factors, node.rule.sizes, own)
                    found |= split
                    if over:
                        left[dimension] = over
        return found, left

    def _compatible(
        self, offers: Sequence[Axes | None], node: _Node, factor: int, way: int
    ) -> Axes:
        """The axes that all arrays agree on, the longest of them; only those that data comes from
        make it longer."""
        if way == _NONE:
            return ()
        operands, results = range(node.count), range(node.count, len(offers))
        first, second = (results, operands) if way == _BACKWARD else (operands, results)
        axes: Axes = ()
        may_grow = True
        for tensors in (first, second):
            for tensor in tensors:
                offer = offers[tensor] or ()
                if not offer and not any(
                    factor in factors for factors in node.rule.tensors[tensor]
                ):
                    continue
                shared = min(len(axes), len(offer))
                if axes[:shared] != offer[:shared]:
                    shared = next(n for n in range(shared) if axes[n] != offer[n])
                    axes, may_grow = axes[:shared], False
                elif may_grow and len(offer) > len(axes):
                    axes = offer
            may_grow = may_grow and way == _BOTH
        return axes

    def _extend(
        self,
        node: _Node,
        tensor: int,
        factor: int,
        axes: Axes,
        found: dict[int, Axes],
        left: dict[int, Axes],
    ) -> Axes:
        """As many of the axes as a factor of one array can have, by the array's other axes and its
        shape."""
        has = found.get(factor, ())
        if axes[: len(has)] != has or len(axes) == len(has):
            return ()
        factors_of = node.rule.tensors[tensor]
        dimension = next((d for d, factors in enumerate(factors_of) if factor in factors), None)
        if dimension is None or dimension in left:
            return ()
        if self._closed.get(node.values[tensor], ())[dimension : dimension + 1] == (True,):
            return ()
        used = {axis for own in (*found.values(), *left.values()) for axis in own} | node.manual
        is_last, size = factors_of[dimension][-1] == factor, node.rule.sizes[factor]
        taken = list(has)
        for axis in axes[len(has) :]:
            if axis in used or (
                not is_last and size % (self.mesh.extent(taken) * self.mesh.sizes[axis])
            ):
                break
            taken.append(axis)
        return tuple(taken)

    def _write(
        self, node: _Node, tensor: int, found: dict[int, Axes], left: dict[int, Axes]
    ) -> bool:
        value = node.values[tensor]
        before = self.dims.get(value) or [()] * len(self._size(value))
        after = list(before)
        for dimension, factors in enumerate(node.rule.tensors[tensor]):
            if factors and dimension not in left:
                manual = tuple(axis for axis in before[dimension] if axis in node.manual)
                after[dimension] = manual + dimension_axes(
                    self.mesh, factors, node.rule.sizes, found
                )
        if after == before:
            return False
        self.dims[value] = after
        return True


def _is_choice(operation: HloOperation, shapes: Sequence[Shape]) -> bool:
    """Return whether a scatter puts one number into each row: the compiler compares places and
    chooses."""
    if operation.opcode != "scatter" or len(shapes) != 3 or not shapes[0]:
        return False
    *rows, places = shapes[0]
    return math.prod(rows) == math.prod(shapes[2]) == math.prod(shapes[1]) and places > 1


def _from_results(body: Body) -> list[HloOperation]:
    """The operations as XLA numbers them: what the first result is made from first, operands before
    readers."""
    makers = {value: operation for operation in body.operations for value in operation.results}
    stack = [(value, False) for value in reversed(body.results)]
    done: set[int] = set()
    ordered: list[HloOperation] = []
    while stack:
        value, is_ready = stack.pop()
        operation = makers.get(value)
        if operation is None or id(operation) in done:
            continue
        if is_ready:
            done.add(id(operation))
            ordered.append(operation)
            continue
        read = all_operands(operation)
        stack.append((value, True))
        stack += [(one, False) for one in reversed(read) if one in makers]
    return [*ordered, *(operation for operation in body.operations if id(operation) not in done)]


def result_value(place: int) -> int:
    """Return how the outside of a result of the program is numbered."""
    return -1 - place


__all__ = ["Propagation", "dimension_axes", "factor_axes", "result_value"]
