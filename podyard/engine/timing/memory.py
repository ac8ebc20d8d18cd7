"""How much memory a program needs: arguments and results with their padding, and the most temporaries at one time.

A temporary lives from the kernel that makes it to the last one that reads it. From v4 on, small ones stay on the chip.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from podyard.engine.program.ir import Body, Operation, Program, TensorType, walk
from podyard.engine.timing.costs import CostModel
from podyard.engine.timing.estimate import BufferEstimate
from podyard.engine.timing.graph import ALIASES, LEAVES, MATRIX, REORDERING, SMALL_SIZE, Fused, Kernel
from podyard.engine.timing.layout import compact_layout, nbytes_in_memory, padded_bytes
from podyard.engine.timing.pricing import Pricer

# How many buffers a verdict lists.
LARGEST_BUFFERS = 8
_ADDRESS_BYTES = 4
# Results have as many bits as operands: nothing is computed, or only compared.
_HANDING_ON = frozenset({
    "abs", "broadcast_in_dim", "clamp", "concatenate", "copy", "dynamic_slice", "dynamic_update_slice", "gather",
    "maximum", "minimum", "pad", "reshape", "reverse", "select",
    "select_and_scatter", "slice", "sort", "transpose", "convert",
})  # fmt: skip
# Chips from v4 on that count more than these have two cores.
_MATRIX_UNITS_OF_A_CORE = 4
# What a concatenation takes without its being computed before.
_ONLY_MOVED = frozenset({*REORDERING, *LEAVES, "slice", "dynamic_slice", "broadcast_in_dim"})
# Kinds of kernels that the compiler runs again rather than keep their results.
_REPEATABLE = frozenset({"matrix", "window", "reduce", "loop", "copy"})
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
    room = costs.hbm_usable_bytes - sum(arguments.values()) - sum(results) + donated
    peak, held = temporaries(body, fused, pricer, inner_peak, costs, room)
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
    body: Body,
    fused: Fused,
    pricer: Pricer,
    inner_peak: Callable[[Kernel], int],
    costs: CostModel,
    room_bytes: float = math.inf,
) -> tuple[int, list[tuple[str, int]]]:
    """(bytes at the peak, (name, bytes) of what is held then). Of two orders that the compiler weighs against each
    other the one with the lower peak; if that is above `room_bytes`, values are made again instead of kept."""
    outside = {pricer.resolve(value) for value in (*body.parameters, *body.results)}
    if body is not pricer.program.body:
        outside -= _beside_their_old(body, fused, pricer)
    narrow = narrow_values(pricer.program)
    instead = _seen_through(fused, pricer)
    sizes: dict[int, int] = {}
    types: dict[int, TensorType] = {}
    steps = []
    for kernel in fused.kernels:
        made = [value for value in kernel.outputs if value not in instead]
        read = dict.fromkeys(source for value in kernel.inputs for source in instead.get(value, (value,)))
        if kernel.outputs and not made:
            continue
        for value in made:
            if value not in outside and not pricer.is_near(value):
                in_full = pricer.program.types[value] if value in instead.kept else pricer.type_of(value)
                types[value] = _narrowed(in_full, value in narrow and value not in instead.kept)
                sizes[value] = nbytes_in_memory(types[value], costs.tiling)
        extra = inner_peak(kernel) + sum(_written_between(kernel, fused, pricer))
        steps.append(_Step(tuple(read), tuple(made), extra, kernel.kind in _REPEATABLE))
    schedule = min(_Schedule(steps, sizes), _Schedule(_freeing_first(steps, sizes), sizes), key=lambda one: one.peak)
    if schedule.peak > room_bytes:
        schedule = _made_again(schedule, room_bytes)
    return schedule.peak, [(str(types[value]), sizes[value]) for value in schedule.held]


class _SeenThrough(dict[int, tuple[int, ...]]):
    """Values that are not in memory, with those that their readers make them from; `kept` are in memory in full."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[int] = set()


