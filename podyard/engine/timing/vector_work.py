"""What the vector unit does in a kernel, and of a product's kernel what comes before the
product."""

from __future__ import annotations

from collections.abc import Callable

from podyard.engine.program.ir import HloOperation, TensorType
from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.kernels import INSTRUCTIONS, NO_ARITHMETIC, tiles_of
from podyard.hardware.cost_model import CostModel

# Instructions of a call in front of a product, where it is more than one: the unit for functions
# works meanwhile, so that a polynomial has two, as a sum and a product have. (15 compiled products
# on v4: 0.25 cycles a tile for each.)
_BEFORE_PRODUCT = {"exponential": 2, "tanh": 2, "rsqrt": 2, "log": 3, "divide": 3, "logistic": 6}
# A conversion from or to 2 bytes.
_CONVERSION = 0.5


def vector_instructions(
    kernel: Kernel, shape_of: Callable[[int], TensorType], costs: CostModel, skipped: frozenset[int]
) -> float:
    """Instructions of the element-wise operations and sums of a kernel, but of those `skipped`;
    each is of one tile."""
    total = 0.0
    for operation in kernel.operations:
        if operation.opcode not in NO_ARITHMETIC and id(operation) not in skipped:
            total += INSTRUCTIONS.get(operation.opcode, 1) * tiles_of(
                shape_of(operation.results[0]), costs
            )
    for operation in kernel.reductions:
        total += tiles_of(shape_of(operation.operands[0]), costs)
    return total


def operations_before(kernel: Kernel, resolve: Callable[[int], int]) -> list[HloOperation]:
    """Of a product's kernel, the operations that its operands are worked out with."""
    if kernel.anchor is None:
        return []
    makers = {value: one for one in kernel.operations for value in one.results}
    stack, found = (
        [resolve(value) for value in kernel.anchor.operands[:2]],
        dict[int, HloOperation](),
    )
    while stack:
        made = makers.get(stack.pop())
        if made is not None and id(made) not in found:
            found[id(made)] = made
            stack += map(resolve, made.operands)
    return list(found.values())


def cycles_before(
    operations: list[HloOperation], shape_of: Callable[[int], TensorType], costs: CostModel
) -> float:
    """Cycles of what is done to the operands of a product, where that is not hidden behind the
    matrix units."""
    total = 0.0
    for operation in operations:
        tiles = tiles_of(shape_of(operation.results[0]), costs)
        if operation.opcode == "convert":
            total += _CONVERSION * tiles
        elif operation.opcode not in NO_ARITHMETIC:
            total += (
                _BEFORE_PRODUCT.get(operation.opcode, INSTRUCTIONS.get(operation.opcode, 1)) * tiles
            )
        # one number in each row: a comparison with its place, and a choice
        elif operation.opcode == "scatter":
            total += 2 * tiles
    return total * costs.before_product_cycles
