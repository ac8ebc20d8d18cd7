"""Which values take the place of others in memory: arguments that are donated, and what a loop
carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podyard.engine.program.ir import Body, Program
from podyard.engine.timing.graph import Fused, Kernel
from podyard.engine.timing.pricing import Pricer


def made_while_read(program: Program, pricer: Pricer) -> Iterator[int]:
    """Results that a loop makes while it reads the argument whose place they are to have: they take
    it only when the loop has ended."""
    for loop in program.body.operations:
        if loop.opcode == "while":
            given = [pricer.resolve(value) for value in loop.operands]
            made = {pricer.resolve(value): place for place, value in enumerate(loop.results)}
            for value, index in program.donated.items():
                place = made.get(pricer.resolve(program.body.results[index]))
                if place is not None and value in given and given[place] != value:
                    yield index


def carried_values(body: Body, pricer: Pricer) -> dict[int, int]:
    """Return what a turn of a loop hands to the next, by the values in its body that it takes the
    place of."""
    pairs = zip(body.parameters, body.results, strict=False)
    return {pricer.resolve(new): own for own, new in pairs if own != new}


def beside_their_old(body: Body, fused: Fused, pricer: Pricer) -> set[int]:
    """Of the values that a turn of a loop hands to the next, those that cannot take the place of
    the old ones, because
    a matrix product or permutation that makes them, or a later kernel, reads those. Element-wise
    kernels, updates and products after which something is done with the old value, number by
    number, work in place."""
    others: set[int] = set()
    types = pricer.program.types
    old = carried_values(body, pricer)
    for place, kernel in enumerate(fused.kernels):
        for value in set(kernel.outputs) & (old.keys() - fused.in_place.keys()):
            alike = types[value] == types[old[value]]
            in_place = alike and old[value] not in pricer.multiplied_operands(kernel)
            sends = kernel.anchor is not None and kernel.anchor.opcode == "collective_permute"
            reads = (
                (sends or kernel.kind == "matrix") and old[value] in kernel.inputs and not in_place
            )
            if reads or any(old[value] in reader.inputs for reader in fused.kernels[place + 1 :]):
                others.add(value)
    return others


def sent_on(fused: Fused) -> set[int]:
    """Return what permutations between devices make."""
    anchors = (kernel.anchor for kernel in fused.kernels)
    sent = (one for one in anchors if one is not None and one.opcode == "collective_permute")
    return {value for one in sent for value in one.results}


def changed_in_place(kernel: Kernel, carried: Mapping[int, int], fused: Fused) -> set[int]:
    """Return what a kernel of a turn writes over the values of `carried` that it reads, but for
    updates of parts."""
    made = carried.keys() & set(kernel.outputs) - fused.in_place.keys()
    return {value for value in made if carried[value] in kernel.inputs}


def summed_over_arguments(
    fused: Fused, pricer: Pricer, instead: Mapping[int, tuple[int, ...]]
) -> set[int]:
    """Return what is summed over devices in its place, where the sum has the place of a donated
    argument that the kernel of the first of these values is the last to read. `instead`: values
    that have the place of others."""
    body, donated = pricer.program.body, pricer.program.donated
    taken = {pricer.resolve(body.results[index]): argument for argument, index in donated.items()}
    last_read = {
        value: place for place, kernel in enumerate(fused.kernels) for value in kernel.inputs
    }
    made_by = {
        value: place for place, kernel in enumerate(fused.kernels) for value in kernel.outputs
    }
    found: set[int] = set()
    for place, kernel in enumerate(fused.kernels):
        argument = next((taken[value] for value in kernel.outputs if value in taken), None)
        if argument is None or kernel.anchor is None or kernel.anchor.opcode != "all_reduce":
            continue
        (given,) = kernel.inputs if len(kernel.inputs) == 1 else (None,)
        if (
            given is None
            or last_read[given] != place
            or pricer.type_of(given) != pricer.type_of(kernel.outputs[0])
        ):
            continue
        first = instead.get(given, (given,))[0]
        if last_read.get(argument, -1) <= made_by.get(first, -1):
            found |= {first, given}
    return found


def changed_in_loop(kernel: Kernel, pricer: Pricer) -> dict[int, int]:
    """Of a loop, arguments that are not the program's to change, by what takes their place in it:
    the loop's result where that is read, or the name in its body."""
    operation, program = kernel.anchor, pricer.program
    if operation is None or operation.opcode != "while":
        return {}
    kept = set(program.body.parameters) - program.donated.keys()
    body, copied = operation.bodies[-1], dict[int, int]()
    for place, operand in enumerate(operation.operands):
        own, new, given = body.parameters[place], body.results[place], pricer.resolve(operand)
        if own != new and given in kept and program.types[given].shape:
            result = operation.results[place]
            copied[result if result in kernel.outputs else own] = given
    return copied