def _seen_through(fused: Fused, pricer: Pricer) -> _SeenThrough:
    """Masks that nobody keeps: one with a single reader is made in it; and where a convolution would keep a mask and
    rounded numbers for products, it keeps the numbers in full, which are enough for both. What is only put into a
    larger array is computed in its place there."""
    readers = Counter(value for kernel in fused.kernels for value in kernel.inputs)
    put = {
        pricer.resolve(kernel.anchor.operands[1])
        for kernel in fused.kernels
        if kernel.anchor is not None and kernel.anchor.opcode == "dynamic_update_slice"
    }
    found = _SeenThrough()
    for kernel in fused.kernels:
        opcode = kernel.anchor.opcode if kernel.anchor is not None else ""
        if opcode == "compare" and len(kernel.outputs) == 1 and readers[kernel.outputs[0]] == 1:
            found[kernel.outputs[0]] = tuple(kernel.inputs)
        if kernel.kind == "loop":
            found.update((one, tuple(kernel.inputs)) for one in kernel.outputs if one in put and readers[one] == 1)
        if opcode == "convolution":
            full = {pricer.program.types[value].shape: value for value in kernel.outputs if value in fused.stored}
            for value in kernel.outputs:
                type_ = pricer.program.types[value]
                if type_.dtype == "pred" and type_.shape in full:
                    found[value] = (full[type_.shape],)
                    found.kept.add(full[type_.shape])
    return found


def _written_between(kernel: Kernel, fused: Fused, pricer: Pricer) -> Iterator[int]:
    """Bytes of arrays that are in memory while `kernel` runs and are none of its results: copies in another layout,
    and what the compiler does not compute inside of it."""
    types, tiling = pricer.program.types, pricer.costs.tiling
    if kernel.moved is not None:
        yield nbytes_in_memory(kernel.moved, tiling)
    made = {value: operation for operation in kernel.operations for value in operation.results}
    written: set[int] = set()
    for operation in kernel.operations:
        # A concatenation joins arrays: what it joins is computed before.
        if operation.opcode == "concatenate":
            joined = [made.get(pricer.resolve(value)) for value in operation.operands]
            written |= {one.results[0] for one in joined if one is not None and one.opcode not in _ONLY_MOVED}
        # A change of shape is brought to where numbers are repeated: no kernel repeats and changes shape at once.
        if operation.opcode == "reshape":
            written |= _repeated(operation, made, pricer)
    anchor = kernel.anchor
    if anchor is not None and anchor.opcode == "dot_general":
        product = types[anchor.results[0]]
        # With rows in lanes (narrow results) a product sums up nothing on the way: another kernel reads all of it.
        if kernel.outputs and compact_layout(product, tiling).lane_axis != len(product.shape) - 1:
            summed = {pricer.resolve(operation.operands[0]) for operation in kernel.reductions}
            written |= summed - set(kernel.outputs)
        if _is_softmax_by_hand(kernel, fused, pricer):
            for type_ in (types[anchor.operands[1]], product):
                plain = padded_bytes(type_, len(type_.shape) - 1, len(type_.shape) - 2, tiling)
                yield plain if plain != nbytes_in_memory(type_, tiling) else 0
    yield from (nbytes_in_memory(types[value], tiling) for value in written if not pricer.is_near(value))


def _is_softmax_by_hand(kernel: Kernel, fused: Fused, pricer: Pricer) -> bool:
    """Chips of one core (v5e, v6e) have a kernel that is written by hand for a softmax and the product that follows,
    where no other product reads the scores. It wants rows of numbers as the program has them."""
    one_core = pricer.costs.prefetch_bytes > 0 and pricer.costs.mxu_count <= _MATRIX_UNITS_OF_A_CORE
    if not one_core or not {"exponential", "subtract", "divide"} <= {one.opcode for one in kernel.operations}:
        return False
    scores = max(kernel.inputs, key=lambda value: pricer.program.types[value].size)
    return all(other is kernel or other.kind != "matrix" or scores not in other.inputs for other in fused.kernels)


def _repeated(reshape: Operation, made: Mapping[int, Operation], pricer: Pricer) -> set[int]:
    """Values that are repeated from large, smaller ones, among those that a reshaped value is computed from."""
    types = pricer.program.types
    size, found = types[reshape.results[0]].size, set[int]()
    stack, seen = [pricer.resolve(value) for value in reshape.operands], set[int]()
    while stack:
        value = stack.pop()
        if value in seen or value not in made or types[value].size != size:
            continue
        seen.add(value)
        sources = [pricer.resolve(source) for source in made[value].operands]
        if made[value].opcode == "broadcast_in_dim" and SMALL_SIZE < types[sources[0]].size < size:
            found.add(value)
        stack += sources
    return found


