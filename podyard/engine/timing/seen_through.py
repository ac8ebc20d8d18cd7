"""Values of a program that are not in memory by themselves: their readers make them from others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from podyard.engine.program.ir import TensorType
from podyard.engine.timing.graph import Fused
from podyard.engine.timing.layout import nbytes_in_memory
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.touched import fills_itself


class SeenThrough(dict[int, tuple[int, ...]]):
    """Values that are not in memory, with those that their readers make them from; `kept` are in
    memory in full, `unpacked` (with their bytes) just while they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[int] = set()
        self.unpacked: dict[int, int] = {}


def find_seen_through(fused: Fused, pricer: Pricer, kept: Collection[int]) -> SeenThrough:
    """Masks that nobody keeps: one that a product alone reads is made in it; and where a
    convolution would keep a mask and rounded numbers for products, it keeps the numbers in full,
    which are enough for both. So it does where it would choose by a mask of these numbers. What is
    put into a larger array has no separate place, nor has a sum over devices in memory."""
    readers = Counter(value for kernel in fused.kernels for value in kernel.inputs)
    read_by_products = {
        value for kernel in fused.kernels if kernel.kind == "matrix" for value in kernel.inputs
    }
    scattered = {
        pricer.resolve(kernel.anchor.operands[-1])
        for kernel in fused.kernels
        if kernel.anchor is not None and kernel.anchor.opcode == "scatter"
    }
    found = SeenThrough()
    whole = whole_sums(fused, pricer)
    # Scatters that write what they start from themselves, and those into numbers that another
    # kernel wrote.
    scatters = {
        value: pricer.program.producer(value)
        for value, target in fused.in_place.items()
        if target in fused.filled
    }
    alone = {
        value
        for value, made in scatters.items()
        if made is not None and fills_itself(pricer.program, made)
    }
    others = {
        value for value, made in scatters.items() if made is not None and made.opcode == "scatter"
    } - alone
    for result, target in fused.in_place.items():
        # On the chip, the result of such a scatter is a second array.
        if result not in others or not pricer.is_near(target):
            found[result] = found.get(target, (target,))
    for kernel in fused.kernels:
        opcode = kernel.anchor.opcode if kernel.anchor is not None else ""
        once = [value for value in kernel.outputs if readers[value] == 1]
        is_only = [readers[value] for value in kernel.inputs] == [1] and alone >= found.keys() & {
            *kernel.inputs
        }
        makers = map(pricer.program.producer, kernel.inputs)
        is_looped = any(made is not None and made.opcode == "while" for made in makers)
        if (
            opcode == "all_reduce"
            and is_only
            and not is_looped
            and not any(map(pricer.is_near, kernel.inputs))
        ):
            given = pricer.type_of(kernel.inputs[0])
            same = (
                value
                for value in kernel.outputs
                if pricer.type_of(value) == given or value in whole
            )
            sources = [source for value in kernel.inputs for source in found.get(value, (value,))]
            found.update((value, (*sources, value)) for value in same if value not in kept)
        if opcode == "compare" and once == kernel.outputs and read_by_products.issuperset(once):
            found.update((value, tuple(kernel.inputs)) for value in once)
        if (
            opcode == "gather"
            and once == kernel.outputs
            and scattered.issuperset(once)
            and not set(kept) & set(once)
        ):
            found.update((value, tuple(kernel.inputs)) for value in once)
        if opcode == "convolution":
            full = {
                pricer.program.types[value].shape: value
                for value in kernel.outputs
                if value in fused.stored
            }
            for value in kernel.outputs:
                type_ = pricer.program.types[value]
                if type_.dtype == "pred" and type_.shape in full:
                    found[value] = (full[type_.shape],)
                    found.kept.add(full[type_.shape])
                    found.unpacked[value] = nbytes_in_memory(type_, pricer.costs.tiling)
            compared = {
                operation.results[0]
                for operation in kernel.operations
                if operation.opcode == "compare"
            }
            for operation in kernel.operations:
                if (
                    operation.opcode == "select"
                    and pricer.resolve(operation.operands[0]) in compared
                ):
                    found.kept.update(
                        set(operation.results) & set(kernel.outputs) & fused.stored.keys()
                    )
    return found


def whole_sums(fused: Fused, pricer: Pricer) -> dict[int, TensorType]:
    """Sums of which each device takes a part while it reads them, from v4 on: all of such a sum is
    in memory."""
    anchors = [kernel.anchor for kernel in fused.kernels if kernel.anchor is not None]
    return {
        result: pricer.type_of(pricer.resolve(operand))
        for anchor in anchors
        if anchor.opcode == "all_reduce" and pricer.costs.prefetch_bytes
        for operand, result in zip(anchor.operands, anchor.results, strict=False)
        if pricer.program.types[result].size < pricer.program.types[operand].size
    }
