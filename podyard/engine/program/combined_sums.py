"""Sums over devices that are one collective (openxla/xla, all_reduce_combiner.cc and
collective_combiner_utils.h). The direction was read off compiled programs: from the last operation
to the first. No JAX in here."""

from __future__ import annotations

from podyard.engine.program.ir import Body, HloOperation, Program, all_operands

SUMS = ("all_reduce", "reduce_scatter")
# Arrays of a sum of several have no more bytes together, and are no more (options of the
# compiler's, as it writes them down: `xla_jf_crs_combiner_threshold_in_bytes` and `_count`).
_TUPLE_BYTES = 120 * 2**20
_TUPLE_ARRAYS = 256


def number_sums(program: Program, body: Body, joined_bytes: float) -> None:
    """Gives each sum of a body a `tuple`: those with one number are one collective.

    From the last to the first, as results are worked out one after the other, a sum joins those of
    its kind behind it, unless one of them waits for it, or they become too large. `joined_bytes`:
    see `Links`.
    """
    sums = [one for one in _by_results(body) if one.opcode in SUMS and "axes" in one.attributes]
    waits = _waits(body, sums)
    left = list(reversed(range(len(sums))))
    number = 0
    while left:
        # Those of this collective, as bits, what they wait for, and their bytes.
        members, behind, nbytes = 0, 0, 0
        kind = _kind(program, sums[left[0]])
        passed: list[int] = []
        for place in left:
            own, most = sums[place], _most(program, sums[place], joined_bytes)
            more = own.int("bytes", program.types[own.operands[0]].nbytes)
            waits_for_it = behind >> place & 1 or waits[place] & members
            is_full = nbytes + more > most or members.bit_count() == _TUPLE_ARRAYS
            if _kind(program, own) != kind or (members and (waits_for_it or is_full)):
                passed.append(place)
                continue
            members, behind, nbytes = members | 1 << place, behind | waits[place], nbytes + more
            own.attributes = {**own.attributes, "tuple": number}
        left = passed
        number += 1
        # What waits for one of them waits for all.
        together = members | behind
        for place, own_waits in enumerate(waits):
            if members >> place & 1:
                waits[place] = behind & ~members
            elif own_waits & members:
                waits[place] |= together


def _kind(program: Program, operation: HloOperation) -> tuple[object, ...]:
    dtype = program.types[operation.operands[0]].dtype
    return operation.opcode, operation.attributes["axes"], dtype, operation.attributes.get("by")


def _most(program: Program, operation: HloOperation, joined_bytes: float) -> float:
    """Up to how many bytes a sum joins others."""
    if operation.opcode != "reduce_scatter":
        return _TUPLE_BYTES
    axes = operation.attributes["axes"]
    devices = program.mesh.extent(axes) if isinstance(axes, tuple) else 0
    return 0 if "given" in operation.attributes else joined_bytes * devices / (devices + 4)


def _by_results(body: Body) -> list[HloOperation]:
    """The operations in the order in which the results of the body need them, one result after the
    other. Of what one reads, the last comes first (compiled programs: the sum of exponentials comes
    before that of a gradient)."""
    makers = {value: step for step in body.operations for value in step.results}
    order: dict[int, HloOperation] = {}
    stack = [makers[value] for value in reversed(body.results) if value in makers]
    opened: set[int] = set()
    while stack:
        step = stack[-1]
        if id(step) in opened:
            order.setdefault(id(stack.pop()), step)
            continue
        opened.add(id(step))
        given = (makers[value] for value in all_operands(step) if value in makers)
        stack += [one for one in given if id(one) not in opened]
    return [*order.values(), *(step for step in body.operations if id(step) not in order)]


def _waits(body: Body, sums: list[HloOperation]) -> list[int]:
    """Of each sum the others that it waits for, as bits."""
    place_of = {id(one): place for place, one in enumerate(sums)}
    before: dict[int, int] = {}
    found = [0] * len(sums)
    for step in body.operations:
        bits = 0
        for value in all_operands(step):
            bits |= before.get(value, 0)
        place = place_of.get(id(step))
        if place is not None:
            found[place] = bits
            bits |= 1 << place
        if bits:
            before.update(dict.fromkeys(step.results, bits))
    return found
