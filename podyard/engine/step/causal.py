"""Products of causal attention: a program masks half of their scores, so that half of their FLOPs
are the model's.

A mask is causal if it comes from an order of two axes: `compare` (GE, GT, LE, LT) of an iota along
one with an iota along the other, as `jnp.tril` and masks by position do it. What is masked by it
are scores. Causal are the products that make scores, and those that have scores, or what is worked
out from them alone, for an operand: forward,
the scores and the weighted sum of values; backward, the gradients of both operands of each.
"""

from __future__ import annotations

from podyard.engine.program.ir import Body, HloOperation, Program, walk

_PRODUCTS = ("dot_general",)
_ORDERS = ("GE", "GT", "LE", "LT")
_SHIFTS = (
    "add",
    "subtract",
    "convert",
    "optimization_barrier",
    "reshape",
    "copy",
    "sharding_constraint",
)
# What has other numbers, or the same at other places: no scores come out of it.
_NO_SCORES = frozenset({
    "dot_general", "convolution", "reduce", "reduce_window", "custom_call", "gather", "scatter",
    "sort", "iota",
    "constant", "case", "if", "while", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
})  # fmt: skip
_ROUNDS_MAX = 8  # of loops in loops: values go in, and come out again


def causal_products(program: Program) -> set[int]:
    """Return the identities (`id`) of the products that a causal mask makes half."""
    finder = _CausalFinder(program)
    before = -1
    for _ in range(_ROUNDS_MAX):
        finder.read(program.body)
        if len(finder.masks) + len(finder.scores) == before:
            break
        before = len(finder.masks) + len(finder.scores)
    return finder.products if finder.scores else set()


class _CausalFinder:
    def __init__(self, program: Program) -> None:
        self._types = program.types
        self._makers = {
            value: operation for operation in walk(program.body) for value in operation.results
        }
        self._axes: dict[int, int] = {}  # of positions along one axis: that axis
        self.masks: set[int] = set()
        self.scores: set[int] = set()
        self.products: set[int] = set()

    def read(self, body: Body) -> None:
        for operation in body.operations:
            if operation.opcode == "while":
                self._carry(operation)
            for inner in operation.bodies:
                self.read(inner)
            if operation.opcode in _PRODUCTS:
                if self.scores.intersection(operation.operands):
                    self.products.add(id(operation))
            elif operation.results:
                self._follow_positions(operation)
                self._follow_masks(operation)

    def _carry(self, operation: HloOperation) -> None:
        condition, body = operation.bodies[0], operation.bodies[-1]
        for place, result in enumerate(operation.results):
            own = {operation.operands[place], result, body.parameters[place], body.results[place]}
            for kind in (self.masks, self.scores):
                if own & kind:
                    kind |= {result, body.parameters[place], condition.parameters[place]}

    def _follow_positions(self, operation: HloOperation) -> None:
        """Numbers that grow along one axis."""
        result, rank = operation.results[0], len(self._types[operation.results[0]].shape)
        if operation.opcode == "iota" and rank:
            self._axes[result] = operation.int("dim", operation.int("dimension"))
            return
        known = [(value, self._axes[value]) for value in operation.operands if value in self._axes]
        if len(known) != 1:
            return
        value, axis = known[0]
        dims = operation.ints("dims")
        if operation.opcode == "broadcast_in_dim" and axis < len(dims):
            self._axes[result] = dims[axis]
        elif operation.opcode == "reshape":
            self._follow_reshape(value, result, axis)
        elif operation.opcode in _SHIFTS and self._types[result].shape == self._types[value].shape:
            self._axes[result] = axis

    def _follow_reshape(self, value: int, result: int, axis: int) -> None:
        """Follow a reshape by which only axes of 1 come or go."""
        before, after = self._types[value].shape, self._types[result].shape
        large, new = (
            [place for place, size in enumerate(shape) if size > 1] for shape in (before, after)
        )
        if axis in large and [before[place] for place in large] == [after[place] for place in new]:
            self._axes[result] = new[large.index(axis)]

    def _follow_masks(self, operation: HloOperation) -> None:
        operands = operation.operands
        if operation.opcode == "compare" and operation.text("direction") in _ORDERS:
            axes = {self._axes[value] for value in operands if value in self._axes}
            if len(axes) == 2:
                self.masks.update(operation.results)
                return
        if operation.opcode in _NO_SCORES or len(operation.results) != 1:
            return
        size = self._types[operation.results[0]].size
        if self.scores.intersection(operands):
            self.scores.update(operation.results)
        elif self.masks.intersection(operands):
            computed = [
                value
                for value in operands
                if value not in self.masks and self._comes_from_product(value)
            ]
            (self.scores if computed else self.masks).update(operation.results)
        else:
            return
        if self.scores.intersection(operation.results):
            for value in operands:
                if (
                    value not in self.scores
                    and value not in self.masks
                    and self._types[value].size == size
                ):
                    self._mark_makers(value)

    def _comes_from_product(self, value: int) -> bool:
        return bool(self._makers_of(value))

    def _mark_makers(self, value: int) -> None:
        """The products whose numbers are masked, or multiplied by scores."""
        self.products.update(map(id, self._makers_of(value)))

    def _makers_of(self, value: int) -> list[HloOperation]:
        """Products that a value of the same size comes from, by element-wise work alone."""
        makers, stack, seen = list[HloOperation](), [value], set[int]()
        size = self._types[value].size
        while stack:
            value = stack.pop()
            maker = self._makers.get(value)
            if value in seen or maker is None or self._types[value].size != size:
                continue
            seen.add(value)
            if maker.opcode in _PRODUCTS:
                makers.append(maker)
            elif maker.opcode not in _NO_SCORES:
                stack += maker.operands
        return makers
