"""How often a loop of a program runs."""

from __future__ import annotations

from podyard.engine.program.ir import HloOperation, Program

_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def trip_count(program: Program, operation: HloOperation) -> int | None:
    """From the attribute `trip`, or from a counter that starts at a constant, changes by a constant
    and is compared
    with a constant; None where the program does not say."""
    trip = operation.attributes.get("trip")
    if isinstance(trip, int):
        return trip
    if len(operation.bodies) != 2:
        return None
    return _Counted(program, operation).turns()


class _Counted:
    """A loop with a condition. A number that the loop carries and never changes is what it starts
    with."""

    def __init__(self, program: Program, operation: HloOperation) -> None:
        self.program = program
        self.operation = operation
        self.condition, self.body = operation.bodies
        self.made = {
            value: step
            for body in operation.bodies
            for step in body.operations
            for value in step.results
        }

    def turns(self) -> int | None:
        test = self.made.get(self.condition.results[0]) if self.condition.results else None
        direction = test.text("direction") if test is not None and test.opcode == "compare" else ""
        if test is None or direction not in _FLIPPED:
            return None
        counter, limit = test.operands
        if counter not in self.condition.parameters or self._step(counter) is None:
            counter, limit, direction = limit, counter, _FLIPPED[direction]
        end, step = self._number(limit), self._step(counter)
        if end is None or not step:
            return None
        start = self._initial(self.condition.parameters.index(counter))
        return _turns(start, end, step, direction) if start is not None else None

    def _step(self, counter: int) -> int | None:
        """What every turn adds to a parameter of the condition."""
        if counter not in self.condition.parameters:
            return None
        place = self.condition.parameters.index(counter)
        own, change = self.body.parameters[place], self.made.get(self.body.results[place])
        if change is None or change.opcode not in ("add", "subtract") or own not in change.operands:
            return None
        if change.opcode == "subtract" and change.operands[0] != own:
            return None
        number = self._number(change.operands[1 - change.operands.index(own)])
        return -number if number is not None and change.opcode == "subtract" else number

    def _number(self, value: int) -> int | None:
        for inside in (self.condition, self.body):
            if value in inside.parameters:
                place = inside.parameters.index(value)
                unchanged = self.body.results[place] == self.body.parameters[place]
                return self._initial(place) if unchanged else None
        return _constant(self.program.producer(value))

    def _initial(self, place: int) -> int | None:
        step = self.program.producer(self.operation.operands[place])
        while (
            step is not None
            and step.opcode in ("convert", "reshape", "broadcast_in_dim")
            and step.operands
        ):
            step = self.program.producer(step.operands[0])
        return _constant(step)


def _turns(start: int, end: int, step: int, direction: str) -> int | None:
    """How often a counter is below (or above, or not at) the end; None where it runs away from
    it."""
    distance = end - start if step > 0 else start - end
    if direction == "NE":
        return distance // abs(step) if distance >= 0 and distance % abs(step) == 0 else None
    if direction not in (("LT", "LE") if step > 0 else ("GT", "GE")):
        return None
    return max(0, -(-(distance + (direction in ("LE", "GE"))) // abs(step)))


def _constant(step: HloOperation | None) -> int | None:
    number = (
        step.attributes.get("value") if step is not None and step.opcode == "constant" else None
    )
    return number if isinstance(number, int) else None
