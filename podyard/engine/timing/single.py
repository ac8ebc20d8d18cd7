"""Kernels of one operation."""

from __future__ import annotations

from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.kernels import NO_ARITHMETIC

# Operations that make no instruction.
_NAMING = frozenset({"reshape", "constant", "optimization_barrier"})
# Of those without arithmetic, what is a kernel of one operation.
_ALONE = frozenset({"broadcast_in_dim", "convert"})


def is_single(kernel: Kernel) -> bool:
    """Return whether a kernel is one element-wise operation, or one sum of an array as it lies; it
    is not fused then."""
    done = [operation for operation in kernel.operations if operation.opcode not in _NAMING]
    if kernel.kind == "reduce":
        return not done and len(kernel.reductions) == 1 and bool(kernel.outputs)
    one = len(done) == 1 and (done[0].opcode not in NO_ARITHMETIC or done[0].opcode in _ALONE)
    return kernel.kind == "loop" and one and bool(kernel.outputs) and not kernel.updates
