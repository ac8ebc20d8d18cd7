"""How much memory a program needs: arguments and results with their padding, and the most temporaries at one time.

A temporary lives from the kernel that makes it to the last one that reads it. From v4 on, small ones stay on the chip.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from podyard.engine.program.ir import Body, Program
from podyard.engine.timing.costs import CostModel
from podyard.engine.timing.estimate import BufferEstimate
from podyard.engine.timing.graph import Fused, Kernel
from podyard.engine.timing.layout import nbytes_in_memory
from podyard.engine.timing.pricing import Pricer

# How many buffers a verdict lists.
LARGEST_BUFFERS = 8
_ADDRESS_BYTES = 4
# `... total memory required for HLO temporaries (8.58G) exceeds available HBM (7.48G)`: arguments and results included.
_NAMED_TOTAL = re.compile(r"total memory required for [^(]*\(([\d.]+)([KMGT]?)\)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of one device. `largest`: what takes most of it at the peak."""

    argument_bytes: int
    result_bytes: int
    temporary_bytes: int
    donated_bytes: int
    largest: tuple[BufferEstimate, ...]

    @property
    def peak_bytes(self) -> int:
        return self.argument_bytes + self.result_bytes + self.temporary_bytes - self.donated_bytes


def memory_need(
    program: Program, body: Body, fused: Fused, pricer: Pricer, inner_peak: Callable[[Kernel], int], costs: CostModel
) -> MemoryNeed:
    """`inner_peak` gives the temporaries that the bodies of a loop need while it runs."""
    arguments = {value: nbytes_in_memory(program.types[value], costs.tiling) for value in body.parameters}
    results = [nbytes_in_memory(program.types[value], costs.tiling) for value in body.results]
    donated = sum(
        min(arguments[value], results[index]) for value, index in program.donated.items() if value in arguments
    )
    if len(results) > 1:
        table = _ADDRESS_BYTES * len(results)
        results.append(-(-table // costs.result_table_bytes) * costs.result_table_bytes)
    peak, held = temporaries(body, fused, pricer, inner_peak, costs)
    buffers = [
        BufferEstimate(f"argument {index} {program.types[value]}", "argument", arguments[value])
        for index, value in enumerate(body.parameters)
    ]
    buffers += [
        BufferEstimate(f"result {index} {program.types[value]}", "result", results[index])
        for index, value in enumerate(body.results)
    ]
    buffers += [BufferEstimate(name, "temporary", nbytes) for name, nbytes in held]
    buffers.sort(key=lambda buffer: -buffer.nbytes)
    return MemoryNeed(sum(arguments.values()), sum(results), peak, donated, tuple(buffers[:LARGEST_BUFFERS]))


def temporaries(
    body: Body, fused: Fused, pricer: Pricer, inner_peak: Callable[[Kernel], int], costs: CostModel
) -> tuple[int, list[tuple[str, int]]]:
    """(bytes at the peak, (name, bytes) of what is held then)."""
    outside = {pricer.resolve(value) for value in (*body.parameters, *body.results)}
    last_read: dict[int, int] = {}
    for place, kernel in enumerate(fused.kernels):
        for value in kernel.inputs:
            last_read[value] = place
    live: dict[int, int] = {}
    peak, held = 0, list[tuple[str, int]]()
    total = 0
    for place, kernel in enumerate(fused.kernels):
        for value in kernel.outputs:
            if value in outside or pricer.is_near(value) or value in live:
                continue
            live[value] = nbytes_in_memory(pricer.type_of(value), costs.tiling)
            total += live[value]
        extra = inner_peak(kernel) + (nbytes_in_memory(kernel.moved, costs.tiling) if kernel.moved else 0)
        if total + extra > peak:
            peak = total + extra
            held = [(str(pricer.type_of(value)), nbytes) for value, nbytes in live.items()]
        for value in [value for value in live if last_read.get(value, -1) <= place]:
            total -= live.pop(value)
    return peak, held


def named_total_bytes(out_of_memory_text: str) -> int | None:
    """What the TPU compiler says that a program needs, from its text for one that does not fit; to three digits or
    so, as it writes it. None where the text names no total."""
    found = _NAMED_TOTAL.search(out_of_memory_text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else None
