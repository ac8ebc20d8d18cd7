"""From a program to an estimate: one device's kernels, the slice's collectives, memory, energy. No
JAX in here.

A step = the kernels of one device, one after the other + collectives, which the optimizer waits for
and which wait for the last gradient, so that nothing is left to hide them behind + what the host
takes longer than that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from podyard.base.errors import invalid
from podyard.base.kernel_cost import KernelCost
from podyard.engine.cost.custom_call import (
    KERNEL_LINE,
    doubts_of,
    kernel_of,
    kernel_seconds,
    rates_of,
)
from podyard.engine.cost.dcn import in_first_slice
from podyard.engine.program.collective_passes import Links
from podyard.engine.program.doubts import (
    bytes_only,
    cut_images,
    in_groups,
    kernel_doubt,
    own_kernel,
    turned_cache,
    unknown_body,
    unknown_turns,
)
from podyard.engine.program.ir import Body, HloOperation, Program, matrix_flops
from podyard.engine.program.loops import trip_count
from podyard.engine.program.partition import partition
from podyard.engine.program.shardings import Axes, Sharding, ShardingReader, mesh_of
from podyard.engine.step import model_flops
from podyard.engine.step.host_calls import ANSWERS, take_out_host_calls
from podyard.engine.step.host_input import feed_seconds
from podyard.engine.step.host_memory import LOAD, STORE, HostCopy, keep_on_host, waited_seconds
from podyard.engine.timing.attention import attention_flops
from podyard.engine.timing.collectives import group_of, is_one_ring
from podyard.engine.timing.convolutions import has_small_groups
from podyard.engine.timing.estimate import ArgumentEstimate, Estimate, OpEstimate, PeakBytes
from podyard.engine.timing.exchanges import Exchanges
from podyard.engine.timing.few_examples import part_images
from podyard.engine.timing.fusion import fuse
from podyard.engine.timing.graph import BYTES_ONLY, MATRIX, Fused, Kernel
from podyard.engine.timing.headed import copied_back
from podyard.engine.timing.in_place import beside_their_old, made_while_read
from podyard.engine.timing.kernels import Bound, KernelPrice
from podyard.engine.timing.layout import nbytes_in_memory
from podyard.engine.timing.memory import memory_need, temporaries
from podyard.engine.timing.one_query import is_turned_cache
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.regrouped import regroup
from podyard.engine.timing.rounded import round_before_loops
from podyard.engine.timing.swapped import swap_operands
from podyard.engine.timing.timeline import SliceStep, StepTimeline, step_estimate
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.cost_model import CostModel
from podyard.hardware.generations import cost_model

# How much of the compiler's sum the kernels of a run take (each fetches its first window while the
# one before ends). From the published ResNet-50 runs on TPU v3 (MLPerf training v0.5 to v0.7;
# benchmarks/fit_timing.py).
RUN_SHARE = 0.99
# Whole words are copied on the chip while other kernels run.
_WORD_BYTES = 4
# Loops in loops multiply their turns; a step of more than these would take years.
MAX_TURNS = 10**12
# See `_links`.
_JOINED_CHIPS = 64
# Turns that the compiler takes a loop for when it weighs how long values stay on the chip
# (openxla's `while_execution_count`).
_WEIGHED_TURNS = 5


def device_count(kind: AcceleratorType) -> int:
    """Devices as the compiler counts them: cores on v2 and v3, chips from v4 on."""
    return kind.device_count


def estimate_program(
    program: Program,
    kind: AcceleratorType,
    global_batch: int | None = None,
    host_loop: bool = False,
    infeed: Collection[int] = (),
    slices: int = 1,
    device_order: Sequence[int] = (),
) -> Estimate:
    """`program` on a slice of `kind`. A program that is written for several devices by itself is
    split as it says. `host_loop`: the host waits for every step, as loops with infeed did and as
    those do that log every step. `infeed`: indexes of the arguments that the host sends at each
    step. `slices`: of `kind`, joined by the data-centre network, that the program runs on together.
    `device_order`: for each device of the program its place in the list of the slices' devices.

    Raises PodyardError INVALID_ARGUMENT when the program needs more devices than the slice has, and
    for a global batch that does not divide by the slice's devices.
    """
    devices = device_count(kind) * slices
    if program.partitions > devices:
        raise invalid(
            f"the module is written for {program.partitions} devices, "
            f"{'' if slices == 1 else f'{slices} slices of '}{kind.name} has {devices}",
            "accelerator_type",
        )
    if global_batch is not None:
        if global_batch < 1 or global_batch % devices:
            raise invalid(
                f"global_batch {global_batch} is not a positive multiple of {kind.name}'s "
                f"{devices} devices",
                "global_batch",
            )
        program = _split_batch(program, global_batch, devices)
    if len(device_order) == program.mesh.devices:
        mesh = dataclasses.replace(program.mesh, order=tuple(device_order))
        program = dataclasses.replace(program, mesh=mesh)
    costs = cost_model(kind.generation.name)
    split = keep_on_host(
        partition(program, _links(program, kind, costs)),
        program.host_arguments,
        program.host_results,
    )
    own = part_images(
        swap_operands(regroup(round_before_loops(take_out_host_calls(split)))), costs.tiling
    )
    # the first values of a program are its arguments
    fed = frozenset(infeed).intersection(own.body.parameters)
    own.infed = fed if host_loop else frozenset()
    participants = max(program.partitions, program.mesh.devices)
    analysis = _Analysis(own, kind, participants, fed, model_flops.model_flops(program))
    estimate = analysis.estimate(global_batch, host_loop)
    wholes = ((program.types[value], own.types[value]) for value in program.body.parameters)
    sizes = tuple(
        ArgumentEstimate(whole.shape, whole.itemsize, part.nbytes) for whole, part in wholes
    )
    return dataclasses.replace(estimate, arguments=sizes)


def _links(program: Program, kind: AcceleratorType, costs: CostModel) -> Links:
    """Scattered sums are joined on slices in three dimensions, on those that are one ring, and from
    64 chips on; not on the planes between (compiled for 36 slices)."""
    reader, shape = ShardingReader({}, program.mesh), kind.topology.shape
    is_all = program.mesh.devices % device_count(kind) == 0
    is_box = all(extent > 1 for extent in shape) and len(shape) > 2
    is_joined = not is_all or is_box or kind.chip_count >= _JOINED_CHIPS or is_one_ring(kind)
    has_plain_chips = kind.generation.dimensions == 2 and kind.generation.devices_per_chip == 1

    def is_square(axes: Axes) -> bool:
        places = list(map(program.mesh.place, reader.device_order(axes)))
        own, _ = in_first_slice(places, device_count(kind))
        group = group_of(kind, own)
        extents = [kind.generation.devices_per_chip // group.copies, *group.shape]
        # Of v5e and v6e only a whole slice is summed over as a square, no part of one.
        is_seen = not has_plain_chips or group.chips == kind.chip_count
        return is_all and is_seen and [extent for extent in extents if extent > 1] == [2, 2]

    joined_bytes = costs.joined_sum_bytes if is_joined else 0
    return Links(
        shape if is_all else (),
        costs.ring_rows,
        joined_bytes,
        costs.joined_sum_bytes / _WORD_BYTES,
        is_square,
    )


def _split_batch(program: Program, global_batch: int, devices: int) -> Program:
    """Arguments that have the batch as leading dimension are split over all devices, the others are
    on each."""
    mesh = program.mesh if program.mesh.devices == devices else mesh_of({"batch": devices})
    everywhere = tuple(range(len(mesh.sizes)))
    shardings = {} if mesh is not program.mesh else dict(program.shardings)
    for value in program.body.parameters:
        shape = program.types[value].shape
        dims = (everywhere,) if shape[:1] == (global_batch,) else ((),) * min(1, len(shape))
        shardings.setdefault(value, Sharding((*dims, *((),) * (len(shape) - 1))))
    return dataclasses.replace(program, partitions=devices, mesh=mesh, shardings=shardings)


class _Analysis:
    def __init__(
        self,
        program: Program,
        kind: AcceleratorType,
        participants: int,
        fed: frozenset[int],
        flops: model_flops.Flops,
    ) -> None:
        self.program = program
        self.kind = kind
        self.costs: CostModel = cost_model(kind.generation.name)
        self.participants = participants
        self.fed = fed
        self.step_flops = flops
        self.timeline = StepTimeline(Exchanges(program, kind))

    def estimate(self, global_batch: int | None, host_loop: bool) -> Estimate:
        body = self.program.body
        fused = fuse(self.program, body, self.costs)
        pricer = Pricer(self.program, body, fused, self.costs)
        self._run(fused, pricer, 1)
        for index in made_while_read(self.program, pricer):
            moved = Kernel(
                ~body.results[index], "copy", None, laid_out=self.program.types[body.results[index]]
            )
            self._add(moved, pricer, 1)
        for type_ in (
            copied_back(self.program, self.costs.tiling) if self.costs.copies_heads else ()
        ):
            self._add(Kernel(-1, "copy", None, moved=type_, turned=True), pricer, 1)
        need = memory_need(self.program, body, fused, pricer, self._peak_inside, self.costs)
        fed_bytes = sum(self.program.types[value].nbytes for value in self.fed)
        step = SliceStep(
            self.program,
            self.kind,
            self.costs,
            self.participants,
            self.step_flops,
            feed_seconds(self.kind, fed_bytes),
            global_batch,
            host_loop,
        )
        return step_estimate(self.timeline, step, need)

    # --- kernels

    def _run(self, fused: Fused, pricer: Pricer, count: int) -> None:
        """Prices the kernels of a body that runs `count` times."""
        begin, starts = self.timeline.clock, list[float]()
        for kernel in fused.kernels:
            starts.append((self.timeline.clock - begin) / count)
            if kernel.kind == "control" and kernel.anchor is not None:
                self._control(kernel.anchor, pricer, count)
                continue
            if kernel.kind == "collective" and kernel.anchor is not None:
                self.timeline.exchanges.add(kernel.anchor, count, id(fused))
                continue
            if not pricer.is_scalar(kernel):
                self._add(kernel, pricer, count * kernel.repeats)
        starts.append((self.timeline.clock - begin) / count)
        if copies := [
            one
            for place in range(len(fused.kernels))
            for one in self._host_copies(fused, starts, place)
        ]:
            seconds = waited_seconds(copies, starts[-1] / self.costs.clock_hz, self.kind, count)
            if seconds:
                nbytes, cycles = sum(one.nbytes for one in copies), seconds * self.costs.clock_hz
                self.timeline.add(
                    OpEstimate("host copies", "copy", cycles, nbytes * count, 0, "overhead")
                )
        self.timeline.doubts += [
            bytes_only(operation.opcode, operation.where) for operation in fused.unknown
        ]
        self.timeline.unknown.update(dict.fromkeys(operation.opcode for operation in fused.unknown))

    def _host_copies(self, fused: Fused, starts: list[float], place: int) -> Iterator[HostCopy]:
        """The copy that a kernel is, between the host's memory and the device's."""
        anchor = fused.kernels[place].anchor
        if anchor is None or anchor.opcode not in (LOAD, STORE):
            return
        is_load, clock = anchor.opcode == LOAD, self.costs.clock_hz
        value = anchor.results[0] if is_load else anchor.operands[0]
        nbytes = self.program.types[value].nbytes
        if is_load:
            readers = (
                other for other, kernel in enumerate(fused.kernels) if value in kernel.inputs
            )
            at = starts[min(readers, default=len(fused.kernels))] / clock
            after = None
            if needed := anchor.ints(ANSWERS):
                sent = sum(self.program.types[one].nbytes for one in needed)
                after = self._end_of_makers(fused, starts, needed), sent
            yield HostCopy(True, nbytes, at, after)
        else:
            yield HostCopy(False, nbytes, self._end_of_makers(fused, starts, (value,)))

    def _end_of_makers(self, fused: Fused, starts: list[float], values: Collection[int]) -> float:
        """Return the second of the body at which all the values are made."""
        makers = (
            other + 1
            for other, kernel in enumerate(fused.kernels)
            if any(value in kernel.outputs for value in values)
        )
        return starts[max(makers, default=0)] / self.costs.clock_hz

    def _add(self, kernel: Kernel, pricer: Pricer, count: int) -> None:
        price = pricer.price(kernel)
        line = self.timeline
        custom = None if kernel.anchor is None else kernel_of(kernel.anchor.attributes)
        if custom is not None and kernel.anchor is not None:
            texts = doubts_of(custom, rates_of(self.costs))
            line.doubts += [kernel_doubt(custom.name, text) for text in texts]
        elif kernel.anchor is not None and kernel.anchor.text("target") == "tpu_custom_call":
            line.doubts.append(unknown_body(kernel.anchor.where))
        elif kernel.anchor is not None and kernel.anchor.opcode in BYTES_ONLY:
            name = " @".join(
                part for part in (kernel.anchor.opcode, kernel.anchor.text("target")) if part
            )
            line.doubts.append(bytes_only(name, kernel.anchor.where))
        if kernel.anchor is not None and kernel.anchor.opcode == "attention":
            line.doubts.append(own_kernel(kernel.anchor.where))
        if kernel.anchor is not None and has_small_groups(self.program, kernel.anchor):
            line.doubts.append(in_groups(kernel.anchor.where))
        if (
            count > 1
            and kernel.anchor is not None
            and is_turned_cache(self.program, kernel.anchor, pricer.costs)
        ):
            line.doubts.append(turned_cache(kernel.anchor.where))
        if kernel.is_cut and kernel.anchor is not None:
            line.doubts.append(cut_images(kernel.anchor.where))
        moved = self._bytes(kernel, pricer, near=False)
        line.compiler_cycles += price.cycles * count
        flops = self._flops(kernel)
        if custom is None:
            price = self._as_run(kernel, price, moved, self._bytes(kernel, pricer, near=True))
        else:
            price, moved, flops = self._custom_call(custom), custom.hbm_bytes, round(custom.flops)
        line.flops += flops * count
        line.hbm_bytes += moved * count
        units = (("mxu", price.mxu_cycles), ("vpu", price.vpu_cycles), ("hbm", price.hbm_cycles))
        what = kernel.anchor.opcode if kernel.anchor is not None else kernel.kind
        what = what if custom is None else f"{KERNEL_LINE}{custom.name}"
        line.add(
            OpEstimate(
                name=what,
                kind=kernel.kind,
                cycles=price.cycles * count,
                bytes=round(moved * count),
                flops=flops * count,
                bound=price.bound,
                count=count,
                unit_cycles=tuple((unit, value * count) for unit, value in units if value),
                where=kernel.anchor.where if kernel.anchor is not None else "",
            )
        )

    def _custom_call(self, cost: KernelCost) -> KernelPrice:
        seconds, clock = kernel_seconds(cost, rates_of(self.costs)), self.costs.clock_hz
        units = (seconds.matrix * clock, seconds.vector * clock, seconds.hbm * clock)
        return KernelPrice(seconds.total * clock, seconds.bound, *units)

    def _as_run(
        self, kernel: Kernel, price: KernelPrice, moved: float, moved_near: float
    ) -> KernelPrice:
        """Return what a kernel takes in a run. Where the compiler gives no cycles, its bytes. On v2
        and v3 what the compiler says; from v4 on operands are fetched ahead and results written
        behind, so that a kernel takes as long as what it keeps busy longest: a unit, HBM, or the
        chip's own memory at the compiler's rate."""
        bus = moved / (self.costs.hbm_bytes_per_second / self.costs.clock_hz)
        if price.bound == "unpriced":
            return dataclasses.replace(price, cycles=max(bus, price.mxu_cycles), hbm_cycles=bus)
        if not self.costs.prefetch_bytes:
            return dataclasses.replace(price, cycles=price.cycles * RUN_SHARE)
        matrix, near = kernel.kind == "matrix", moved_near / self.costs.bytes_per_cycle
        fixed = self.costs.matrix_kernel_cycles if matrix else self.costs.vector_kernel_cycles
        busiest = max(price.mxu_cycles, price.vpu_cycles, bus, near)
        bounds: dict[float, Bound] = {
            near: "on-chip",
            price.vpu_cycles: "vpu",
            price.mxu_cycles: "mxu",
            bus: "hbm",
        }
        bound: Bound = "overhead" if busiest < fixed else bounds[busiest]
        return KernelPrice(
            (busiest + fixed) * RUN_SHARE, bound, price.mxu_cycles, price.vpu_cycles, bus
        )

    def _bytes(self, kernel: Kernel, pricer: Pricer, near: bool) -> float:
        """Return what really crosses the HBM bus: operands and results as they lie in memory,
        without what stays on the chip. With `near` what the chip's own memory moves instead, by the
        shares that the compiler charges."""
        touched, tiling = pricer.touch(kernel), self.costs.tiling
        read_share, write_share = (
            (self.costs.near_read_share, self.costs.near_write_share) if near else (1.0, 1.0)
        )
        moved = 0.0
        for value in kernel.inputs:
            if pricer.is_near(value) == near:
                part = touched.read.get(value)
                whole = nbytes_in_memory(pricer.type_of(value), tiling) if part is None else part
                moved += read_share * whole
        for value in kernel.outputs:
            if pricer.is_near(value) == near:
                changed = touched.written.get(value)
                whole = (
                    nbytes_in_memory(pricer.type_of(value), tiling) if changed is None else changed
                )
                moved += write_share * whole
        laid = kernel.moved or kernel.laid_out
        if laid is not None and not near:
            moved += (1 if kernel.kind == "loop" else 2) * nbytes_in_memory(laid, tiling)
        return moved

    def _flops(self, kernel: Kernel) -> int:
        total = 0
        if kernel.anchor is not None and kernel.anchor.opcode in MATRIX:
            total += matrix_flops(self.program, kernel.anchor)
        if kernel.anchor is not None and kernel.anchor.opcode == "attention":
            total += attention_flops(self.program, kernel.anchor)
        for operation in (*kernel.operations, *kernel.reductions):
            if operation.opcode not in (
                "broadcast_in_dim",
                "constant",
                "reshape",
                "convert",
                "transpose",
                "iota",
                "slice",
            ):
                total += self.program.types[operation.results[0]].size
        return total

    def _control(self, operation: HloOperation, outer: Pricer, count: int) -> None:
        """A loop runs its body as often as its counter says (once where that is not in the
        program); of branches the
        one that takes longest counts."""
        if operation.opcode == "while":
            known = trip_count(self.program, operation)
            if known is None:
                self.timeline.doubts.append(
                    unknown_turns(operation.text("place") or operation.where)
                )
            turns = count * (1 if known is None else known)
            if not turns:
                return
            if turns > MAX_TURNS:
                raise invalid(
                    f"{operation.where}: a loop's body runs {turns} times; {MAX_TURNS} is the most",
                    "module",
                )
            body = operation.bodies[-1]
            ends = enumerate(zip(operation.operands, operation.results, strict=False))
            far = frozenset(
                index
                for index, pair in ends
                if any(outer.is_outside(outer.resolve(v)) for v in pair)
            )
            fused, pricer = self._inner(body, turns, far)
            for value in beside_their_old(body, fused, pricer):
                type_ = self.program.types[value]
                if type_.shape and not (pricer.is_near(value) and type_.itemsize >= _WORD_BYTES):
                    self._add(
                        Kernel(~value, "copy", None, outputs=[value], laid_out=type_), pricer, turns
                    )
            return
        best: StepTimeline | None = None
        before, doubts = self.timeline, self.timeline.doubts
        for body in operation.bodies:
            self.timeline = before.branch()
            self._inner(body, count)
            doubts = doubts + self.timeline.doubts
            if best is None or self.timeline.clock > best.clock:
                best = self.timeline
        self.timeline = best or before
        self.timeline.doubts = doubts

    def _inner(
        self, body: Body, count: int, far: frozenset[int] | None = None
    ) -> tuple[Fused, Pricer]:
        fused = fuse(self.program, body, self.costs)
        pricer = Pricer(self.program, body, fused, self.costs, far)
        self._run(fused, pricer, count)
        return fused, pricer

    def _peak_inside(self, kernel: Kernel) -> PeakBytes:
        """Temporaries that the bodies of a loop or a conditional hold at most."""
        if kernel.kind != "control" or kernel.anchor is None:
            return PeakBytes()
        far = near = 0
        cycles, kinds = 0.0, tuple[str, ...]()
        for body in kernel.anchor.bodies:
            fused = fuse(self.program, body, self.costs)
            pricer = Pricer(self.program, body, fused, self.costs)
            held = temporaries(body, fused, pricer, self._peak_inside, self.costs)
            far, near = max(far, held.nbytes), max(near, held.near_bytes)
            cycles, kinds = max(cycles, held.cycles), max(kinds, held.kinds, key=len)
        if kernel.anchor.opcode == "while":
            cycles *= _WEIGHED_TURNS
        return PeakBytes(far, near, (), cycles, kinds)
