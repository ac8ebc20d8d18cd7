"""Copies of arrays that a kernel or a collective needs next to those of the program, and those on the chip of what lies
in memory (from v4 on)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from podyard.engine.program.ir import TensorType
from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.kernels import is_kept_near
from podyard.engine.timing.layout import compact_layout, nbytes_in_memory, padded_bytes
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.schedule import MemorySchedule, Step
from podyard.hardware.cost_model import CostModel

_NOBODY = Step((), (), 0, False)


def _turned_for_rows(type_: TensorType, costs: CostModel) -> int:
    """Bytes of a copy with rows in lanes of what lies otherwise."""
    last = len(type_.shape) - 1
    lies = compact_layout(type_, costs.tiling).lane_axis == last
    return 0 if lies else padded_bytes(type_, last, last - 1, costs.tiling)


def bytes_beside(kernel: Kernel, pricer: Pricer, on_chip: bool) -> int:
    """Bytes of copies of operands that a kernel works on: numbers to sort have a second place in memory, those of a
    running sum along the lanes one, too, and two on the chip. What is sorted there is sorted in place; on the chip is
    a table that fits, while its rows are looked up."""
    anchor, room = kernel.anchor, pricer.costs.prefetch_bytes
    if anchor is not None and anchor.opcode == "attention":
        return sum(_turned_for_rows(pricer.type_of(one), pricer.costs) for one in (*kernel.inputs, *kernel.outputs))
    if anchor is None or anchor.opcode not in ("sort", "gather", "reduce_window"):
        return 0
    operands, results = ([*map(pricer.resolve, values)] for values in (anchor.operands, anchor.results))
    sizes = [nbytes_in_memory(pricer.type_of(one), pricer.costs.tiling) for one in operands]
    if anchor.opcode == "reduce_window":
        lane = compact_layout(pricer.type_of(operands[0]), pricer.costs.tiling).lane_axis or 0
        is_running = pricer.passes(kernel) > 1 and anchor.ints("window")[lane] > 1
        return is_running * (sizes[0] if not room or sizes[0] > room / 2 else 2 * sizes[0] if on_chip else 0)
    if anchor.opcode == "sort":
        places = TensorType(pricer.type_of(operands[0]).shape, "s32")
        own = nbytes_in_memory(places, pricer.costs.tiling) if len(operands) == 1 else 0
        if sum(sizes) + own > room:
            return sum(sizes)
        copied = [one for one in (*operands, *results) if pricer.is_outside(one)]
        return on_chip * (own + sum(nbytes_in_memory(pricer.type_of(one), pricer.costs.tiling) for one in copied))
    return sizes[0] if on_chip and sizes[0] <= room else 0


def bytes_sent(
    kernel: Kernel, results: Collection[int], arguments: Collection[int], pricer: Pricer, on_chip: bool
) -> int:
    """Bytes of what a collective makes before it is copied: what is gathered or moved is not put into a result of the
    program, and an argument that is summed up over devices before a part is taken is whole once more."""
    if kernel.kind != "collective" or kernel.anchor is None:
        return 0
    types, tiling = pricer.program.types, pricer.costs.tiling
    made = [types[value] for value in kernel.anchor.results if pricer.resolve(value) in results]
    if kernel.anchor.opcode in ("all_reduce", "reduce_scatter"):
        is_sum = kernel.anchor.opcode == "all_reduce" or tiling.min_sublanes > 1
        given = types[kernel.anchor.operands[0]]
        is_part = types[kernel.anchor.results[0]].size < given.size
        made = [given] if is_sum and is_part and pricer.resolve(kernel.anchor.operands[0]) in arguments else []
    return sum(nbytes_in_memory(one, tiling) for one in made if on_chip or not is_kept_near(one, pricer.costs))


def with_copies(
    steps: Sequence[Step], outside: Collection[int], near: Mapping[int, int], pricer: Pricer, *, is_product: bool
) -> Iterator[Step]:
    """Each step with the copies on the chip of what lies in memory: what it and the next one read, fetched while the
    step before runs, and what it and the one before write, on its way out. The first one has nobody before it; of a
    program that is one matrix product (`is_product`) one operand is there when it starts. What is fetched stays until
    it is read for the last time, where there is room next to `near`, the temporaries that are there."""
    room = pricer.costs.prefetch_bytes
    ours = [step if step.is_fetched else _NOBODY for step in steps]
    sizes = {
        value: nbytes_in_memory(pricer.type_of(value), pricer.costs.tiling)
        for step in ours
        for value in (*step.reads, *step.makes)
        if value in outside
    }
    if len(steps) == 1:
        largest = max((sizes.get(value, 0) for value in steps[0].reads), default=0)
        yield dataclasses.replace(steps[0], extra=steps[0].extra + (largest if is_product and largest <= room else 0))
        return
    copies: list[set[int]] = []
    loads = np.zeros(len(steps))
    uses: dict[int, list[int]] = {}
    for place, (before, own, after) in enumerate(zip([_NOBODY, *ours], ours, [*ours[1:], _NOBODY], strict=False)):
        wanted = (before.makes, own.makes, after.reads, own.reads if before.reads else ())
        here: set[int] = set()
        for value in dict.fromkeys(itertools.chain.from_iterable(wanted)):
            if loads[place] + sizes.get(value, 0) <= room:
                loads[place] += sizes.get(value, 0)
                here.add(value)
        copies.append(here)
        for value in own.reads:
            if value in here and value in sizes:
                uses.setdefault(value, []).append(place)
    kept = loads + MemorySchedule([dataclasses.replace(step, extra=0) for step in steps], near).nbytes
    gaps = [
        (first + 1, last - 1, sizes[value])
        for value, places in uses.items()
        for first, last in itertools.pairwise(places)
    ]
    for start, end, size in sorted(gaps if pricer.costs.results_stay else (), key=lambda gap: gap[1] - gap[0]):
        if start < end and kept[start:end].max() + size <= room:
            kept[start:end] += size
            loads[start:end] += size
    for step, load in zip(steps, loads, strict=True):
        yield dataclasses.replace(step, extra=step.extra + int(load))
