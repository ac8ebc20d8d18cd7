"""Copies of arrays that a kernel or a collective needs next to those of the program, and those on
the chip of what lies in memory (from v4 on)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from podyard.engine.program.ir import TensorType
from podyard.engine.timing.graph import OPAQUE, Fused, Kernel
from podyard.engine.timing.kernels import better_order, is_kept_near, is_laid_on_chip
from podyard.engine.timing.laid_out import laid_out_bytes
from podyard.engine.timing.layout import compact_layout, nbytes_in_memory, padded_bytes
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.schedule import Step
from podyard.hardware.cost_model import CostModel

# Net cycles that kernels must run after a value is made before a reader finds a copy of it on the
# chip. Read off a schedule on v5p: reads after up to 3,300 cycles are from HBM, from 8,100 on from
# copies, in between from both.
_COPIED_AFTER_CYCLES = 6000


@dataclasses.dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes on the chip during each step, and those that are counted twice. `left`: values that the
    program makes in HBM, with the step from which on they are read on the chip alone: nothing of
    them is in HBM any more."""

    loads: NDArray[np.float64]
    twice: NDArray[np.float64]
    left: Mapping[int, int]


def _turned_for_rows(type_: TensorType, costs: CostModel) -> int:
    """Bytes of a copy with rows in lanes of what lies otherwise."""
    last = len(type_.shape) - 1
    lies = compact_layout(type_, costs.tiling).lane_axis == last
    return 0 if lies else padded_bytes(type_, last, last - 1, costs.tiling)


def besides(
    kernel: Kernel,
    results: Collection[int],
    arguments: Collection[int],
    pricer: Pricer,
    *,
    near: bool,
) -> int:
    """Bytes that a kernel needs next to what it reads and makes, on the chip (`near`) or in HBM."""
    laid_out = sum(laid_out_bytes(kernel, pricer, near)) + sum(_in_own_tiles(kernel, pricer, near))
    return (
        laid_out
        + _bytes_beside(kernel, pricer, near)
        + _bytes_sent(kernel, results, arguments, pricer, near)
    )


def _in_own_tiles(kernel: Kernel, pricer: Pricer, on_chip: bool) -> Iterator[int]:
    """Bytes of results of many small products, each padded to whole tiles, before they are copied
    to where the number
    of the product lies in lanes; of operands that lie so and that no product or element-wise work
    makes, too."""
    anchor, types, tiling = kernel.anchor, pricer.program.types, pricer.costs.tiling
    if anchor is None or anchor.opcode != "dot_general":
        return
    batch = len(anchor.ints("lhs_batching"))
    moved = [anchor.results[0]]
    for value in {*map(pricer.resolve, anchor.operands)}:
        maker = pricer.program.producer(value)
        moved += [value] if maker is not None and maker.opcode in OPAQUE else []
    if batch and all(
        len(types[value].shape) == batch + 2 for value in (*anchor.operands, *anchor.results)
    ):
        for value in moved:
            lane = compact_layout(types[value], tiling).lane_axis
            laid = padded_bytes(pricer.type_of(value), batch + 1, batch, tiling)
            if (
                lane is not None
                and lane < batch
                and on_chip
                == is_laid_on_chip(
                    types[value], better_order(types[value], (batch + 1, batch)), pricer.costs
                )
            ):
                yield laid


