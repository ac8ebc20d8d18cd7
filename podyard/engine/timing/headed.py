"""float32 weights with heads as a middle axis (`[features, heads, 128]`): a product wants their
first axis in a tile.

The heads lie in sublanes in memory. So a kernel converts such weights before the product, and their
gradient lies with heads outermost. All that an optimizer works out with it has that layout, and is
copied back as it leaves the program. (Compiled steps of one such product with SGD, momentum and
Adam on v4: five of two sizes.)
"""

from __future__ import annotations

from collections.abc import Mapping

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType
from podyard.engine.timing.graph import ALIASES
from podyard.engine.timing.layout import compact_layout
from podyard.hardware.cost_model import Tiling

# What an operand of a product is made from its weights by.
_PASSED = frozenset({*ALIASES, "convert", "all_gather"})
# Axes of such weights: features, heads and the size of a head.
_AXES = 3


def headed_weights(program: Program, body: Body, tiling: Tiling) -> set[int]:
    """Arguments of a body that are such weights."""
    makers = {value: step for step in body.operations for value in step.results}
    arguments = set(body.parameters)
    found: set[int] = set()
    for step in body.operations:
        if step.opcode != "dot_general" or step.ints("lhs_batching"):
            continue
        for value, name in zip(step.operands, ("lhs_contracting", "rhs_contracting"), strict=False):
            given = _source(value, makers)
            if (
                given in arguments
                and step.ints(name) == (0,)
                and _has_heads(program.types[given], tiling)
            ):
                found.add(given)
    return found


def copied_back(program: Program, tiling: Tiling) -> list[TensorType]:
    """The types of results that lie as the gradients of such weights do until they are copied."""
    body = program.body
    types = {program.types[value] for value in headed_weights(program, body, tiling)}
    made = set(body.results) - set(body.parameters)
    return [program.types[value] for value in sorted(made) if program.types[value] in types]


def _source(value: int, makers: Mapping[int, HloOperation]) -> int:
    """Return what a value is converted or gathered from."""
    while value in makers and makers[value].opcode in _PASSED:
        step = makers[value]
        value = (
            step.operands[step.results.index(value)] if step.opcode in ALIASES else step.operands[0]
        )
    return value


def _has_heads(type_: TensorType, tiling: Tiling) -> bool:
    if type_.dtype != "f32" or len(type_.shape) != _AXES:
        return False
    lies = compact_layout(type_, tiling)
    return (lies.lane_axis, lies.sublane_axis) == (_AXES - 1, _AXES - 2)
