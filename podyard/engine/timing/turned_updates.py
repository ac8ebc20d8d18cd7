"""Gradients that lie turned when they are made: what is updated with them is turned, too, and
turned back.

The gradient of weights is a product of two arrays of rows. Where one of them is made of nothing but
arguments (the first layer of a network), a compiler may make it with the other one first, as JAX
writes it. All arrays that it is used for have that layout, then."""

from __future__ import annotations

from collections.abc import Collection

from podyard.engine.program.ir import Program
from podyard.engine.timing.graph import ELEMENTWISE, Kernel
from podyard.engine.timing.layout import LANES, compact_layout
from podyard.hardware.cost_model import Tiling

# What a gradient goes through before it is turned.
_PASSED = ("convert", "all_reduce", "reduce_scatter", "reshape", "multiply", "divide")


def turned_gradients(program: Program, tiling: Tiling) -> set[int]:
    """The gradients of matrices, with their axes as the weights have them, that lie with the first
    of them in lanes."""
    made_of_arguments = set(program.body.parameters)
    found: set[int] = set()
    for operation in program.body.operations:
        if operation.opcode in ELEMENTWISE and all(
            value in made_of_arguments for value in operation.operands
        ):
            made_of_arguments.update(operation.results)
        if operation.opcode != "transpose" or len(program.types[operation.results[0]].shape) != 2:
            continue
        source = program.producer(operation.operands[0])
        while source is not None and source.opcode in _PASSED:
            source = program.producer(source.operands[0])
        if source is None or source.opcode != "dot_general" or operation.ints("dims") != (1, 0):
            continue
        rows = tuple(range(len(program.types[source.operands[1]].shape) - 1))
        summed = source.ints("lhs_contracting"), source.ints("rhs_contracting")
        type_ = program.types[operation.results[0]]
        # Turned, it has whole tiles.
        fits = compact_layout(type_, tiling).lane_axis == 1 and type_.shape[0] % LANES == 0
        if summed == (rows, rows) and source.operands[1] in made_of_arguments and fits:
            found.update(operation.results)
    return found


def turned_shape(
    program: Program, kernel: Kernel, turned: Collection[int]
) -> tuple[int, ...] | None:
    """The shape of what a kernel updates with such a gradient, one of `turned`; None for other
    kernels."""
    shapes = (
        program.types[value].shape
        for one in kernel.operations
        for value in one.results
        if value in turned
    )
    return next(shapes, None)
