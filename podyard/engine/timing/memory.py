"""How much memory a program needs: arguments and results with their padding, and the most
temporaries at one time.

A temporary lives from the kernel that makes it to the last one that reads it. From v4 on, small
ones stay on the chip.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType
from podyard.engine.timing.convolutions import image_axes, image_bytes
from podyard.engine.timing.copies import (
    besides,
    bytes_moved,
    fetched,
    joined_sums,
    leaving,
    off_hbm,
    on_chip,
    scatters_a_sum,
    with_sums,
)
from podyard.engine.timing.estimate import BufferEstimate, PeakBytes
from podyard.engine.timing.first_argument import steps_with_first
from podyard.engine.timing.graph import LEAVES, REORDERING, SMALL_SIZE, Fused, Kernel
from podyard.engine.timing.image_copies import ImageCopies
from podyard.engine.timing.in_place import (
    beside_their_old,
    carried_values,
    changed_in_loop,
    changed_in_place,
    made_while_read,
    sent_on,
    summed_over_arguments,
)
from podyard.engine.timing.kernels import better_order, has_room_near, is_kept_near, is_laid_on_chip
from podyard.engine.timing.laid_out import copied_bytes
from podyard.engine.timing.latency_hiding import run_of
from podyard.engine.timing.layout import compact_layout, nbytes_in_memory, padded_bytes
from podyard.engine.timing.narrow import is_looked_up_narrow, narrow_values
from podyard.engine.timing.orders import best_order
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.schedule import MadeAgain, MemorySchedule, Step
from podyard.engine.timing.seen_through import find_seen_through, whole_sums
from podyard.engine.timing.swapped import REVERSED
from podyard.engine.timing.touched import beside_sparse_cores
from podyard.hardware.cost_model import CostModel

# How many buffers a verdict lists.
LARGEST_BUFFERS = 8
_ADDRESS_BYTES = 4
# Chips from v4 on that count more than these have two cores.
_MATRIX_UNITS_OF_A_CORE = 4
# What a concatenation takes without its being computed before.
_ONLY_MOVED = frozenset({*REORDERING, *LEAVES, "slice", "dynamic_slice", "broadcast_in_dim"})
# What gives numbers another place than those have that they are made from.
_OUT_OF_ORDER = frozenset(
    {"concatenate", "pad", "slice", "dynamic_slice", "reverse", "transpose", "reshape"}
)
# Short of memory means: above this share of it (an option of the compiler's).
_SHORT_OF_MEMORY = 0.95
# Kinds of kernels that the compiler runs again rather than keep their results.
_REPEATABLE = frozenset({"matrix", "window", "reduce", "loop", "copy"})
# Where no results stay on the chip, those of kernels of several element-wise operations do up to
# this size: 311 of 326 such values in schedules of five programs on v5p.
_WORKED_OUT_BYTES = 8 * 2**20
# Kinds of element-wise kernels.
_ELEMENTWISE_KINDS = ("loop", "reduce")
# `... total memory required for HLO temporaries (8.58G) exceeds available HBM (7.48G)`: arguments
# and results included.
_NAMED_TOTAL = re.compile(r"total memory required for [^(]*\(([\d.]+)([KMGT]?)\)")
InnerPeak = Callable[[Kernel], PeakBytes]
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of one device. `largest`: what takes most of it at the peak. `live_bytes`: the most
    that is in use at one time, when results count from when they are made. `on_chip_bytes`: by how
    much more that is where the chip's own memory takes the place of temporaries."""

    argument_bytes: int
    result_bytes: int
    temporary_bytes: int
    donated_bytes: int
    largest: tuple[BufferEstimate, ...]
    live_bytes: int = 0
    on_chip_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        return self.argument_bytes + self.result_bytes + self.temporary_bytes - self.donated_bytes