def _beside_their_old(body: Body, fused: Fused, pricer: Pricer) -> set[int]:
    """Of the values that a turn of a loop hands to the next, those that cannot take the place of the old ones, because
    a matrix product that makes them or a later kernel reads those. Element-wise kernels and updates work in place."""
    beside: set[int] = set()
    old = {pricer.resolve(new): own for own, new in zip(body.parameters, body.results, strict=False) if own != new}
    for place, kernel in enumerate(fused.kernels):
        for value in set(kernel.outputs) & set(old):
            later = fused.kernels[place + (kernel.kind != "matrix") :]
            if any(old[value] in reader.inputs for reader in later):
                beside.add(value)
    return beside


def narrow_values(program: Program) -> set[int]:
    """float32 values that the compiler keeps in bfloat16: all that reads them multiplies them in one pass, or hands
    them on (chooses, moves, stacks, carries through a loop) to what does. Its propagation of bfloat16, as data."""
    narrow = {value for value, type_ in enumerate(program.types) if type_.dtype == "f32"}
    narrow -= {*program.body.parameters, *program.body.results}
    groups: list[tuple[int, ...]] = []
    for operation in walk(program.body):
        bodies = operation.bodies if operation.opcode == "while" else ()
        for inner in operation.bodies:
            if not bodies or len(inner.parameters) != len(operation.operands):
                narrow -= {*inner.parameters, *inner.results}
        if bodies:
            groups += [
                (*same, *(inner.parameters[index] for inner in bodies if index < len(inner.parameters)))
                for index, same in enumerate(
                    zip(operation.operands, operation.results, bodies[-1].results, strict=False)
                )
            ]
    while True:
        wide = {value for operation in walk(program.body) for value in _read_in_full(operation, narrow)}
        wide.update(value for group in groups if not narrow.issuperset(group) for value in group)
        if not wide & narrow:
            return narrow
        narrow -= wide


def _read_in_full(operation: Operation, narrow: set[int]) -> Iterable[int]:
    """The operands of which an operation needs all bits."""
    if operation.opcode == "while" or (operation.opcode in MATRIX and operation.text("precision") in ("", "DEFAULT")):
        return ()
    if operation.opcode in ALIASES:
        return [old for old, new in zip(operation.operands, operation.results, strict=False) if new not in narrow]
    if operation.opcode in _HANDING_ON and narrow.issuperset(operation.results):
        return ()
    return operation.operands


