"""Turns of a program's loops."""

from __future__ import annotations

import functools

from podyard.engine.program.ir import HloOperation, Program

_SAME_NUMBER = frozenset({"convert", "copy", "reshape", "broadcast_in_dim"})
# A counter is followed back through so many loops: each takes some of Python's stack.
_LOOPS_FOLLOWED_MAX = 50
_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def trip_count(program: Program, operation: HloOperation) -> int | None:
    """From the attribute `trip`, or from a counter that starts at a constant, changes by a constant
    and is compared with a constant; of several such tests that must all hold, the one that ends
    first. None where the program does not say."""
    trip = operation.attributes.get("trip")
    if isinstance(trip, int):
        return trip
    if len(operation.bodies) != 2:
        return None
    return _Counted(program, operation, 0).turns


class _Counted:
    """A loop with a condition. A number that the loop carries and never changes is what it starts
    with. `followed`: the loops behind it that ask for its numbers."""

    def __init__(self, program: Program, operation: HloOperation, followed: int) -> None:
        self.program = program
        self.operation = operation
        self.followed = followed
        self.numbers_after: dict[int, int | None] = {}
        self.before: dict[int, _Counted] = {}  # by the identity of their operations
        self.condition, self.body = operation.bodies
        self.made = {
            value: step
            for body in operation.bodies
            for step in body.operations
            for value in step.results
        }

    @functools.cached_property
    def turns(self) -> int | None:
        counts = [self._turns_of(test) for test in self._tests()]
        numbers = [count for count in counts if count is not None]
        return min(numbers) if numbers and len(numbers) == len(counts) else None

    def _tests(self) -> list[HloOperation | None]:
        """Return the operations that must all be true for another turn."""
        tests, pending = list[HloOperation | None](), list(self.condition.results[:1])
        while pending:
            test = self.made.get(self._root(pending.pop()))
            if test is not None and test.opcode == "and":
                pending += test.operands
            else:
                tests.append(test)
        return tests

    def _turns_of(self, test: HloOperation | None) -> int | None:
        direction = test.text("direction") if test is not None and test.opcode == "compare" else ""
        if test is None or direction not in _FLIPPED:
            return None
        counter, limit = (self._root(operand) for operand in test.operands)
        if counter not in self.condition.parameters or self._step(counter) is None:
            counter, limit, direction = limit, counter, _FLIPPED[direction]
        end, step = self._number(limit), self._step(counter)
        if end is None or not step:
            return None
        start = self._initial(self.condition.parameters.index(counter))
        return _turns(start, end, step, direction) if start is not None else None

    def _root(self, value: int) -> int:
        """Return the value of the condition or the body that this one is, in another form."""
        while (step := self.made.get(value)) is not None and step.opcode in _SAME_NUMBER:
            value = step.operands[0]
        return value

    def _step(self, counter: int) -> int | None:
        """Return what every turn adds to a parameter of the condition."""
        if counter not in self.condition.parameters:
            return None
        place = self.condition.parameters.index(counter)
        own = self.body.parameters[place]
        change = self.made.get(self._root(self.body.results[place]))
        if change is None or change.opcode not in ("add", "subtract"):
            return None
        operands = [self._root(operand) for operand in change.operands]
        if own not in operands or (change.opcode == "subtract" and operands[0] != own):
            return None
        number = self._number(operands[1 - operands.index(own)])
        return -number if number is not None and change.opcode == "subtract" else number

    def _number(self, value: int) -> int | None:
        for inside in (self.condition, self.body):
            if value in inside.parameters:
                place = inside.parameters.index(value)
                unchanged = self._root(self.body.results[place]) == self.body.parameters[place]
                return self._initial(place) if unchanged else None
        return _constant(self.program.producer(value))

    def _initial(self, place: int) -> int | None:
        """Return the number that the loop starts with, which may come out of another loop."""
        value = self.operation.operands[place]
        step = self.program.producer(value)
        while step is not None and step.opcode in _SAME_NUMBER and step.operands:
            value = step.operands[0]
            step = self.program.producer(value)
        if step is not None and len(step.bodies) == 2 and step.opcode == "while":
            if self.followed == _LOOPS_FOLLOWED_MAX:
                return None
            if id(step) not in self.before:
                self.before[id(step)] = _Counted(self.program, step, self.followed + 1)
            return self.before[id(step)].number_after(step.results.index(value))
        return _constant(step)

    def number_after(self, place: int) -> int | None:
        """Return a number that the loop carries, as it is behind the loop."""
        if place not in self.numbers_after:
            self.numbers_after[place] = self._number_after(place)
        return self.numbers_after[place]

    def _number_after(self, place: int) -> int | None:
        start = self._initial(place)
        if self._root(self.body.results[place]) == self.body.parameters[place]:
            return start
        step, turns = self._step(self.condition.parameters[place]), self.turns
        if start is None or step is None or turns is None:
            return None
        return start + step * turns


def _turns(start: int, end: int, step: int, direction: str) -> int | None:
    """Return how often a counter is below (or above, or not at) the end; None where it runs away
    from it."""
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
