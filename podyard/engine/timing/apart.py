"""Kernels that do not wait for each other, as those of an optimizer."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.engine.program.ir import TensorType
from podyard.engine.timing.graph import Kernel


def smallest_first(kernels: list[Kernel], types: Sequence[TensorType]) -> list[Kernel]:
    """The kernels in the order that they run: where all are element-wise and none reads what
    another makes, but for single numbers, those that make least come first. (Five compiled
    optimizers on v4, v5e and v6e.)"""
    arrays = {value for kernel in kernels for value in kernel.outputs if types[value].size > 1}
    if any(kernel.kind != "loop" or arrays.intersection(kernel.inputs) for kernel in kernels):
        return kernels
    return sorted(kernels, key=lambda kernel: sum(types[value].nbytes for value in kernel.outputs))