def _bytes_beside(kernel: Kernel, pricer: Pricer, on_chip: bool) -> int:
    """Bytes of copies of operands that a kernel works on: numbers to sort have a second place in
    memory, those of a running sum along the lanes one, too, and two on the chip. What is sorted
    there is sorted in place."""
    anchor, room = kernel.anchor, pricer.costs.prefetch_bytes
    if anchor is not None and anchor.opcode == "attention":
        turned = (
            _turned_for_rows(pricer.type_of(one), pricer.costs)
            for one in (*kernel.inputs, *kernel.outputs)
        )
        return 0 if on_chip else sum(turned)
    if anchor is None or anchor.opcode not in ("sort", "reduce_window"):
        return 0
    operands, results = (
        [*map(pricer.resolve, values)] for values in (anchor.operands, anchor.results)
    )
    sizes = [nbytes_in_memory(pricer.type_of(one), pricer.costs.tiling) for one in operands]
    if anchor.opcode == "reduce_window":
        lane = compact_layout(pricer.type_of(operands[0]), pricer.costs.tiling).lane_axis or 0
        is_running = pricer.passes(kernel) > 1 and anchor.ints("window")[lane] > 1
        is_here = 0 < sizes[0] <= room / 2
        # Two at any time there: of the numbers, their turned copy, the turned sums and the sums.
        copies = 2 - sum(map(pricer.is_near, (operands[0], results[0]))) if on_chip else 1
        return copies * sizes[0] if is_running and on_chip == is_here else 0
    places = TensorType(pricer.type_of(operands[0]).shape, "s32")
    own = nbytes_in_memory(places, pricer.costs.tiling) if len(operands) == 1 else 0
    if sum(sizes) + own > room:
        return 0 if on_chip else sum(sizes)
    copied = [one for one in (*operands, *results) if pricer.is_outside(one)]
    return on_chip * (
        own + sum(nbytes_in_memory(pricer.type_of(one), pricer.costs.tiling) for one in copied)
    )


def _bytes_sent(
    kernel: Kernel,
    results: Collection[int],
    arguments: Collection[int],
    pricer: Pricer,
    on_chip: bool,
) -> int:
    """Bytes of what a collective makes before it is copied: what is gathered or moved is not put
    into a result of the program, and an argument that is summed up over devices before a part is
    taken is whole once more."""
    if kernel.kind != "collective" or kernel.anchor is None:
        return 0
    types, tiling = pricer.program.types, pricer.costs.tiling
    made = [types[value] for value in kernel.anchor.results if pricer.resolve(value) in results]
    if kernel.anchor.opcode in ("all_reduce", "reduce_scatter"):
        is_sum = kernel.anchor.opcode == "all_reduce" or tiling.min_sublanes > 1
        given = types[kernel.anchor.operands[0]]
        is_part = types[kernel.anchor.results[0]].size < given.size
        made = (
            [given]
            if is_sum and is_part and pricer.resolve(kernel.anchor.operands[0]) in arguments
            else []
        )
    return sum(
        nbytes_in_memory(one, tiling) for one in made if on_chip == is_kept_near(one, pricer.costs)
    )


def on_chip(
    steps: Sequence[Step],
    near: Mapping[int, int],
    room: float,
    over: Mapping[int, int],
    taken: NDArray[np.float64] | float = 0.0,
) -> tuple[set[int], NDArray[np.float64], NDArray[np.float64]]:
    """Return which of the values in `near` stay on the chip from when they are made until they are
    read for the last time, the bytes there during each step, and those that the compiler counts
    twice, as it makes a value in the place of another (`over`). Those that live shortest have their
    place first; what finds none is written to HBM, and is on the chip only while a kernel works on
    it. `taken`: bytes that are not to be had during each step; they are in the result."""
    own = np.array([min(step.near_extra, room) for step in steps], dtype=np.float64)
    loads = own + taken
    twice = np.zeros(len(steps))
    spans: dict[int, tuple[int, int]] = {}
    changed: list[tuple[int, int, int]] = []
    for place, step in enumerate(steps):
        changed += [
            (place, value, over[value])
            for value in step.makes
            if value in over and over[value] in near
        ]
        for value in (*step.reads, *step.makes):
            if value in near:
                value = over[value] if over.get(value) in near else value
                spans[value] = (spans.get(value, (place, place))[0], place)
    here: set[int] = set()
    for value, (first, last) in sorted(
        spans.items(), key=lambda span: (span[1][1] - span[1][0], near[span[0]])
    ):
        if loads[first : last + 1].max() + near[value] <= room:
            loads[first : last + 1] += near[value]
            here.add(value)
    for place, value, target in changed:
        if target in here:
            here.add(value)
            twice[place] += near[target]
    for place, step in enumerate(steps):
        twice[place] += step.doubled + sum(near[value] for value in step.gathered if value in here)
    return here, loads, twice


