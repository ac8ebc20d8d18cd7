"""Sums over devices that loops only add up or stack are made once, behind the loop (openxla/xla,
while_loop_all_reduce_code_motion.cc): found in compiled programs. A step that adds up the gradients
of several parts of a batch sends them once. No JAX in here."""

from __future__ import annotations

from collections import Counter

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, all_operands

# Sums of the turns that are stacked are summed behind the loop up to so many bytes together:
# compiled stacks of 10,240 bytes are, of 10,752 are not (22 loops of 2 to 24 turns).
_STACK_BYTES = 10 * 2**10
# A reduction over dimensions of one is such a move too.
_MOVES = (
    "broadcast_in_dim",
    "convert",
    "copy",
    "optimization_barrier",
    "reduce",
    "reshape",
    "transpose",
)


def sum_after_loops(program: Program, body: Body) -> None:
    """Changes a body in place, once the loops inside of its loops are changed. A sum that came from
    a loop inside stays behind that one."""
    operations: list[HloOperation] = []
    for operation in body.operations:
        operations.append(operation)
        if operation.opcode == "while" and len(operation.bodies[-1].parameters) == len(
            operation.operands
        ):
            before, after = _Loop(program, operation).hoist(operations)
            operations[-1:-1] = before
            operations += after
    body.operations = operations


class _Loop:
    def __init__(self, program: Program, loop: HloOperation) -> None:
        self.program = program
        self.loop = loop
        self.body = loop.bodies[-1]
        self.makers = {value: step for step in self.body.operations for value in step.results}
        self.reads = Counter(self.body.results)
        for step in self.body.operations:
            self.reads.update(all_operands(step))
        asked = loop.bodies[:-1]
        self.asked = {
            value for inner in asked for step in inner.operations for value in step.operands
        }
        # A loop that computes values again, behind a barrier, makes the sums that it stacks in each
        # turn.
        self.is_again = any(
            step.opcode == "optimization_barrier" and "placed" not in step.attributes
            for step in self.body.operations
        )
        self.conditions = [inner.parameters for inner in asked]

    def hoist(self, earlier: list[HloOperation]) -> tuple[list[HloOperation], list[HloOperation]]:
        """Return what comes before the loop, and what comes behind it. `earlier`: the operations
        until the loop."""
        before: list[HloOperation] = []
        after: list[HloOperation] = []
        for place, carried in enumerate(self.body.parameters):
            step = self.makers.get(self.body.results[place])
            if (
                step is None
                or self.reads[carried] != 1
                or self.reads[step.results[0]] != 1
                or self._is_asked(place)
            ):
                continue
            if step.opcode == "add" and carried in step.operands:
                summed = self._sum_of(step.operands[1 - step.operands.index(carried)])
                if summed is not None:
                    start = self.loop.operands[place]
                    is_zero = _is_zero(start, earlier)
                    before += [] if is_zero else self._from_zero(place)
                    after += self._behind(place, summed, None if is_zero else start)
            elif (
                step.opcode == "dynamic_update_slice"
                and step.operands[0] == carried
                and not self.is_again
            ):
                summed = self._sum_of(step.operands[1])
                if summed is not None and self._stacked(carried, summed).nbytes <= _STACK_BYTES:
                    after += self._behind(place, summed, None)
        return before, after

    def _is_asked(self, place: int) -> bool:
        return any(place < len(own) and own[place] in self.asked for own in self.conditions)

    def _sum_of(self, value: int) -> HloOperation | None:
        """The sum over devices that a value is, moved at most, where nothing else reads it."""
        step = self.makers.get(value)
        while step is not None and self.reads[step.results[0]] == 1:
            if step.opcode == "all_reduce" and "axes" in step.attributes:
                return None if "behind" in step.attributes else step
            given = step.operands[0] if step.opcode in _MOVES else None
            if (
                given is None
                or self.program.types[given].size != self.program.types[step.results[0]].size
            ):
                return None
            step = self.makers.get(given)
        return None

    def _stacked(self, stack: int, summed: HloOperation) -> TensorType:
        return TensorType(
            self.program.types[stack].shape, self.program.types[summed.results[0]].dtype
        )

    def _from_zero(self, place: int) -> list[HloOperation]:
        """The loop starts with zeros in place of what it was given."""
        type_ = self.program.types[self.loop.operands[place]]
        zero, zeros = self._new(TensorType((), type_.dtype)), self._new(type_)
        operands = list(self.loop.operands)
        operands[place] = zeros
        self.loop.operands = tuple(operands)
        where = self.loop.where
        return [
            HloOperation("constant", (), (zero,), {"value": 0}, where=where),
            HloOperation("broadcast_in_dim", (zero,), (zeros,), {"dims": ()}, where=where),
        ]

    def _behind(self, place: int, summed: HloOperation, start: int | None) -> list[HloOperation]:
        """The sum behind the loop, in the type that it had inside where the turns are stacked;
        `start` is added."""
        part, whole = summed.operands[0], summed.results[0]
        self.body.operations = [step for step in self.body.operations if step is not summed]
        for step in self.body.operations:
            step.operands = tuple(part if value == whole else value for value in step.operands)
        result = self.loop.results[place]
        type_ = self.program.types[result]
        inside = self._new(type_)
        self.loop.results = tuple(
            inside if value == result else value for value in self.loop.results
        )
        is_stack = self.makers[self.body.results[place]].opcode == "dynamic_update_slice"
        between = self._stacked(result, summed) if is_stack else type_
        steps: list[HloOperation] = []
        where = summed.where
        given = inside
        if between != type_:
            given = self._new(between)
            steps.append(HloOperation("convert", (inside,), (given,), {}, where=where))
        made = result if start is None and between == type_ else self._new(between)
        steps.append(
            HloOperation(
                "all_reduce", (given,), (made,), summed.attributes | {"behind": True}, where=where
            )
        )
        if between != type_:
            steps.append(HloOperation("convert", (made,), (result,), {}, where=where))
        if start is not None:
            steps.append(HloOperation("add", (start, made), (result,), {}, where=where))
        return steps

    def _new(self, type_: TensorType) -> int:
        self.program.types.append(type_)
        return len(self.program.types) - 1


def _is_zero(value: int, earlier: list[HloOperation]) -> bool:
    makers = {result: step for step in earlier for result in step.results}
    step = makers.get(value)
    while step is not None and step.opcode in _MOVES and step.operands:
        step = makers.get(step.operands[0])
    return step is not None and step.opcode == "constant" and step.attributes.get("value") == 0
