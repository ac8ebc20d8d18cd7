"""Attention that the compiler runs as one custom kernel, to which it gives no cycles.

It knows a softmax between two products, all with their batch axes first: with nothing but the
product in the softmax as a whole, on generations with `own_softmax` also with a scale or a mask
(the first product stays a kernel then). Read off compiled attentions: of rank 3 and 4, with lengths
of whole tiles, and only where nobody else reads what is in between.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from podyard.engine.program.ir import Body, HloOperation, Program, outer_values
from podyard.engine.timing.graph import ELEMENTWISE
from podyard.engine.timing.layout import LANES

_SPREADING = ("broadcast_in_dim", "reshape", "maximum", "convert")


def with_attention(program: Program, body: Body, own_softmax: bool) -> Body:
    """The body with such attentions as single operations: of query, key and value, or of scores and
    value."""
    finder = _AttentionFinder(program, body, own_softmax)
    operations = [finder.replacement(operation) for operation in body.operations]
    same = all(new is old for new, old in zip(operations, body.operations, strict=True))
    return body if same else dataclasses.replace(body, operations=operations)


def attention_flops(program: Program, operation: HloOperation) -> int:
    """Multiply-adds of its products, counted as two."""
    length = program.types[operation.operands[-1]].shape[-2]
    return 2 * program.types[operation.results[0]].size * length * (len(operation.operands) - 1)


class _AttentionFinder:
    def __init__(self, program: Program, body: Body, own_softmax: bool) -> None:
        self.types = program.types
        self.own_softmax = own_softmax
        self.made = {
            value: operation for operation in body.operations for value in operation.results
        }
        inner = [
            value for step in body.operations for one in step.bodies for value in outer_values(one)
        ]
        self.uses = Counter(
            [*body.results, *inner, *(v for step in body.operations for v in step.operands)]
        )

    def replacement(self, product: HloOperation) -> HloOperation:
        scores = self._scores(product) if self._is_batched(product, -2) else None
        if scores is None:
            return product
        source = self._through(scores, ("convert",))
        first = self.made.get(source)
        operands: tuple[int, ...] = ()
        if first is not None and self._is_batched(first, -1, -2):
            operands = first.operands
        elif self.own_softmax and self._comes_from_product(scores):
            operands = (scores,)
        if not operands:
            return product
        return dataclasses.replace(
            product, opcode="attention", operands=(*operands, product.operands[1]), attributes={}
        )

    def _is_batched(self, operation: HloOperation, *contracted: int) -> bool:
        """Return whether it is a product of arrays whose batch axes come first; the right one's
        contracted axis is one of `contracted`."""
        if operation.opcode != "dot_general":
            return False
        rank, result = (
            len(self.types[operation.operands[0]].shape),
            self.types[operation.results[0]].shape,
        )
        leading, right = tuple(range(rank - 2)), operation.ints("rhs_contracting")
        return (
            rank in (3, 4)
            and len(result) == rank
            and operation.ints("lhs_batching") == operation.ints("rhs_batching") == leading
            and operation.ints("lhs_contracting") == (rank - 1,)
            and right in [(rank + axis,) for axis in contracted]
        )

    def _scores(self, product: HloOperation) -> int | None:
        """Return what the left operand of a product is the softmax of, over its last axis."""
        share = self.made.get(self._through(product.operands[0], ("convert",)))
        if share is None or share.opcode != "divide" or self.uses[share.results[0]] != 1:
            return None
        power, total = self.made.get(share.operands[0]), self._reduction(share.operands[1])
        if (
            power is None
            or power.opcode != "exponential"
            or total != power.results[0]
            or self.uses[total] != 2
        ):
            return None
        rest = self.made.get(power.operands[0])
        if (
            rest is None
            or rest.opcode != "subtract"
            or self._reduction(rest.operands[1]) != rest.operands[0]
        ):
            return None
        scores = rest.operands[0]
        whole = all(extent % LANES == 0 for extent in self.types[scores].shape[-2:])
        return scores if whole and self.uses[scores] == 2 else None

    def _reduction(self, value: int) -> int | None:
        """Return what is reduced over its last axis, and spread over it again."""
        step = self.made.get(value)
        while step is not None and step.opcode in _SPREADING:
            step = self.made.get(step.operands[-1])
        if step is None or step.opcode != "reduce":
            return None
        last = len(self.types[step.operands[0]].shape) - 1
        return (
            self._through(step.operands[0], ("convert",)) if step.ints("dims") == (last,) else None
        )

    def _through(self, value: int, opcodes: tuple[str, ...]) -> int:
        step = self.made.get(value)
        while step is not None and step.opcode in opcodes:
            value = step.operands[0]
            step = self.made.get(value)
        return value

    def _comes_from_product(self, value: int) -> bool:
        """Return whether element-wise work in one type leads from a product to `value`."""
        type_ = self.types[value]
        step = self.made.get(value)
        while step is not None and step.opcode in ELEMENTWISE:
            larger = [one for one in step.operands if self.types[one] == type_]
            step = next((made for one in larger if self._leads(made := self.made.get(one))), None)
        return step is not None and self._is_batched(step, -1, -2)

    def _leads(self, step: HloOperation | None) -> bool:
        return step is not None and step.opcode not in ("broadcast_in_dim", "constant")
