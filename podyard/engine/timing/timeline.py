"""The timeline of a step: its kernels, waits and collectives one after the other, and the
`Estimate` that follows from it. No JAX in here."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from podyard.engine.cost.custom_call import KERNEL_LINE
from podyard.engine.program.doubts import Doubt, merge
from podyard.engine.program.ir import Program
from podyard.engine.step import model_flops
from podyard.engine.timing.energy import device_joules
from podyard.engine.timing.estimate import (
    CollectiveEstimate,
    Estimate,
    OpEstimate,
    overhead_seconds,
)
from podyard.engine.timing.exchanges import Exchanges
from podyard.engine.timing.kernels import Bound
from podyard.engine.timing.memory import MemoryNeed
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.cost_model import CostModel

ESTIMATE_MODEL = "podyard"
# What JAX takes to start a step that is compiled; it does not wait for its end. Unverified on hosts
# of TPUs.
DISPATCH_SECONDS = 40e-6
# What a step of a host loop costs besides its kernels (the host waits, starts it and feeds it):
# what a fit of the runs of 2018 and 2019 alone gives. With those of 2020 it is less than nothing:
# their loops ran on the devices.
HOST_LOOP_SECONDS = 1.4e-3


@dataclasses.dataclass(slots=True)
class StepTimeline:
    """Kernels priced so far; `clock` is when the next one starts, in cycles. Branches that are
    tried share `numbers`, so that no two operations have one name."""

    exchanges: Exchanges
    ops: list[OpEstimate] = dataclasses.field(default_factory=list)
    clock: float = 0.0
    compiler_cycles: float = 0.0
    flops: int = 0
    hbm_bytes: float = 0.0
    unknown: dict[str, None] = dataclasses.field(default_factory=dict)
    doubts: list[Doubt] = dataclasses.field(default_factory=list)
    numbers: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))

    def branch(self) -> StepTimeline:
        """Return a copy for a branch that may not be taken, with no doubts yet."""
        return dataclasses.replace(
            self,
            ops=list(self.ops),
            exchanges=self.exchanges.copy(),
            unknown=dict(self.unknown),
            doubts=[],
        )

    def add(self, op: OpEstimate) -> None:
        """Append an operation, numbered, that starts when the one before ends."""
        name = f"{op.name}.{next(self.numbers)}"
        self.ops.append(dataclasses.replace(op, name=name, start_cycles=self.clock))
        self.clock += op.cycles

    def cycles_of(self, kind: str) -> float:
        return sum(op.cycles for op in self.ops if op.kind == kind)


@dataclasses.dataclass(frozen=True, slots=True)
class SliceStep:
    """A step on a slice: one device's program, the number of devices that run it, the model FLOPs
    of all of them, and the time to send one step's host input."""

    program: Program
    kind: AcceleratorType
    costs: CostModel
    participants: int
    flops: model_flops.Flops
    feed_seconds: float
    global_batch: int | None
    host_loop: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Seconds:
    """`unsustained`: of `compute`, what no kernel takes, because no product sustains the peak."""

    compute: float
    collective: float
    dispatch: float
    overhead: float
    unsustained: float

    @property
    def total(self) -> float:
        return self.compute + self.collective + self.overhead


def step_estimate(line: StepTimeline, step: SliceStep, need: MemoryNeed) -> Estimate:
    """Return the estimate of a step whose kernels are on the timeline; its collectives are added
    there."""
    costs, kind, flops = step.costs, step.kind, step.flops
    exchanges = line.exchanges.estimates(line.cycles_of("matrix") / costs.clock_hz)
    times = _seconds(line, step, exchanges)
    _add_collectives(line, exchanges, costs)
    seconds = times.total
    verdict = "" if need.peak_bytes <= costs.hbm_usable_bytes else _does_not_fit(need, costs)
    return Estimate(
        accelerator_type=kind.name,
        compiler=ESTIMATE_MODEL,
        devices=step.participants,
        modelled_seconds=seconds,
        compute_seconds=times.compute,
        collective_seconds=times.collective,
        overhead_seconds=times.overhead,
        traffic_seconds=line.hbm_bytes / costs.hbm_bytes_per_second,
        dispatch_seconds=times.dispatch,
        feed_seconds=step.feed_seconds,
        cycles=line.compiler_cycles,
        flops=line.flops,
        hbm_bytes=round(line.hbm_bytes),
        ici_bytes=line.exchanges.sent_bytes(exchanges),
        mxu_utilization=_matrix_flops(line) / (_mxu_peak(costs) * seconds) if seconds else 0.0,
        argument_bytes=need.argument_bytes,
        result_bytes=need.result_bytes,
        temporary_bytes=need.temporary_bytes,
        peak_hbm_bytes=need.live_bytes + need.on_chip_bytes,
        allocated_bytes=need.peak_bytes,
        on_chip_bytes=need.on_chip_bytes,
        fitted_share=_fitted_share(line, times, costs),
        usable_hbm_bytes=costs.hbm_usable_bytes,
        fits=not verdict,
        memory_text=verdict,
        bound=_bound(line, times, costs),
        energy_joules=device_joules(
            kind, step.participants, seconds, min(1.0, times.compute / seconds) if seconds else 0.0
        ),
        ops=tuple(line.ops),
        collectives=line.exchanges.texts(exchanges),
        collective_ops=tuple(exchanges),
        largest_buffers=need.largest,
        unknown_ops=tuple(line.unknown),
        clock_hz=costs.clock_hz,
        global_batch=step.global_batch,
        host_loop=step.host_loop,
        model_flops=(flops.model - flops.masked) / step.participants,
        masked_flops=flops.masked / step.participants,
        hardware_flops=flops.hardware / step.participants,
        peak_flops_per_second=model_flops.peak_flops(kind.generation),
        dtype_peak_flops_per_second=model_flops.dtype_peak_flops(flops, kind.generation),
        unsustained_seconds=times.unsustained,
        doubts=merge([*step.program.doubts, *line.doubts, *line.exchanges.doubts]),
    )


