"""float32 weights that a loop rounds to bfloat16 in each turn: the TPU compiler rounds them as a
whole before it.

The loop is given the rounded array, and loops that read one array share it (the way back of layers
in a scan reads what the way there did). Read off compiled steps with stacked layers on v4 and v5e.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.engine.program.ir import (
    Body,
    HloOperation,
    Program,
    TensorType,
    all_operands,
    outer_values,
)
from podyard.engine.timing.graph import ALIASES, CONTROL, REORDERING

# What hands numbers on as they are.
_MOVED = frozenset({*ALIASES, *REORDERING})


def round_before_loops(program: Program) -> Program:
    """The program with such weights rounded before its loops; the same object where there are
    none."""
    maker = _Rounding(program)
    body = maker.body(program.body)
    return (
        program
        if body is program.body
        else dataclasses.replace(program, body=body, types=maker.types)
    )


class _Rounding:
    def __init__(self, program: Program) -> None:
        self.types = list(program.types)

    def body(self, body: Body) -> Body:
        operations: list[HloOperation] = []
        rounded: dict[int, int] = {}
        is_changed = False
        read = {*body.results, *(value for step in body.operations for value in all_operands(step))}
        for given in body.operations:
            step = given.with_bodies(self.body) if given.opcode in CONTROL else given
            if step.opcode == "while":
                step = self._loop(step, read, rounded, operations)
            is_changed |= step is not given
            operations.append(step)
        return Body(body.parameters, operations, body.results) if is_changed else body

    def _loop(
        self,
        loop: HloOperation,
        read: set[int],
        rounded: dict[int, int],
        before: list[HloOperation],
    ) -> HloOperation:
        """A loop that is given rounded weights; their conversions come `before`, but for what is in
        `rounded`. `read`: values that anything around it reads."""
        body = loop.bodies[-1]
        readers: dict[int, list[HloOperation]] = {}
        for step in body.operations:
            for value in step.operands:
                readers.setdefault(value, []).append(step)
        inner = {
            value for step in body.operations for one in step.bodies for value in outer_values(one)
        }
        operands, instead = list(loop.operands), dict[int, int]()
        for place, own in enumerate(body.parameters):
            made, given = body.results[place], operands[place]
            if own != made or self.types[own].dtype != "f32" or loop.results[place] in read:
                continue
            parts = self._parts(own, readers)
            if not parts or not inner.isdisjoint(parts):
                continue
            if given not in rounded:
                rounded[given] = len(self.types)
                self.types.append(_narrow(self.types[given]))
                before.append(
                    HloOperation("convert", (given,), (rounded[given],), {}, where=loop.where)
                )
            operands[place] = rounded[given]
            for value in (
                *parts,
                loop.results[place],
                *(one.parameters[place] for one in loop.bodies),
            ):
                self.types[value] = _narrow(self.types[value])
                rounds = (step for step in readers.get(value, ()) if step.opcode == "convert")
                instead |= {step.results[0]: value for step in rounds}
        if not instead:
            return loop
        return dataclasses.replace(
            loop, operands=tuple(operands), bodies=(*loop.bodies[:-1], _with_others(body, instead))
        )

    def _parts(self, whole: int, readers: Mapping[int, Sequence[HloOperation]]) -> list[int]:
        """A value and what is cut from it, if all that is only moved to where it becomes bfloat16;
        else nothing."""
        values, place, is_rounded = [whole], 0, False
        while place < len(values):
            value = values[place]
            place += 1
            for reader in readers.get(value, ()):
                if reader.opcode == "convert" and self.types[reader.results[0]].dtype == "bf16":
                    is_rounded = True
                elif reader.opcode in ALIASES:
                    values.append(reader.results[reader.operands.index(value)])
                elif reader.opcode in _MOVED or (
                    value == whole and reader.opcode == "dynamic_slice"
                ):
                    values.append(reader.results[0])
                else:
                    return []
        return values if is_rounded else []


def _narrow(type_: TensorType) -> TensorType:
    return TensorType(type_.shape, "bf16")


def _with_others(body: Body, instead: Mapping[int, int]) -> Body:
    """A body without the operations that make some values, and with others `instead` of those."""

    def renamed(values: Sequence[int]) -> list[int]:
        return [instead.get(value, value) for value in values]

    operations = [
        dataclasses.replace(
            step.with_bodies(lambda one: _with_others(one, instead)),
            operands=tuple(renamed(step.operands)),
        )
        for step in body.operations
        if instead.keys().isdisjoint(step.results)
    ]
    return Body(body.parameters, operations, renamed(body.results))
