"""A simplification that the compiler makes before it splits a program: what is added to a scattered
sum is scattered into. It decides what is gathered for a table that is split by its rows, and lets
the gradient of a table be scattered into its momentum (openxla/xla, algebraic_simplifier.cc; found
in compiled programs)."""

from __future__ import annotations

import dataclasses
from collections import Counter

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, all_operands, walk


def scatter_into_sums(program: Program) -> Program:
    """`add(scatter(x, ...), y)` is `scatter(add(x, y), ...)` where nothing else reads what was
    scattered. Zeros are not added."""
    types = list(program.types)
    body = _simplify(program, program.body, types)
    return program if body is program.body else dataclasses.replace(program, body=body, types=types)


def _simplify(program: Program, body: Body, types: list[TensorType]) -> Body:
    reads = Counter(body.results)
    for operation in body.operations:
        reads.update(all_operands(operation))
    scatters: dict[int, HloOperation] = {}
    operations: list[HloOperation] = []
    is_changed = False
    for given in body.operations:
        operation = given.with_bodies(lambda inner: _simplify(program, inner, types))
        is_changed |= operation is not given
        scattered = next(
            (value for value in operation.operands if value in scatters and reads[value] == 1), None
        )
        if operation.opcode == "add" and scattered is not None:
            is_changed = True
            scatter = scatters[scattered]
            operations = [one for one in operations if one is not scatter]
            start, other = (
                scatter.operands[0],
                operation.operands[1 - operation.operands.index(scattered)],
            )
            if not _is_zero(program, start):
                types.append(types[other])
                operations.append(
                    dataclasses.replace(
                        operation, operands=(start, other), results=(len(types) - 1,)
                    )
                )
                other = len(types) - 1
            operation = dataclasses.replace(
                scatter, operands=(other, *scatter.operands[1:]), results=operation.results
            )
        if _is_sum(operation):
            scatters[operation.results[0]] = operation
        operations.append(operation)
    return Body(body.parameters, operations, body.results) if is_changed else body


def _is_sum(operation: HloOperation) -> bool:
    if operation.opcode != "scatter" or len(operation.operands) != 3 or len(operation.bodies) != 1:
        return False
    return [inner.opcode for inner in walk(operation.bodies[0])] == ["add"]


def _is_zero(program: Program, value: int) -> bool:
    zeros = program.producer(value)
    while zeros is not None and zeros.opcode in ("broadcast_in_dim", "convert") and zeros.operands:
        zeros = program.producer(zeros.operands[0])
    return zeros is not None and zeros.opcode == "constant" and zeros.attributes.get("value") == 0
