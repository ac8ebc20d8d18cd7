"""float32 values that the compiler keeps in bfloat16, because nothing needs more bits of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from podyard.engine.program.ir import HloOperation, Program, TensorType, walk
from podyard.engine.timing.graph import ALIASES, MATRIX, REORDERING

# Results have as many bits as operands: nothing is computed, or only compared.
_HANDING_ON = frozenset({
    "abs", "broadcast_in_dim", "clamp", "concatenate", "copy", "dynamic_slice", "dynamic_update_slice", "gather",
    "maximum", "minimum", "pad", "reshape", "reverse", "select",
    "slice", "sort", "transpose", "convert",
})  # fmt: skip


def narrow_values(program: Program) -> set[int]:
    """float32 values that the compiler keeps in bfloat16: all that reads them multiplies them in one pass, or hands
    them on (chooses, moves, stacks, carries through a loop) to what does. Its propagation of bfloat16, as data."""
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
                (*same, *(inner.parameters[index] for inner in bodies if index < len(inner.parameters)))
                for index, same in enumerate(
                    zip(operation.operands, operation.results, bodies[-1].results, strict=False)
                )
            ]
    while True:
        wide = {value for operation in walk(program.body) for value in _read_in_full(operation, narrow)}
        wide.update(value for group in groups if not narrow.issuperset(group) for value in group)
        if not wide & narrow:
            return narrow
        narrow -= wide


def _read_in_full(operation: HloOperation, narrow: set[int]) -> Iterable[int]:
    """The operands of which an operation needs all bits."""
    if operation.opcode == "while" or (operation.opcode in MATRIX and operation.text("precision") in ("", "DEFAULT")):
        return ()
    if operation.opcode in ALIASES:
        return [old for old, new in zip(operation.operands, operation.results, strict=False) if new not in narrow]
    if operation.opcode in _HANDING_ON and narrow.issuperset(operation.results):
        return ()
    return operation.operands


def converted_stacks(program: Program, loop: HloOperation) -> Iterator[TensorType]:
    """What a loop reads slices of and rounds to bfloat16, it is given rounded: the whole stack is, before it starts."""
    body, readers = loop.bodies[-1], dict[int, list[HloOperation]]()
    for operation in body.operations:
        for value in operation.operands:
            readers.setdefault(value, []).append(operation)
    for own, made in zip(body.parameters, body.results, strict=False):
        type_ = program.types[own]
        if own == made and type_.dtype == "f32" and _is_rounded(own, readers, program):
            yield TensorType(type_.shape, "bf16")


def _is_rounded(stack: int, readers: Mapping[int, Sequence[HloOperation]], program: Program) -> bool:
    """Whether a value is only sliced, and its slices only moved to where they become bfloat16."""
    values, place = [stack], 0
    while place < len(values):
        value = values[place]
        place += 1
        for reader in readers.get(value, ()):
            if reader.opcode == "convert" and program.types[reader.results[0]].dtype == "bf16":
                continue
            if reader.opcode not in (("dynamic_slice",) if value == stack else (*ALIASES, *REORDERING)):
                return False
            values += [reader.results[reader.operands.index(value)] if reader.opcode in ALIASES else reader.results[0]]
    return len(values) > 1
