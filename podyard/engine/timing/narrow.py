"""float32 values that the compiler keeps in bfloat16, because nothing needs more bits of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from podyard.engine.program.ir import Body, HloOperation, Program, walk
from podyard.engine.timing.graph import ALIASES, MATRIX

# Results have as many bits as operands: nothing is computed, or only compared.
_HANDING_ON = frozenset({
    "abs", "broadcast_in_dim", "clamp", "concatenate", "copy", "dynamic_slice",
    "dynamic_update_slice", "gather",
    "maximum", "minimum", "pad", "reshape", "reverse", "select",
    "slice", "sort", "transpose", "convert",
})  # fmt: skip


def narrow_values(program: Program) -> set[int]:
    """float32 values that the compiler keeps in bfloat16: all that reads them multiplies them in
    one pass, or hands
    them on (chooses, moves, stacks, carries through a loop) to what does. Its propagation of
    bfloat16, as data."""
    narrow = {value for value, type_ in enumerate(program.types) if type_.dtype == "f32"}
    narrow -= {*program.body.parameters, *program.body.results}
    groups: list[tuple[int, ...]] = []
    for operation in walk(program.body):
        bodies = operation.bodies if operation.opcode == "while" else ()
        for inner in operation.bodies:
            if not bodies or len(inner.parameters) != len(operation.operands):
                narrow -= {*inner.parameters, *inner.results}
        if bodies:
            groups += [
                (
                    *same,
                    *(inner.parameters[index] for inner in bodies if index < len(inner.parameters)),
                )
                for index, same in enumerate(
                    zip(operation.operands, operation.results, bodies[-1].results, strict=False)
                )
            ]
    while True:
        wide = {
            value for operation in walk(program.body) for value in _read_in_full(operation, narrow)
        }
        wide.update(value for group in groups if not narrow.issuperset(group) for value in group)
        if not wide & narrow:
            return narrow
        narrow -= wide


def _read_in_full(operation: HloOperation, narrow: set[int]) -> Iterable[int]:
    """The operands of which an operation needs all bits."""
    if operation.opcode == "while" or (
        operation.opcode in MATRIX and operation.text("precision") in ("", "DEFAULT")
    ):
        return ()
    if operation.opcode in ALIASES:
        return [
            old
            for old, new in zip(operation.operands, operation.results, strict=False)
            if new not in narrow
        ]
    if operation.opcode in _HANDING_ON and narrow.issuperset(operation.results):
        return ()
    return operation.operands


def is_looked_up_narrow(
    table: int, body: Body, program: Program, resolve: Callable[[int], int]
) -> bool:
    """Return whether nothing but lookups read a table, and all that they find is converted to 2
    bytes: its copy is, too."""

    def readers(value: int) -> list[HloOperation]:
        return [one for one in body.operations if value in map(resolve, one.operands)]

    lookups = readers(table)
    found = [one for lookup in lookups for one in readers(lookup.results[0])]
    to_two_bytes = all(
        one.opcode == "convert" and program.types[one.results[0]].itemsize == 2 for one in found
    )
    return to_two_bytes and all(one.opcode == "gather" for one in lookups)