def memory_need(
    program: Program,
    body: Body,
    fused: Fused,
    pricer: Pricer,
    inner_peak: InnerPeak,
    costs: CostModel,
) -> MemoryNeed:
    """`inner_peak` gives the temporaries that the bodies of a loop need while it runs."""
    arguments = {
        value: nbytes_in_memory(program.types[value], costs.tiling) for value in body.parameters
    }
    results = [nbytes_in_memory(program.types[value], costs.tiling) for value in body.results]
    donated = sum(
        min(arguments[value], results[index])
        for value, index in program.donated.items()
        if value in arguments
    )
    if len(results) > 1:
        table = _ADDRESS_BYTES * len(results)
        results.append(-(-table // costs.result_table_bytes) * costs.result_table_bytes)
    room = costs.hbm_usable_bytes - sum(arguments.values()) - sum(results) + donated
    first = temporaries(body, fused, pricer, inner_peak, costs, room)
    peak, held = first.nbytes, list(first.values)
    twice = 0
    for index in made_while_read(program, pricer):
        twice += results[index]
        held = [*held, (str(program.types[body.results[index]]), results[index])]
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
    lively = temporaries(body, fused, pricer, inner_peak, costs, room, is_live=True)
    need = MemoryNeed(
        sum(arguments.values()),
        sum(results),
        peak + twice,
        donated,
        tuple(buffers[:LARGEST_BUFFERS]),
    )
    outside = need.peak_bytes - need.temporary_bytes
    live = outside + min(peak, lively.nbytes) + twice
    return dataclasses.replace(
        need, live_bytes=live, on_chip_bytes=max(0, outside + lively.near_bytes - live)
    )


def temporaries(  # noqa: C901, PLR0912, PLR0915
    body: Body,
    fused: Fused,
    pricer: Pricer,
    inner_peak: InnerPeak,
    costs: CostModel,
    room_bytes: float = math.inf,
    *,
    is_live: bool = False,
) -> PeakBytes:
    """Of the orders that the compiler weighs against each other the one with the lowest peak; where
    memory is short, kernels run again so that results need not be kept, and where it still is more
    than `room_bytes`, results of the program lie where they are made from. `is_live`: results of
    the program count only from when they are made."""
    is_whole = body is pricer.program.body
    results = {pricer.resolve(value) for value in body.results}
    donated = (
        {pricer.resolve(body.results[index]) for index in pricer.program.donated.values()}
        if is_whole
        else set()
    )
    own_place = results - donated
    arguments = {pricer.resolve(value) for value in body.parameters}
    outside = arguments | results
    apart = set() if is_whole else beside_their_old(body, fused, pricer)
    outside -= apart
    narrow = narrow_values(pricer.program)
    instead = find_seen_through(fused, pricer, outside)
    outside |= {
        target
        for result in results & instead.keys() & fused.in_place.keys()
        for target in instead[result]
    }
    if is_whole:
        outside |= summed_over_arguments(fused, pricer, instead)
    whole = whole_sums(fused, pricer)
    views = {one.results[0]: one for one in body.operations if one.opcode == "reshape"}
    sizes: dict[int, int] = {}
    types: dict[int, TensorType] = {}
    images = image_axes(pricer.program.body, pricer.program.types)

    def size_of(type_: TensorType) -> int:
        axes = images.get(type_.shape)
        return (
            image_bytes(type_, axes, costs.tiling)
            if axes
            else nbytes_in_memory(type_, costs.tiling)
        )

    turned: set[int] = set()
    turned_near: set[int] = set()
    copies = ImageCopies(body, fused, pricer)
    steps = []
    carried = {} if is_whole else carried_values(body, pricer)
    last_loop = -1
    worked_out: set[int] = set()
    for kernel in fused.kernels:
        made = [value for value in kernel.outputs if value in instead.get(value, (value,))]
        read = dict.fromkeys(
            source for value in kernel.inputs for source in instead.get(value, (value,))
        )
        if kernel.outputs and not made and not kernel.updates:
            continue
        for value in made:
            if value in own_place and is_whole and is_live:
                types[value] = pricer.program.types[value]
                sizes[value] = nbytes_in_memory(types[value], costs.tiling)
            if value not in outside and value not in instead:
                in_full = (
                    pricer.program.types[value] if value in instead.kept else pricer.type_of(value)
                )
                in_full = whole.get(value, in_full)
                types[value] = _narrow(in_full, value in narrow and value not in instead.kept)
                if (
                    in_full.dtype == "pred"
                    and kernel.anchor is not None
                    and kernel.anchor.opcode == "convolution"
                ):
                    types[value] = _packed_mask(in_full)
                    # What it is packed from is written, too, and read at once: a value that the
                    # program has not.
                    types[~value] = TensorType(in_full.shape, "f32")
                    sizes[~value] = size_of(types[~value])
                is_argument = kernel.anchor is not None and _is_argument_reversed(
                    kernel.anchor, pricer
                )
                sizes[value] = (
                    nbytes_in_memory(in_full, costs.tiling)
                    if is_argument
                    else size_of(types[value])
                )
        masks = (value for value in kernel.inputs if value not in types and value not in turned)
        read |= dict.fromkeys(~value for value in masks if ~value in sizes)
        for value in (
            one for one in turned.intersection(kernel.inputs) if _reads_turned(one, kernel, pricer)
        ):
            read = dict.fromkeys([*(other for other in read if other != value), ~value])
        if kernel.turns is not None and kernel.moved is not None:
            types[~kernel.turns] = _narrow(
                kernel.moved,
                is_looked_up_narrow(kernel.turns, body, pricer.program, pricer.resolve),
            )
            sizes[~kernel.turns], is_here = _turned(types[~kernel.turns], kernel.minor, pricer)
            turned_near |= {~kernel.turns} if is_here else set()
            made.append(~kernel.turns)
            turned.add(kernel.turns)
            read = dict.fromkeys([*read, kernel.turns])
        read = copies.read(kernel, read)
        made += copies.make(kernel)
        sizes |= copies.sizes
        types |= copies.types
        grouped = copies.next_to(kernel)
        inside = inner_peak(kernel)
        extra = inside.nbytes + sum(_between_bytes(kernel, fused, pricer))
        extra += sum(instead.unpacked.get(value, 0) for value in kernel.inputs)
        extra += besides(kernel, results if is_whole else (), arguments, pricer, near=False)
        extra -= _in_place_of_result(kernel, made, sizes, pricer)
        extra += sum(size for size in grouped if not has_room_near(size, costs))
        extra += beside_sparse_cores(pricer.program, kernel, costs)
        near_extra = inside.near_bytes + besides(
            kernel, results if is_whole else (), arguments, pricer, near=True
        )
        near_extra += sum(size for size in grouped if has_room_near(size, costs))
        parts = _Inside(kernel, views, pricer)
        before = {value: own for value, own in parts.writes_before().items() if value not in sizes}
        if before:
            read = dict.fromkeys([*parts.read_beside(before), *before])
        for value, own in before.items():
            types[value] = pricer.program.types[value]
            sizes[value] = size_of(types[value])
            steps.append(Step(tuple(own), (value,), 0, False))
        for value, given in changed_in_loop(kernel, pricer).items():
            if value in outside:
                continue
            types[value] = pricer.program.types[value]
            sizes[value] = size_of(types[value])
            steps.append(Step((given,), (value,), 0, False))
            made = [one for one in made if one != value]
            read = dict.fromkeys([*read, value])
        over_old = (
            size_of(pricer.type_of(value))
            for value in outside & changed_in_place(kernel, carried, fused)
        )
        doubled = sum(size for size in over_old if has_room_near(size, costs))
        if not costs.results_stay and kernel.kind == "loop" and len(kernel.operations) > 1:
            worked_out |= {
                value for value in made if sizes.get(value, math.inf) <= _WORKED_OUT_BYTES
            }
        is_repeatable = kernel.kind in _REPEATABLE and results.isdisjoint(made)
        made += [~value for value in made if ~value in sizes]
        # An element-wise kernel can write a result of the program over what it reads.
        results_bytes = {
            nbytes_in_memory(pricer.type_of(value), costs.tiling)
            for value in own_place.intersection(made)
        }
        in_order = kernel.kind == "loop" and _OUT_OF_ORDER.isdisjoint(
            one.opcode for one in kernel.operations
        )
        over = [value for value in read if in_order and sizes.get(value) in results_bytes]
        number = kernel.anchor.attributes.get("tuple") if kernel.anchor is not None else None
        number = number if isinstance(number, int) else None
        last_loop = len(steps) if kernel.kind == "control" else last_loop
        steps.append(
            Step(
                tuple(read),
                tuple(made),
                extra,
                is_repeatable,
                tuple(over[:1]),
                kernel.kind in _REPEATABLE and not kernel.updates,
                number,
                near_extra,
                run_of(kernel, inside.cycles, inside.kinds, pricer),
                is_lookup=kernel.anchor is not None and kernel.anchor.opcode == "gather",
                moves=bytes_moved(kernel, fused, pricer),
                doubled=doubled,
                scatters=scatters_a_sum(kernel),
                writes_far=kernel.kind == "matrix" and not costs.results_stay,
            )
        )
    kept = tuple(value for value in own_place if is_whole and value in sizes)
    held_for = sum(sizes[value] for value in kept)
    memory = {
        value: nbytes_in_memory(pricer.type_of(value), costs.tiling) for value in outside
    } | sizes
    limit = _SHORT_OF_MEMORY * costs.hbm_usable_bytes
    order = best_order(
        steps, sizes, memory, results, last_loop, limit, pricer, is_whole=is_whole, is_live=is_live
    )
    if apart:
        # A permutation runs next to the kernels of the turn, from its start on.
        sent = tuple(value for value in apart & sent_on(fused) if value in sizes)
        order = [
            Step((), sent, 0, False),
            *order,
            Step(tuple(value for value in apart if value in sizes), (), 0, False),
        ]
    on_the_chip = turned_near | copies.near | worked_out - results
    near = {
        value: size
        for value, size in sizes.items()
        if value in on_the_chip
        or (
            value not in copies.sizes
            and (pricer.is_near(value) or (value in apart and has_room_near(size, costs)))
        )
    }
    here: Collection[int] = ()
    near_bytes = 0
    if is_whole and costs.stays_cycles < math.inf:
        changed = {*fused.in_place, *fused.in_place.values()}
        order, copies_of = leaving(order, near.keys() - changed, costs.stays_cycles)
        sizes |= {copy: sizes[value] for copy, value in copies_of.items()}
        types |= {copy: types[value] for copy, value in copies_of.items()}
    if costs.prefetch_bytes:
        last = joined_sums(order) & near.keys() if is_whole and costs.sums_last else set[int]()
        sums = {value: near[value] for value in last}
        near = {value: size for value, size in near.items() if value not in sums}
        taken: NDArray[np.float64] | float = 0.0
        if is_whole and pricer.first is not None:
            nbytes, at_most = memory[pricer.first], MemorySchedule(order, sizes).peak
            is_full = sum(memory[value] for value in outside) + at_most > costs.prefetch_bytes
            per_cycle = costs.hbm_bytes_per_second / costs.clock_hz
            here_first = steps_with_first(order, pricer.first, nbytes, per_cycle, is_full=is_full)
            taken = np.where(here_first, float(nbytes), 0.0)
        here, loads, twice = on_chip(order, near, costs.prefetch_bytes, fused.in_place, taken)
        if is_whole:
            laid_out = {
                pricer.resolve(value) for kernel in fused.kernels for value in kernel.layouts
            } - arguments
            laid_out |= pricer.read_far
            far = {
                value: size
                for value, size in sizes.items()
                if value not in here and value not in sums
            }
            found = fetched(order, outside - laid_out, far, loads, pricer)
            loads, twice, order = found.loads, twice + found.twice, off_hbm(order, found.left)
            added, loads = with_sums(order, sums, loads, costs.prefetch_bytes)
            here |= added
        near_bytes = round(max(loads + twice, default=0))
    sizes = {value: size for value, size in sizes.items() if value not in here}
    order = [*order, Step(kept, (), 0, False)]
    room_bytes += held_for
    schedule = MemorySchedule(order, sizes)
    if is_live:
        schedule = schedule.without_overwritten().with_hosts(kept)
    originals: Mapping[int, int] = {value: value for value in sizes}
    limit = room_bytes - (1 - _SHORT_OF_MEMORY) * costs.hbm_usable_bytes
    if schedule.peak > limit:
        again = MadeAgain(schedule, limit)
        schedule, originals = again.schedule(), again.originals
    nbytes = schedule.packed_bytes()
    if nbytes > room_bytes:
        schedule = schedule.without_overwritten()
        nbytes = schedule.packed_bytes()
    held = tuple(
        (str(types[originals[value]]), schedule.sizes[value]) for value in schedule.values_at_peak
    )
    kinds = tuple(kind for step in order for kind in (*step.run.inside, step.run.kind) if kind)
    return PeakBytes(
        nbytes - held_for, near_bytes, held, sum(step.run.cycles for step in order), kinds
    )


def _reads_turned(value: int, kernel: Kernel, pricer: Pricer) -> bool:
    """Return whether a kernel reads the copy of a table with rows in lanes. Element-wise work reads
    the table itself where it reads other arguments that lie so (the state of an optimizer): what is
    scattered is turned for it then."""
    types, arguments = pricer.program.types, pricer.program.body.parameters
    alike = sum(types[one].shape == types[value].shape for one in kernel.inputs if one in arguments)
    return alike < 2 or kernel.kind not in _ELEMENTWISE_KINDS


def _turned(type_: TensorType, minor: tuple[int, ...], pricer: Pricer) -> tuple[int, bool]:
    """Bytes of an array with its last axes in a tile, or with `minor`, and whether that is on the
    chip."""
    last = len(type_.shape) - 1
    lane, sublane = minor or (last, last - 1)
    near = is_laid_on_chip(type_, minor or better_order(type_, (last, last - 1)), pricer.costs)
    return padded_bytes(type_, lane, sublane, pricer.costs.tiling), near


def _between_bytes(kernel: Kernel, fused: Fused, pricer: Pricer) -> Iterator[int]:
    """Bytes of arrays that are in memory while `kernel` runs and are not its results: copies in
    another layout,
    and what the compiler does not compute inside of it."""
    types, tiling = pricer.program.types, pricer.costs.tiling
    if (
        kernel.moved is not None
        and kernel.turns is None
        and not (kernel.minor or kernel.regroups or is_kept_near(kernel.moved, pricer.costs))
    ):
        yield nbytes_in_memory(kernel.moved, tiling)
    made = {value: operation for operation in kernel.operations for value in operation.results}
    written: set[int] = set()
    for operation in kernel.operations:
        # A concatenation joins arrays: what it joins is computed before.
        if operation.opcode == "concatenate":
            joined = [made.get(pricer.resolve(value)) for value in operation.operands]
            written |= {
                one.results[0]
                for one in joined
                if one is not None and one.opcode not in _ONLY_MOVED
            }
    anchor = kernel.anchor
    if anchor is not None and anchor.opcode == "dot_general":
        product = types[anchor.results[0]]
        # With rows in lanes (narrow results) a product sums up nothing on the way: another kernel
        # reads all of it.
        is_whole = any(
            types[value].size >= product.size for value in kernel.outputs
        ) and not _works_on_rows(kernel)
        if is_whole and compact_layout(product, tiling).lane_axis != len(product.shape) - 1:
            summed = {pricer.resolve(operation.operands[0]) for operation in kernel.reductions}
            written |= summed - set(kernel.outputs)
        if _is_softmax_by_hand(kernel, fused, pricer):
            for type_ in (types[anchor.operands[1]], product):
                plain = padded_bytes(type_, len(type_.shape) - 1, len(type_.shape) - 2, tiling)
                yield plain if plain != nbytes_in_memory(type_, tiling) else 0
    yield from (
        nbytes_in_memory(types[value], tiling) for value in written if not pricer.is_near(value)
    )


def _works_on_rows(kernel: Kernel) -> bool:
    """Return whether a product's kernel works out all of a softmax but the division, on whole
    rows."""
    return len(kernel.reductions) > 1 and any(
        operation.opcode == "exponential" for operation in kernel.operations
    )


def _is_softmax_by_hand(kernel: Kernel, fused: Fused, pricer: Pricer) -> bool:
    """Chips of one core have a kernel that is written by hand for a softmax and the product that
    follows,
    where no other product reads the scores. It wants rows of numbers as the program has them."""
    one_core = pricer.costs.prefetch_bytes > 0 and pricer.costs.mxu_count <= _MATRIX_UNITS_OF_A_CORE
    if not one_core or not {"exponential", "subtract", "divide"} <= {
        one.opcode for one in kernel.operations
    }:
        return False
    if _works_on_rows(kernel):  # it makes the scores, and a division of something else is in it
        return False
    scores = max(kernel.inputs, key=lambda value: pricer.program.types[value].size)
    return all(
        other is kernel or other.kind != "matrix" or scores not in other.inputs
        for other in fused.kernels
    )


class _Inside:
    """What is computed from what inside of a kernel. `views`: reshapes that move nothing, by their
    results."""

    def __init__(self, kernel: Kernel, views: Mapping[int, HloOperation], pricer: Pricer) -> None:
        self._kernel = kernel
        self._pricer = pricer
        self._own = {
            value: operation for operation in kernel.operations for value in operation.results
        }
        anchor = [kernel.anchor] if kernel.anchor is not None else []
        others = {
            value: operation
            for operation in (*anchor, *kernel.reductions)
            for value in operation.results
        }
        self._made = {**views, **others, **self._own}

    def writes_before(self) -> dict[int, list[int]]:
        """Values that kernels of their own write before, with the inputs that those read: a change
        of shape is brought to where numbers are repeated, and no kernel repeats and changes shape
        at once."""
        reshapes = [
            operation for operation in self._kernel.operations if operation.opcode == "reshape"
        ]
        values = {
            value
            for operation in reshapes
            for value in _repeats(operation, self._own, self._pricer)
        }
        return {value: self._sources(self._own[value].operands, ()) for value in sorted(values)}

    def read_beside(self, written: Collection[int]) -> list[int]:
        """The inputs that the kernel itself still reads when `written` are in memory."""
        summed = (value for operation in self._kernel.reductions for value in operation.operands)
        return self._sources((*self._kernel.outputs, *summed), written)

    def _sources(self, values: Iterable[int], written: Collection[int]) -> list[int]:
        stack, seen = list(values), set[int]()
        while stack:
            value = self._pricer.resolve(stack.pop())
            if value not in seen:
                seen.add(value)
                if value in self._made and value not in written:
                    stack += self._made[value].operands
        return [value for value in self._kernel.inputs if value in seen]


def _repeats(reshape: HloOperation, made: Mapping[int, HloOperation], pricer: Pricer) -> set[int]:
    """Values that are repeated from large, smaller ones, among those that a reshaped value is
    computed from."""
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


def _narrow(type_: TensorType, is_narrow: bool) -> TensorType:
    return TensorType(type_.shape, "bf16") if is_narrow and type_.dtype == "f32" else type_


def _in_place_of_result(
    kernel: Kernel, made: Collection[int], sizes: Mapping[int, int], pricer: Pricer
) -> int:
    """Bytes of copies of operands that lie where a result of the program comes, because another
    copy makes that of
    what the convolution writes."""
    results = [sizes[value] for value in made if value in kernel.layouts and value in sizes]
    room = max(results, default=0)
    copies = sorted(copied_bytes(kernel, pricer))
    return min(room, sum(one for one in copies if one <= room))


def _is_argument_reversed(operation: HloOperation, pricer: Pricer) -> bool:
    """Return whether an argument is turned around: it lies as that does."""
    is_reversed = operation.text("step") == REVERSED
    return is_reversed and pricer.resolve(operation.operands[0]) in pricer.program.body.parameters


def _packed_mask(type_: TensorType) -> TensorType:
    """A mask of images for the way back: the bits of a column in the narrowest word that holds
    them."""
    extent = type_.shape[1]
    words = [(bits, name) for bits, name in ((8, "u8"), (16, "u16"), (32, "u32")) if bits >= extent]
    return TensorType((type_.shape[0], *type_.shape[2:]), words[0][1]) if words else type_


def named_total_bytes(out_of_memory_text: str) -> int | None:
    """Return what the TPU compiler says that a program needs, from its text for one that does not
    fit; to three digits or so, as it writes it. None where the text names no total."""
    found = _NAMED_TOTAL.search(out_of_memory_text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else None