def _narrowed(type_: TensorType, is_narrow: bool) -> TensorType:
    return TensorType(type_.shape, "bf16") if is_narrow and type_.dtype == "f32" else type_


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """A kernel in the order of time: values read and made, bytes that it needs by itself, whether it may run twice."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    extra: int
    is_repeatable: bool


class _Schedule:
    """Steps in order, and what each of them finds in memory; `sizes` has the values that are temporaries."""

    def __init__(self, steps: Sequence[_Step], sizes: Mapping[int, int]) -> None:
        self.steps = list(steps)
        self.sizes = sizes
        # Bytes in memory while a step runs: what it reads and makes, what later ones read, and what it needs by itself.
        self.nbytes = [0] * len(self.steps)
        live, live_bytes = set[int](), 0
        for place in reversed(range(len(self.steps))):
            step = self.steps[place]
            own = {value for value in (*step.reads, *step.makes) if value in sizes}
            self.nbytes[place] = live_bytes + sum(sizes[value] for value in own - live) + step.extra
            before = own.difference(step.makes) | own.intersection(step.reads)
            live_bytes += sum(sizes[value] for value in before - live)
            live_bytes -= sum(sizes[value] for value in live.intersection(step.makes) - before)
            live.difference_update(step.makes)
            live |= before

    def holds(self, place: int) -> set[int]:
        """Values in memory while a step runs."""
        live: set[int] = set()
        for step in reversed(self.steps[place + 1 :]):
            live.difference_update(step.makes)
            live.update(value for value in step.reads if value in self.sizes)
        step = self.steps[place]
        return live | {value for value in (*step.reads, *step.makes) if value in self.sizes}

    @property
    def peak(self) -> int:
        return max(self.nbytes, default=0)

    @property
    def held(self) -> list[int]:
        """What is in memory at the peak."""
        return sorted(self.holds(self.nbytes.index(self.peak))) if self.steps else []


def _freeing_first(steps: Sequence[_Step], sizes: Mapping[int, int]) -> list[_Step]:
    """The same steps; one that frees more than it makes runs as soon as it can (list scheduling by memory)."""
    maker = {value: place for place, step in enumerate(steps) for value in step.makes}
    waiting: dict[int, set[int]] = {}
    for place, step in enumerate(steps):
        for value in step.reads:
            waiting.setdefault(value, set()).add(place)
    done: set[int] = set()
    ordered: list[_Step] = []
    # A step that frees something goes on doing so: fewer and fewer others read what it reads.
    freeing: list[int] = []

    def is_ready(place: int) -> bool:
        return all(maker.get(value, place) in done for value in steps[place].reads if value in maker)

    def frees(place: int) -> bool:
        step = steps[place]
        freed = sum(sizes[value] for value in set(step.reads) if value in sizes and len(waiting[value]) == 1)
        return freed > sum(sizes.get(value, 0) for value in step.makes) + step.extra

    def look_at(places: Iterable[int]) -> None:
        for place in places:
            if place not in done and frees(place) and is_ready(place):
                heapq.heappush(freeing, place)

    def run(place: int) -> None:
        done.add(place)
        ordered.append(steps[place])
        changed: set[int] = set()
        for value in set(steps[place].reads):
            waiting[value].discard(place)
            if len(waiting[value]) == 1:
                changed |= waiting[value]
        for value in steps[place].makes:
            changed |= waiting.get(value, set())
        look_at(changed)

    look_at(range(1, len(steps)))
    for place in range(len(steps)):
        if place not in done:
            run(place)
        while freeing:
            chosen = heapq.heappop(freeing)
            if chosen not in done:
                run(chosen)
    return ordered


def _made_again(schedule: _Schedule, room_bytes: float) -> _Schedule:
    """Rematerialisation as the compiler does it: at the first step that finds too much in memory, the kernel whose
    results free most of it, if they are not kept until they are read again, is run once more before that. What it
    reads has to stay for it. Where nothing helps, the next such step is looked at."""
    place = 0
    while place < len(schedule.steps):
        while schedule.nbytes[place] > room_bytes:
            better = _without_the_largest(schedule, place)
            if better is None:
                break
            schedule = better
        place += 1
    return schedule


def _without_the_largest(schedule: _Schedule, place: int) -> _Schedule | None:
    steps, sizes = schedule.steps, schedule.sizes
    held = schedule.holds(place)
    used = {*steps[place].reads, *steps[place].makes}
    maker = {value: earlier for earlier in range(place) for value in steps[earlier].makes}
    best, chosen = 0, -1
    for earlier in sorted({maker[value] for value in held - used if value in maker}):
        step = steps[earlier]
        freed = {value for value in step.makes if value in held and maker[value] == earlier}
        if not step.is_repeatable or freed & used:
            continue
        kept_for_it = {value for value in step.reads if value in sizes and value not in held}
        gain = sum(sizes[value] for value in freed) - sum(sizes[value] for value in kept_for_it)
        # Of equals the first.
        if gain > best:
            best, chosen = gain, earlier
    if chosen < 0:
        return None
    made = set(steps[chosen].makes)
    again = next(later for later in range(place + 1, len(steps)) if made & set(steps[later].reads))
    # A copy is not made again: two of them could take turns for ever.
    copy = dataclasses.replace(steps[chosen], is_repeatable=False)
    return _Schedule([*steps[:again], copy, *steps[again:]], sizes)


def named_total_bytes(out_of_memory_text: str) -> int | None:
    """What the TPU compiler says that a program needs, from its text for one that does not fit; to three digits or
    so, as it writes it. None where the text names no total."""
    found = _NAMED_TOTAL.search(out_of_memory_text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else None
