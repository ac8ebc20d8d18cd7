"""Branches that a program has chosen already: JAX writes one per platform and a constant that says
which. No JAX."""

from __future__ import annotations

import dataclasses

from podyard.engine.program.ir import Body, HloOperation


def chosen_branches(body: Body) -> Body:
    """The same body with the operations of a branch in place of the choice, where the choice is a
    constant."""
    return _Chooser().body(body)


class _Chooser:
    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        # Results of a choice, and the values that they are.
        self.names: dict[int, int] = {}

    def body(self, body: Body) -> Body:
        operations = [one for step in body.operations for one in self._operation(step)]
        return Body(
            body.parameters, operations, [self.names.get(value, value) for value in body.results]
        )

    def _operation(self, operation: HloOperation) -> list[HloOperation]:
        number = operation.attributes.get("value") if operation.opcode == "constant" else None
        if isinstance(number, int):
            self.numbers[operation.results[0]] = number
        operands = tuple(self.names.get(value, value) for value in operation.operands)
        inner = tuple(map(self.body, operation.bodies))
        chosen = self.numbers.get(operands[0]) if operation.opcode == "case" else None
        if chosen is None:
            is_same = operands == operation.operands and not inner
            return [
                operation
                if is_same
                else dataclasses.replace(operation, operands=operands, bodies=inner)
            ]
        branch = inner[chosen if 0 <= chosen < len(inner) else -1]
        self.names.update(zip(operation.results, branch.results, strict=True))
        return branch.operations
