"""Branches that a program has chosen already: JAX writes one per platform and a constant that says which. No JAX."""

from __future__ import annotations

import dataclasses

from podyard.engine.program.ir import Body, HloOperation


def chosen_branches(body: Body) -> Body:
    """The same body with the operations of a branch in place of the choice, where the choice is a constant."""
    return _Chooser().body(body)


class _Chooser:
    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def body(self, body: Body) -> Body:
        return Body(body.parameters, [one for step in body.operations for one in self._operation(step)], body.results)

    def _operation(self, operation: HloOperation) -> list[HloOperation]:
        number = operation.attributes.get("value") if operation.opcode == "constant" else None
        if isinstance(number, int):
            self.numbers[operation.results[0]] = number
        if not operation.bodies:
            return [operation]
        inner = tuple(map(self.body, operation.bodies))
        chosen = self.numbers.get(operation.operands[0]) if operation.opcode == "case" else None
        if chosen is None:
            return [dataclasses.replace(operation, bodies=inner)]
        branch = inner[chosen if 0 <= chosen < len(inner) else -1]
        names = []
        for result, value in zip(operation.results, branch.results, strict=True):
            names.append(HloOperation("get_tuple_element", (value,), (result,), {}, where=operation.where))
            if value in self.numbers:
                self.numbers[result] = self.numbers[value]
        return [*branch.operations, *names]