def leaving(
    steps: Sequence[Step], near: AbstractSet[int], limit_cycles: float
) -> tuple[list[Step], dict[int, int]]:
    """The steps, and one more for each value in `near` that is not touched for longer than
    `limit_cycles`: it writes a copy to HBM, which later steps read. The copies, with the values
    that they are of."""
    starts = np.cumsum([0.0, *(step.run.cycles for step in steps)])
    touched: dict[int, int] = {}
    copy_of: dict[int, int] = {}
    written: dict[int, list[Step]] = {}
    after: list[tuple[int, ...]] = []
    number = max((value for step in steps for value in (*step.reads, *step.makes)), default=0) + 1
    for place, step in enumerate(steps):
        for value in near & ({*step.reads, *step.makes} - copy_of.keys()):
            last = touched.get(value, place)
            if last < place and starts[place] - starts[last + 1] > limit_cycles:
                copy_of[value] = number
                written.setdefault(last, []).append(Step((value,), (number,), 0, False))
                number += 1
            touched[value] = place
        after.append(tuple(copy_of.get(value, value) for value in step.reads))
    ordered: list[Step] = []
    for place, step in enumerate(steps):
        ordered += [dataclasses.replace(step, reads=after[place]), *written.get(place, ())]
    return ordered, {copy: value for value, copy in copy_of.items()}


def fetched(
    steps: Sequence[Step], outside: Collection[int], made: Mapping[int, int],
    loads: NDArray[np.float64],
    pricer: Pricer,
) -> Fetched:  # fmt: skip
    """Copies on the chip of what lies in HBM: values from `outside` and those that are `made`
    there, with their bytes; `loads` is without them. What a step reads is fetched while those
    before it run, as late as they leave the
    memory time for it, and stays until it is read for the last time; what it writes leaves while
    those after it run; both where there is room. What takes the place of an argument is written
    where that is. One argument is there when the program starts, and in `loads`."""
    twice = np.zeros(len(steps))
    places = _Places(steps, outside, made, loads, pricer)
    body, donated = pricer.program.body, pricer.program.donated
    over = {value: pricer.resolve(body.results[index]) for value, index in donated.items()}
    # What rows were looked up in is not fetched as a whole later (compiled steps with a table on
    # v5e).
    looked_up: set[int] = set()
    for place, step in enumerate(steps):
        changed = {over[value]: value for value in step.reads if over.get(value) in step.makes}
        for value in dict.fromkeys(step.reads):
            is_far = (
                not step.is_fetched
                or (step.writes_far and over.get(value) in step.makes)
                or value in looked_up
            )
            if is_far or not places.read(value, place):
                places.left.pop(value, None)
            looked_up |= {value} if step.is_lookup else set()
        for value in dict.fromkeys(step.makes if step.is_fetched else ()):
            if value in changed:
                twice[place] += places.sizes[value] * (
                    places.read_last.get(changed[value]) == place
                )
            elif value in outside:
                places.move(value, place, range(place + 1, len(steps)))
    return Fetched(places.loads, twice, places.left)


def joined_sums(steps: Sequence[Step]) -> set[int]:
    """Return what a sum over devices of several arrays makes."""
    return {value for step in steps if step.is_joined for value in step.makes}


def with_sums(
    steps: Sequence[Step], sums: Mapping[int, int], loads: NDArray[np.float64], room: float
) -> tuple[set[int], NDArray[np.float64]]:
    """Return which of these `sums` are on the chip, and the bytes there with them. They have what
    all others leave, copies of arguments included, the smallest first; the others are written to
    HBM. (Compiled on v4.)"""
    loads, here = loads.copy(), set[int]()
    for value, size in sorted(sums.items(), key=lambda one: one[1]):
        places = [
            place for place, step in enumerate(steps) if value in step.reads or value in step.makes
        ]
        if places and loads[places[0] : places[-1] + 1].max() + size <= room:
            loads[places[0] : places[-1] + 1] += size
            here.add(value)
    return here, loads


def off_hbm(steps: Sequence[Step], left: Mapping[int, int]) -> list[Step]:
    """The steps with what they read in HBM: values that have `left` are there until their copy is
    complete."""
    last: dict[int, list[int]] = {}
    for value, place in left.items():
        last.setdefault(place - 1, []).append(value)
    return [
        dataclasses.replace(
            step,
            reads=(
                *(value for value in step.reads if place < left.get(value, len(steps))),
                *last.get(place, ()),
            ),
        )
        for place, step in enumerate(steps)
    ]