def _seconds(
    line: StepTimeline, step: SliceStep, exchanges: Sequence[CollectiveEstimate]
) -> _Seconds:
    """Return the times of a step whose collectives are not on the timeline yet."""
    compute = line.clock / step.costs.clock_hz
    collective = sum(one.seconds - one.hidden_seconds for one in exchanges)
    sustained = model_flops.sustained_seconds(
        model_flops.device_flops(step.program), step.kind.generation
    )
    unsustained = max(0.0, sustained - compute - collective)
    compute += unsustained
    dispatch = HOST_LOOP_SECONDS if step.host_loop else DISPATCH_SECONDS
    overhead = overhead_seconds(compute + collective, dispatch, step.feed_seconds, step.host_loop)
    return _Seconds(compute, collective, dispatch, overhead, unsustained)


def _add_collectives(
    line: StepTimeline, exchanges: Sequence[CollectiveEstimate], costs: CostModel
) -> None:
    for one in exchanges:
        cycles = (one.seconds - one.hidden_seconds) * costs.clock_hz
        units = (("ici", cycles),)
        line.add(
            OpEstimate(one.kind, "collective", cycles, one.nbytes, 0, "ici", unit_cycles=units)
        )


def _mxu_peak(costs: CostModel) -> float:
    """Return the FLOP/s of a device's matrix units."""
    return 2 * costs.mxu_count * costs.mxu_edge**2 * costs.clock_hz


def _matrix_flops(line: StepTimeline) -> int:
    return sum(
        op.flops for op in line.ops if op.kind == "matrix" or op.name.startswith(KERNEL_LINE)
    )


def _fitted_share(line: StepTimeline, times: _Seconds, costs: CostModel) -> float:
    """Return the share of the step that published rates do not explain: see `Estimate`."""
    mxu, bus = _mxu_peak(costs) / costs.clock_hz, costs.hbm_bytes_per_second / costs.clock_hz
    over = sum(
        max(0.0, op.cycles - max(op.flops / mxu, op.bytes / bus))
        for op in line.ops
        if op.kind != "collective"
    )
    fitted = (over / costs.clock_hz + times.overhead) / times.total if times.total else 0.0
    return min(1.0, fitted)


def _bound(line: StepTimeline, times: _Seconds, costs: CostModel) -> Bound:
    shares: dict[Bound, float] = {"ici": times.collective * costs.clock_hz}
    shares["overhead"] = times.overhead * costs.clock_hz
    for op in line.ops:
        if op.bound != "ici":
            shares[op.bound] = shares.get(op.bound, 0.0) + op.cycles
    return max(shares, key=lambda bound: shares[bound])


def _does_not_fit(need: MemoryNeed, costs: CostModel) -> str:
    gib = 2**30
    largest = ", ".join(f"{buffer.name} {buffer.nbytes / gib:.2f}G" for buffer in need.largest)
    return (
        f"the program needs {need.peak_bytes / gib:.2f}G of HBM (arguments "
        f"{need.argument_bytes / gib:.2f}G, results "
        f"{need.result_bytes / gib:.2f}G, temporaries {need.temporary_bytes / gib:.2f}G), "
        "a device has "
        f"{costs.hbm_usable_bytes / gib:.2f}G; largest buffers: {largest}"
    )
