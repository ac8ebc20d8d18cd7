"""The plane of a TPU device in a trace, by the model: lines `Steps`, `XLA Modules` and `XLA Ops`,
as a TPU's own trace has them.

The times are those of the engine's timeline of each module. Runs follow one another on the modelled
device from the start of the trace: this machine's time between them is not a TPU's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.engine.report.trace import KERNELS, Span, bounded_spans
from podyard.engine.timing.estimate import Estimate, OpEstimate
from podyard.hardware.generation import Generation
from podyard.programs.profile.xplane import (
    EventKind,
    Plane,
    PlaneEvent,
    PlaneLine,
    message_of,
    space_of,
    submessage_of,
)

# Of one device: viewers of traces get slow with more. Later runs have no operations in the trace.
OP_EVENTS_MAX = 200_000
DEVICES_MAX = 8  # all devices do the same, so that a few show what all do
MODELLED = "device times are modelled by Podyard: no TPU was measured"
_PICOSECONDS = 1e12
# With it XProf begins a group of events, which makes a step of it.
_ROOT = (("_r", 1),)
_READ, _HBM = 1, 1  # of XProf's OpMetrics.MemoryAccessed
# XLA's categories of the engine's kinds; others have the same name.
_CATEGORIES = {"matrix": "convolution fusion", "vector": "loop fusion"}


@dataclasses.dataclass(frozen=True, slots=True)
class TracedModule:
    """A module that ran while a trace was taken."""

    name: str
    program_id: int
    estimate: Estimate


@dataclasses.dataclass(frozen=True, slots=True)
class _ModuleKinds:
    """The kinds of a module's events, as places in the list of the plane, and its spans in order of
    time."""

    module: int
    ops: dict[str, int]
    spans: tuple[Span, ...]


def device_space(
    runs: Sequence[TracedModule], generation: Generation, devices: Sequence[int]
) -> bytes:
    """Return the planes of the devices with these numbers, and a warning that they are modelled."""
    kinds: list[EventKind] = []
    lines = _lines(runs, kinds)
    stats = _device_stats(generation)
    planes = [
        Plane(
            f"/device:TPU:{number}",
            (*stats, ("core_details", message_of(_core(place, number, generation)))),
            kinds,
            lines,
        )
        for place, number in enumerate(devices[:DEVICES_MAX])
    ]
    warnings = [MODELLED]
    if len(devices) > DEVICES_MAX:
        warnings.append(
            f"{DEVICES_MAX} of {len(devices)} devices are in the trace: all do the same"
        )
    return space_of(planes, warnings)


def _lines(runs: Sequence[TracedModule], kinds: list[EventKind]) -> list[PlaneLine]:
    """Return the lines of a device, and add to `kinds` what happens there."""
    of_module: dict[int, _ModuleKinds] = {}
    steps, modules, ops = list[PlaneEvent](), list[PlaneEvent](), list[PlaneEvent]()
    step_module = _step_module(runs)
    clock = 0
    for run_id, run in enumerate(runs):
        own = of_module.get(run.program_id)
        if own is None:
            own = of_module[run.program_id] = _module_kinds(run, kinds)
        scale = _PICOSECONDS / run.estimate.clock_hz
        bounds = (own.spans[0].start, own.spans[-1].end) if own.spans else (0.0, 0.0)
        start, end = (clock + round(bound * scale) for bound in bounds)
        after = max(end, clock + round(run.estimate.modelled_seconds * _PICOSECONDS))
        stats: tuple[tuple[str, int], ...] = (("run_id", run_id),)
        if run.program_id == step_module:
            kinds.append(EventKind(str(len(steps))))
            steps.append(PlaneEvent(len(kinds) - 1, clock, after - clock))
            stats += _ROOT
        modules.append(PlaneEvent(own.module, start, end - start, stats))
        if len(ops) + len(own.spans) <= OP_EVENTS_MAX:
            for span in own.spans:
                begin, cycles = clock + round(span.start * scale), round(span.cycles * scale)
                ops.append(PlaneEvent(own.ops[span.name], begin, cycles))
        clock = after
    return [
        PlaneLine("Steps", steps),
        PlaneLine("XLA Modules", modules),
        PlaneLine("XLA Ops", ops),
    ]


def _step_module(runs: Sequence[TracedModule]) -> int | None:
    """Return the module whose runs are the steps: the one that takes most of the devices' time."""
    seconds: dict[int, float] = {}
    for run in runs:
        seconds[run.program_id] = seconds.get(run.program_id, 0.0) + run.estimate.device_seconds
    return max(seconds, key=lambda one: seconds[one], default=None)


def _module_kinds(run: TracedModule, kinds: list[EventKind]) -> _ModuleKinds:
    spans = tuple(span for span in bounded_spans(run.estimate) if span.thread == KERNELS)
    program = ("program_id", run.program_id)
    module = len(kinds)
    kinds.append(EventKind(f"{run.name}({run.program_id})", run.name, (program,)))
    numbers: dict[str, int] = {}
    for span in spans:
        if span.name not in numbers and span.op is not None:
            numbers[span.name] = len(kinds)
            kinds.append(_op_kind(span.op, program, len(numbers)))
    return _ModuleKinds(module, numbers, spans)


def _op_kind(op: OpEstimate, program: tuple[str, int], symbol: int) -> EventKind:
    """`symbol`: the number of the operation in its module. Counts are of one execution."""
    name = op.name.replace("_", "-")
    return EventKind(
        f"%{name}",
        name,
        (
            program,
            ("symbol_id", symbol),
            ("hlo_category", _CATEGORIES.get(op.kind, op.kind)),
            ("flops", op.flops // op.count),
            ("model_flops", op.flops // op.count),
            ("bytes_accessed", op.bytes // op.count),
            ("memory_access_breakdown", _memory_access(op.bytes // op.count)),
            ("tf_op", op.where or name),
            ("bound_by", op.bound),
        ),
    )


def _memory_access(nbytes: int) -> bytes:
    """Return XProf's breakdown of an operation's memory accesses: all of them are reads of HBM
    there, because the model counts both directions together."""
    return submessage_of(1, message_of([(1, _READ), (2, _HBM), (3, nbytes)]))


def _core(place: int, number: int, generation: Generation) -> list[tuple[int, int]]:
    """Return the fields of XProf's CoreDetails: device, core, chip on this host, chip and core of
    the slice."""
    per_chip = generation.devices_per_chip
    return [
        (2, place),
        (3, place % per_chip),
        (4, place // per_chip),
        (5, number // per_chip),
        (6, number),
    ]


def _device_stats(generation: Generation) -> tuple[tuple[str, float | str], ...]:
    per_chip = generation.devices_per_chip
    return (
        ("device_type_string", f"{generation.device_kind} (modelled by Podyard)"),
        ("peak_teraflops_per_second", generation.peak_bf16_flops_per_second / per_chip / 1e12),
        (
            "peak_hbm_bw_gigabytes_per_second",
            generation.hbm_bytes_per_second / per_chip / 1e9,
        ),
        ("modelled_by", MODELLED),
    )
