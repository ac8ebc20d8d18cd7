"""Gathers of one array that are one (openxla/xla, schedule_aware_collective_ops_cse.cc).

The compiler comes to them in the order in which the results of a program ask for them. One is the
same as the first of its kind if the last reader of that one is not much farther from the end of the
program than it is itself.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from podyard.engine.program.combined_sums import SUMS
from podyard.engine.program.ir import Body, HloOperation, Program, all_operands, walk

_SHARED = ("all_gather", "collective_permute")
# What is never taken for another one that is equal: collectives, and what is chosen or kept in its
# place.
_ONE_BY_ONE = (*_SHARED, *SUMS, "all_to_all", "optimization_barrier", "shard", "unshard")
_COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
# How many operations apart the readers of a gathered array may be before it is gathered again: an
# option of the compiler's (xla_tpu_spmd_threshold_for_allgather_cse).
_REACH = 100
# Until then a scattered sum is a whole one and a slice of it, and what is scattered or exchanged
# changes its shape.
_MORE_STEPS = {"reduce_scatter": 1, "scatter": 1, "all_to_all": 3}
# Places of rows that other devices have are masked.
_MASK_STEPS = 7
# Minus infinity as the front-ends have it: a number, or the bits of float32 and bfloat16.
_LEAST = (float("-inf"), 0xFF800000, 0xFF80)


def share_gathers(program: Program, body: Body) -> None:
    """Changes `body` in place."""
    if not any(operation.opcode in _SHARED for operation in body.operations):
        return
    places = _places(body)

    def place(index: int) -> int:
        return min(
            (places.get(value, len(places)) for value in body.operations[index].results),
            default=len(places),
        )

    makers = {value: operation for operation in body.operations for value in operation.results}
    users = _users(program, body, makers, sorted(range(len(body.operations)), key=place))
    heights = _heights(program, body, users, places, makers)
    shared = [
        index for index, operation in enumerate(body.operations)
        if operation.opcode in _SHARED and not {"given", "keeps"} & operation.attributes.keys()
    ]  # fmt: skip
    kept: dict[tuple[int, object], _Gathered] = {}
    renamed: dict[int, int] = {}
    for index in sorted(shared, key=place):
        operation = body.operations[index]
        operand, result = (
            renamed.get(operation.operands[0], operation.operands[0]),
            operation.results[0],
        )
        key = (operand, f"{operation.opcode} {operation.attributes}")
        lowest = min([heights[index], *(heights[user] for user in users.get(result, ()))])
        reach = _REACH if operation.opcode == "all_gather" else math.inf
        earlier = kept.get(key)
        if earlier is None:
            kept[key] = _Gathered(result, lowest)
        # those that are too far from the first stay, each by itself
        elif earlier.last_use <= heights[index] + reach:
            renamed[result] = earlier.value
            earlier.last_use = min(earlier.last_use, lowest)
    _keep_first(body, renamed)


def _users(
    program: Program, body: Body, makers: dict[int, HloOperation], order: Iterable[int]
) -> dict[int, list[int]]:
    """Return which operations read a value, in `order`, once the program is simplified."""
    twins = _twins(program, body)
    users: dict[int, list[int]] = {}
    for index in order:
        operation = body.operations[index]
        if not twins.keys() & set(operation.results):
            narrow = _narrow_maximum(program, operation, makers)
            read = all_operands(operation) if narrow is None else [narrow]
            for value in dict.fromkeys(twins.get(one, one) for one in read):
                users.setdefault(value, []).append(index)
    return users


def _twins(program: Program, body: Body) -> dict[int, int]:
    """Return what is worked out a second time from the same values, and what it was the first
    time."""
    first: dict[tuple[object, ...], int] = {}
    twins: dict[int, int] = {}
    for operation in body.operations:
        if len(operation.results) != 1 or operation.bodies or operation.opcode in _ONE_BY_ONE:
            continue
        operands = [twins.get(value, value) for value in operation.operands]
        if operation.opcode in _COMMUTATIVE:
            operands.sort()
        (result,) = operation.results
        # tables of numbers, which are long to compare
        if not operands and program.types[result].size > 1:
            continue
        key = (
            operation.opcode,
            *operands,
            program.types[result],
            str(sorted(operation.attributes.items())),
        )
        if first.setdefault(key, result) != result:
            twins[result] = first[key]
    return twins


def _narrow_maximum(
    program: Program, operation: HloOperation, makers: dict[int, HloOperation]
) -> int | None:
    """Of a maximum of converted numbers the narrow ones: they are compared, and the result is
    converted."""
    if operation.opcode != "reduce" or operation.text("by") != "maximum":
        return None
    maker = makers.get(operation.operands[0])
    if maker is None or maker.opcode != "convert":
        return None
    given, made = (program.types[value].itemsize for value in (maker.operands[0], maker.results[0]))
    return maker.operands[0] if given < made else None


def _keep_first(body: Body, renamed: dict[int, int]) -> None:
    """Of values that are one, the first stays where it is."""
    first: dict[int, int] = {}
    operations: list[HloOperation] = []
    for operation in body.operations:
        same = [renamed.get(value, value) for value in operation.results]
        if operation.opcode in _SHARED and same[0] in first:
            continue
        operation.operands = tuple(
            first.get(renamed.get(value, value), value) for value in operation.operands
        )
        if operation.opcode in _SHARED:
            first[same[0]] = operation.results[0]
        operations.append(operation)
    final = {value: first[same] for value, same in renamed.items()}
    for operation in operations:
        for inner in operation.bodies:
            _rename(inner, final)
    body.operations = operations
    body.results = [final.get(value, value) for value in body.results]


@dataclasses.dataclass(slots=True)
class _Gathered:
    """A value that is gathered already; how far its last reader is from the end."""

    value: int
    last_use: int


def _heights(
    program: Program,
    body: Body,
    users: dict[int, list[int]],
    places: dict[int, int],
    makers: dict[int, HloOperation],
) -> list[int]:
    """Return how far each operation is from the end, as the compiler counts: users are taken one
    after the other, and each is a step more than the one before, or than itself if that is higher.
    Each array that a loop gives is a user of it; what a loop is given is put together in one more
    step."""
    scaled = {
        id(one)
        for one in body.operations
        if one.opcode in ("multiply", "divide") and _constants(one, makers)
    }
    gone = [
        _is_gone_later(program, operation, body, users, makers, scaled)
        for operation in body.operations
    ]
    heights = [0] * len(body.operations)
    results = set(body.results)

    def readers(value: int) -> Iterator[int]:
        """Heights of what reads a value once the program is simplified."""
        for user in users.get(value, ()):
            operation = body.operations[user]
            if gone[user]:
                yield from readers(operation.results[0])
            else:
                is_put_before = operation.opcode == "while" or _is_place(operation, value)
                yield heights[user] + is_put_before
        if value in results:
            yield 0

    for index in range(len(body.operations) - 1, -1, -1):
        operation = body.operations[index]
        each = [height for value in operation.results for height in readers(value)]
        if len(operation.results) > 1:
            first = sorted(operation.results, key=lambda value: places.get(value, 0))
            each = [made for value in first if (made := _above(readers(value)))]
        is_masked = operation.opcode == "gather" and any(
            body.operations[user].opcode in SUMS for user in users.get(operation.results[0], ())
        )
        more = _MASK_STEPS if is_masked else _MORE_STEPS.get(operation.opcode, 0)
        heights[index] = (
            _above(each) + more + (_narrow_maximum(program, operation, makers) is not None)
        )
    return heights


def _is_place(operation: HloOperation, value: int) -> bool:
    """Return whether a value says where a scatter puts its rows."""
    return (
        operation.opcode == "scatter"
        and value in operation.operands[len(operation.operands) // 2 :][:1]
    )


def _places(body: Body) -> dict[int, int]:
    """In which order values come where everything is worked out as late as the results ask for it,
    one by one."""
    makers = {value: operation for operation in body.operations for value in operation.results}
    places: dict[int, int] = {}
    begun, waiting = set[int](), list(reversed(body.results))
    while waiting:
        value = waiting[-1]
        maker = makers.get(value)
        if value in places or maker is None or id(maker) in begun:
            places.setdefault(waiting.pop(), len(places))
            continue
        begun.add(id(maker))
        kept = _kept_as_they_are(maker)
        asked = [*(value for value in all_operands(maker) if value not in kept), *kept]
        waiting += reversed(asked)
    return places


def _kept_as_they_are(operation: HloOperation) -> dict[int, None]:
    """Return what a loop reads and does not change: that comes last of what it is given."""
    if operation.opcode != "while":
        return {}
    inner = operation.bodies[-1]
    pairs = zip(operation.operands, inner.parameters, inner.results, strict=False)
    return dict.fromkeys(given for given, before, after in pairs if before == after)


def _above(users: Iterable[int]) -> int:
    height = 0
    for user in users:
        height = max(height, user) + 1
    return height


def _is_gone_later(
    program: Program, operation: HloOperation, body: Body, users: dict[int, list[int]],
    makers: dict[int, HloOperation], scaled: set[int],
) -> bool:  # fmt: skip
    """Return whether an operation is simplified away until gathers are shared. What is multiplied
    by one constant and then another is multiplied once."""
    if not operation.results:
        return False
    used_by = [body.operations[user] for user in users.get(operation.results[0], ())]
    return (
        _is_gone(program, operation)
        or (id(operation) in scaled and any(id(one) in scaled for one in used_by))
        # Products read bfloat16 as it is, and nothing is less than minus infinity.
        or (
            operation.opcode == "convert"
            and {one.opcode for one in used_by} == {"dot_general"}
            and program.types[operation.operands[0]].dtype == "bf16"
        )
        or (
            operation.opcode == "maximum"
            and any(number in _LEAST for number in _constants(operation, makers))
        )
    )


def _is_gone(program: Program, operation: HloOperation) -> bool:
    """Return whether the compiler has simplified an operation away: constraints, and dimensions of
    one that come or go."""
    if operation.opcode in ("optimization_barrier", "shard", "unshard"):
        return "placed" in operation.attributes
    if operation.opcode not in ("broadcast_in_dim", "reduce", "reshape"):
        return False
    given, made = (
        program.types[value].shape for value in (operation.operands[0], operation.results[0])
    )
    return [size for size in given if size > 1] == [size for size in made if size > 1]


def _constants(operation: HloOperation, makers: dict[int, HloOperation]) -> list[object]:
    """The operands that are one number, repeated."""
    found: list[object] = []
    for value in operation.operands:
        maker = makers.get(value)
        while maker is not None and maker.opcode in ("broadcast_in_dim", "convert", "reshape"):
            maker = makers.get(maker.operands[0])
        if maker is not None and maker.opcode == "constant":
            found.append(maker.attributes.get("value"))
    return found


def _rename(body: Body, renamed: dict[int, int]) -> None:
    for operation in walk(body):
        operation.operands = tuple(renamed.get(value, value) for value in operation.operands)
    body.results = [renamed.get(value, value) for value in body.results]
