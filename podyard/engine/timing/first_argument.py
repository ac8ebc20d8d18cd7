"""The argument of a program that is on the chip when it starts (from v4 on)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from podyard.engine.program.ir import Body, HloOperation, TensorType
from podyard.engine.timing.graph import ALIASES, MATRIX, Fused
from podyard.engine.timing.schedule import Step

# Operations that read an array as it is. But for lookups, what reads their results in the same
# kernel counts, too.
_READ_AS_THEY_ARE = frozenset(
    {"gather", "reshape", "transpose", "broadcast_in_dim", "dynamic_slice", "reduce"}
)
# It leaves the chip in between only if it is there for less than this share of the program
# (openxla).
_SHARE_TO_LEAVE = 0.6


def first_arguments(
    body: Body,
    fused: Fused,
    passed_over: Collection[int],
    size_of: Callable[[int], float],
    types: Callable[[int], TensorType],
    resolve: Callable[[int], int],
) -> list[int]:
    """Arguments that can be fetched before the program starts, the best first: those that matrix
    products, lookups and sums read as they are, the largest first, then what is read for the
    largest results, then for the last time earliest. `passed_over`: arguments that cannot. The rule
    is that of openxla
    (`memory_space_assignment`, candidates of cross-program prefetches); 50 compiled programs follow
    it."""
    users: dict[int, list[HloOperation]] = {}
    for operation in body.operations:
        for value in operation.operands:
            users.setdefault(resolve(value), []).append(operation)
    copied = {
        value
        for kernel in fused.kernels
        for value in (kernel.turns, kernel.copies)
        if value is not None
    }
    copied |= {
        value for kernel in fused.kernels if kernel.kind == "copy" for value in kernel.outputs
    }
    in_memory = {value for kernel in fused.kernels for value in kernel.outputs} - copied

    def is_read_as_it_is(argument: int) -> bool:
        values = [argument]
        for value in values:  # it grows meanwhile
            if value in copied:
                return False
            for user in users.get(value, ()):
                if user.opcode in MATRIX or user.opcode in ALIASES:
                    continue
                # The first operands are arrays, the others places or what a sum starts from.
                arrays = max(1, len(user.operands) // 2) if user.opcode == "reduce" else 1
                if user.opcode not in _READ_AS_THEY_ARE or value in map(
                    resolve, user.operands[arrays:]
                ):
                    return False
                passed_on = user.results if user.opcode != "gather" else ()
                values += [one for one in map(resolve, passed_on) if one not in in_memory]
        return True

    read: dict[int, tuple[int, int]] = {}
    for place, kernel in enumerate(fused.kernels):
        made = sum(types(value).size for value in kernel.outputs)
        for value in kernel.inputs:
            read[value] = read.get(value, (0, 0))[0] + made, place
    arguments = (
        value
        for value in map(resolve, body.parameters)
        if value in read and value not in passed_over
    )
    found = filter(is_read_as_it_is, arguments)
    return sorted(found, key=lambda value: (-size_of(value), -read[value][0], read[value][1]))


def steps_with_first(
    steps: Sequence[Step], value: int, nbytes: float, per_cycle: float, *, is_full: bool
) -> NDArray[np.bool_]:
    """During which steps the first argument is on the chip, as the compiler's record of the peak
    has it: until it is read for the last time. If the chip's memory would not hold all that the
    program has (`is_full`), it is fetched again at the end, for the program's next run, while the
    last steps leave the bus time for it (`per_cycle` bytes each cycle)."""
    here = np.zeros(len(steps), dtype=bool)
    last = max(
        (place for place, step in enumerate(steps) if value in step.reads), default=len(steps) - 1
    )
    here[: last + 1] = True
    cycles = np.array([step.run.cycles for step in steps], dtype=np.float64)
    again, left = len(steps), nbytes
    while left > 0 and again > last + 1:
        again -= 1
        left -= cycles[again] * per_cycle
    share = (cycles[: last + 1].sum() + cycles[again:].sum()) / max(1.0, cycles.sum())
    if is_full and left <= 0 and share < _SHARE_TO_LEAVE:
        here[again:] = True
    return here
