"""A simplification that the compiler makes before it splits a program: what is added to scattered zeros is scattered
into. It decides what is gathered for a table that is split by its rows (openxla/xla, algebraic_simplifier.cc)."""

from __future__ import annotations

import dataclasses
from collections import Counter

from podyard.engine.program.ir import Body, HloOperation, Program, outer_values, walk


def scatter_into_sums(program: Program) -> Program:
    """`add(scatter(zeros, ...), x)` is `scatter(x, ...)` where nothing else reads what was scattered."""
    body = _simplify(program, program.body)
    return program if body is program.body else dataclasses.replace(program, body=body)


def _simplify(program: Program, body: Body) -> Body:
    makers = {value: operation for operation in body.operations for value in operation.results}
    reads = Counter(body.results)
    for operation in body.operations:
        reads.update((*operation.operands, *(value for inner in operation.bodies for value in outer_values(inner))))
    moved: dict[int, HloOperation] = {}
    for operation in body.operations:
        if operation.opcode != "add":
            continue
        for place, value in enumerate(operation.operands):
            scatter = makers.get(value)
            if scatter is not None and reads[value] == 1 and _is_sum_of_zeros(program, scatter):
                others = (operation.operands[1 - place], *scatter.operands[1:])
                moved[id(operation)] = dataclasses.replace(scatter, operands=others, results=operation.results)
                moved[id(scatter)] = scatter
                break
    if not moved:
        return body
    operations = []
    for operation in body.operations:
        new = moved.get(id(operation), operation)
        if new is not operation or id(operation) not in moved:
            operations.append(new)
    return Body(body.parameters, operations, body.results)


def _is_sum_of_zeros(program: Program, scatter: HloOperation) -> bool:
    if scatter.opcode != "scatter" or len(scatter.operands) != 3 or len(scatter.bodies) != 1:
        return False
    if [operation.opcode for operation in walk(scatter.bodies[0])] != ["add"]:
        return False
    zeros = program.producer(scatter.operands[0])
    while zeros is not None and zeros.opcode in ("broadcast_in_dim", "convert") and zeros.operands:
        zeros = program.producer(zeros.operands[0])
    return zeros is not None and zeros.opcode == "constant" and zeros.attributes.get("value") == 0