class _Places:
    """The chip's memory over time, and what the bus to HBM can still move during each step."""

    def __init__(
        self, steps: Sequence[Step], outside: Collection[int], made: Mapping[int, int],
        loads: NDArray[np.float64],
        pricer: Pricer,
    ) -> None:  # fmt: skip
        costs = pricer.costs
        self.room = costs.prefetch_bytes
        self.loads = loads.copy()
        self.read_last: dict[int, int] = {}
        self.left: dict[int, int] = {}
        per_cycle = costs.hbm_bytes_per_second / costs.clock_hz
        self._free = [max(step.run.cycles * per_cycle, step.moves) for step in steps]
        # Net cycles until each step starts.
        self._starts = np.cumsum(
            [0.0, *(max(0.0, step.run.cycles - costs.vector_kernel_cycles) for step in steps)]
        )
        self._cycles = np.cumsum([0.0, *(step.run.cycles for step in steps)])
        self._stays = costs.stays_cycles
        self._first = pricer.first
        self._born = {
            value: place
            for place, step in enumerate(steps)
            for value in step.makes
            if value in made
        }
        self.sizes = dict(made) | {
            value: nbytes_in_memory(pricer.type_of(value), costs.tiling)
            for step in steps
            if step.is_fetched
            for value in (*step.reads, *step.makes)
            if value in outside
        }

    def hold(self, value: int, first: int, last: int) -> bool:
        """Return whether there is room for a value from one step to another; if so, it is there."""
        if first <= last and self.loads[first : last + 1].max() + self.sizes[value] > self.room:
            return False
        self.loads[first : last + 1] += self.sizes[value]
        return True

    def _runs(self, first: int, last: int) -> float:
        """Cycles of the steps from one to the one before another."""
        return float(self._cycles[last] - self._cycles[first]) if first < last else 0.0

    def read(self, value: int, place: int) -> bool:
        """Return whether a step finds a copy of a value on the chip."""
        if value == self._first:
            return True
        born = self._born.get(value)
        if born is not None and self._starts[place] - self._starts[born + 1] < _COPIED_AFTER_CYCLES:
            return False
        last = self.read_last.get(value)
        is_late = last is None or self._runs(last + 1, place) > self._stays
        is_kept = last is not None and not is_late and self.hold(value, last + 1, place)
        if not is_kept and not self.move(
            value, place, range(place - 1, -1 if born is None else born, -1)
        ):
            return False
        self.read_last[value] = place
        if born is not None and not is_kept:
            self.left[value] = place
        return True

    def move(self, value: int, place: int, others: range) -> bool:
        """Return whether a value can be moved while `others` run, the nearest first; if so, it is
        on the chip so long."""
        left: float = self.sizes.get(value, 0)
        taken: list[tuple[int, float]] = []
        for other in others if left else ():
            taken.append((other, min(self._free[other], left)))
            left -= taken[-1][1]
            if left <= 0:
                break
        if left > 0 or not taken or not self.hold(value, *sorted((place, taken[-1][0]))):
            return False
        for other, moved in taken:
            self._free[other] -= moved
        return True


def bytes_moved(kernel: Kernel, fused: Fused, pricer: Pricer) -> int:
    """Bytes that a scatter, which has no cycles, moves: updates and their places, and the zeros
    that it starts from,
    but not what else it changes in place. (Of lookups too little was seen.)"""
    anchor = kernel.anchor
    if anchor is None or anchor.opcode != "scatter":
        return 0
    made = (
        one
        for one in kernel.outputs
        if fused.in_place.get(one) in fused.filled or one not in fused.in_place
    )
    values = {*map(pricer.resolve, anchor.operands[1:]), *made}
    return sum(nbytes_in_memory(pricer.type_of(value), pricer.costs.tiling) for value in values)


def scatters_a_sum(kernel: Kernel) -> bool:
    anchor = kernel.anchor
    return anchor is not None and (
        anchor.opcode == "reduce_scatter" or anchor.text("ring_axis").startswith("sum")
    )
