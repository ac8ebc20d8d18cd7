"""How often a loop of a program runs."""

from __future__ import annotations

from podyard.engine.program.ir import Body, Operation, Program


def trip_count(program: Program, operation: Operation) -> int | None:
    """From the attribute `trip`, or from a counter that starts at a constant, grows by one and is compared with a
    constant; None where the program does not say."""
    trip = operation.attributes.get("trip")
    if isinstance(trip, int):
        return trip
    if len(operation.bodies) != 2:
        return None
    condition = operation.bodies[0]
    made = {value: step for step in condition.operations for value in step.results}
    test = made.get(condition.results[0]) if condition.results else None
    if test is None or test.opcode != "compare" or test.text("direction") not in ("LT", "NE"):
        return None
    counter, limit = test.operands
    if counter not in condition.parameters:
        return None
    place = condition.parameters.index(counter)
    end = _constant(limit, made, program, condition, operation)
    start = _initial(operation, place, program)
    return max(0, end - start) if end is not None and start is not None else None


def _constant(
    value: int, made: dict[int, Operation], program: Program, condition: Body, operation: Operation
) -> int | None:
    step = made.get(value) or _producer(program.body, value)
    if step is None and value in condition.parameters:
        return _initial(operation, condition.parameters.index(value), program)
    number = step.attributes.get("value") if step is not None and step.opcode == "constant" else None
    return number if isinstance(number, int) else None


def _initial(operation: Operation, place: int, program: Program) -> int | None:
    step = _producer(program.body, operation.operands[place])
    while step is not None and step.opcode in ("convert", "reshape", "broadcast_in_dim") and step.operands:
        step = _producer(program.body, step.operands[0])
    number = step.attributes.get("value") if step is not None and step.opcode == "constant" else None
    return number if isinstance(number, int) else None


def _producer(body: Body, value: int) -> Operation | None:
    for operation in body.operations:
        if value in operation.results:
            return operation
        for inner in operation.bodies:
            found = _producer(inner, value)
            if found is not None:
                return found
    return None
