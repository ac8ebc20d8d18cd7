"""Numbers of rows, as their means: they lie in lanes, and are spread over the lanes of their
rows."""

from __future__ import annotations

from collections.abc import Callable

from podyard.engine.program.ir import Program
from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.layout import compact_layout
from podyard.hardware.cost_model import CostModel

# Scores of four axes lie so that their sums need not be spread.
_ROW_AXES = 3


def spread_rows(
    program: Program, kernel: Kernel, resolve: Callable[[int], int], costs: CostModel
) -> int:
    """Return how many such numbers a kernel without a product reads and spreads."""
    if kernel.kind == "matrix":
        return 0
    inputs, rows = set(kernel.inputs), dict[int, int]()
    makers = {value: one for one in kernel.operations for value in one.results}
    for operation in kernel.operations:
        if operation.opcode != "broadcast_in_dim":
            continue
        source, made = (program.types[one] for one in (operation.operands[0], operation.results[0]))
        lies = compact_layout(made, costs.tiling)
        kept = [
            axis for place, axis in enumerate(operation.ints("dims")) if source.shape[place] > 1
        ]
        wide = sum(extent > 1 for extent in made.shape)
        if (
            lies.lane_axis in kept
            or lies.sublane_axis not in kept
            or made.size <= source.size
            or wide > _ROW_AXES
        ):
            continue
        value = resolve(operation.operands[0])
        while value not in inputs and value in makers and makers[value].operands:
            value = resolve(max(makers[value].operands, key=lambda one: program.types[one].size))
        if value in inputs and program.types[value].size == source.size:
            rows[resolve(operation.operands[0])] = source.size
    return sum(rows.values())
