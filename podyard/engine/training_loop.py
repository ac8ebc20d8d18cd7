"""The training loop that a program may contain (`lax.scan`, `lax.fori_loop` or `lax.while_loop`
over steps)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from podyard.engine.program.ir import Body, HloOperation, Program
from podyard.engine.program.loops import trip_count

_SAME = frozenset(
    {"convert", "reshape", "optimization_barrier", "shard", "unshard", "copy", "transpose"}
)
_SLICES = frozenset({"dynamic_slice", "gather"})
# of the bytes of a program's results in a turn: the rest are losses and metrics of each step
_SHARE_MIN = 0.5


def training_turns(program: Program) -> int:
    """Return the turns of the training loop, 1 if they are not in the program, or 0 if there is
    none.

    A training loop carries the state of the program: it starts with arguments, changes them, and
    gives them back as most of the results. A loop over layers carries an activation, and reads each
    layer's weights from arguments that it does not change; a loop over parts of a batch starts with
    zeros. Loops over epochs and batches in each other count by the product of their turns.
    """
    return _turns_in(program, program.body)


def _turns_in(program: Program, body: Body) -> int:
    arguments, results = set(body.parameters), {_source(program, one) for one in body.results}
    returned = [value for value in body.results if value not in arguments]
    for operation in body.operations:
        if operation.opcode != "while" or len(operation.bodies) != 2:
            continue
        state = _state(program, operation, arguments, results)
        carried = sum(program.types[value].nbytes for value in state)
        turns = trip_count(program, operation)
        collected = set(operation.results).difference(state)
        nbytes = sum(_turn_bytes(program, value, collected, turns) for value in returned)
        if (
            not state
            or carried < _SHARE_MIN * nbytes
            or (len(state) == 1 and _reads_layers(operation))
        ):
            continue
        if turns is None or turns > 1:
            return (turns or 1) * max(1, _turns_in(program, operation.bodies[1]))
    return 0


def _turn_bytes(
    program: Program, value: int, collected: AbstractSet[int], turns: int | None
) -> float:
    """Bytes of a result, of one turn where the loop collects an entry at each turn (the parameters
    on their way, or losses)."""
    kind = program.types[value]
    is_stack = turns and kind.shape[:1] == (turns,) and _source(program, value) in collected
    return kind.nbytes / turns if turns and is_stack else kind.nbytes


def _state(
    program: Program, loop: HloOperation, arguments: AbstractSet[int], results: AbstractSet[int]
) -> list[int]:
    """Results of the loop that come from an argument, change, and are a result of the program."""
    body = loop.bodies[1]
    return [
        result
        for operand, own, after, result in zip(
            loop.operands, body.parameters, body.results, loop.results, strict=True
        )
        if own != after
        and result in results
        and program.types[result].shape
        and _source(program, operand) in arguments
    ]


def _reads_layers(loop: HloOperation) -> bool:
    body = loop.bodies[1]
    constant = {
        own for own, after in zip(body.parameters, body.results, strict=True) if own == after
    }
    return any(step.opcode in _SLICES and step.operands[0] in constant for step in body.operations)


def _source(program: Program, value: int) -> int:
    """The value that another one is a copy of, in another type or order."""
    step = program.producer(value)
    while (
        step is not None and step.opcode in _SAME and len(step.operands) == len(step.results) == 1
    ):
        value = step.operands[0]
        step = program.producer(value)
    return value
