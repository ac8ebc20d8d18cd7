"""Products that look rows up: an operand has a one where an index says so, and zeros elsewhere.

Programs write lookups of an embedding and the dispatch of tokens to experts as products with a
one-hot operand, because matrix units are fast. The model has no arithmetic there: such products
are the hardware's FLOPs and not the model's, as trainers count them (MaxText's
`calculate_tflops_training_per_device` has no term for either).

An operand is one-hot if it comes from `compare EQ` of an iota, through element-wise work, moves and
`compare NE` (with zero: a mask of the places that are used).
"""

from __future__ import annotations

from podyard.engine.program.ir import Body, Program

_PRODUCTS = ("dot_general",)
_MOVES = frozenset({
    "broadcast_in_dim", "convert", "copy", "optimization_barrier", "reshape", "sharding_constraint",
    "slice", "transpose", "shard", "unshard",
})  # fmt: skip
_ELEMENTWISE = frozenset({"multiply", "and", "select"})


def lookup_products(program: Program) -> set[int]:
    """Return the identities (`id`) of the products with a one-hot operand."""
    finder = _LookupFinder()
    finder.read(program.body)
    return finder.products


class _LookupFinder:
    def __init__(self) -> None:
        self._counting: set[int] = set()
        self._one_hot: set[int] = set()
        self.products: set[int] = set()

    def read(self, body: Body) -> None:
        for operation in body.operations:
            operands, opcode = operation.operands, operation.opcode
            for inner in operation.bodies[-1:]:  # what a loop is given, its turns have
                self._enter(inner, operands)
            for inner in operation.bodies:
                self.read(inner)
            if opcode == "iota":
                self._counting.update(operation.results)
            elif opcode == "compare":
                kind = {"EQ": self._counting, "NE": self._one_hot}.get(operation.text("direction"))
                if kind is not None and kind.intersection(operands):
                    self._one_hot.update(operation.results)
            elif opcode in _PRODUCTS:
                if self._one_hot.intersection(operands):
                    self.products.add(id(operation))
            elif opcode in _MOVES or opcode in _ELEMENTWISE:
                if self._one_hot.intersection(operands):
                    self._one_hot.update(operation.results)
                elif opcode in _MOVES and self._counting.intersection(operands):
                    self._counting.update(operation.results)

    def _enter(self, body: Body, operands: tuple[int, ...]) -> None:
        if len(body.parameters) != len(operands):
            return
        for kind in (self._counting, self._one_hot):
            pairs = zip(body.parameters, operands, strict=True)
            kind.update(parameter for parameter, operand in pairs if operand in kind)
