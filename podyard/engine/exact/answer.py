"""The estimate of the real compiler: its cycles, memory, collectives and operations in place of the
modelled ones.

The compiler gives no time for collectives and dispatch: those seconds stay the model's, as do flops
and bytes, which are the program's. What bounds an operation it does not say. Of a program that does
not fit it says only how much it needs: there is no step, hence no time. Nor does it say what it
does not know: operations without cycles are a doubt, and a sum below the time that HBM needs for
the program's bytes is raised to it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from podyard.engine.exact import client
from podyard.engine.exact.client import ExactVerdict
from podyard.engine.exact.hlo import ExactCollective, ExactOp
from podyard.engine.program.doubts import Doubt
from podyard.engine.timing.energy import device_joules
from podyard.engine.timing.estimate import Estimate, OpEstimate, overhead_seconds
from podyard.engine.timing.kernels import Bound
from podyard.engine.timing.memory import named_total_bytes
from podyard.hardware.accelerator_types import parse

# One tile of the vector unit in float32 (8 x 128): what gives less is a scalar, or next to it.
_TILE_BYTES = 4096
_NAMES_SHOWN = 3
# Kinds that do their own work, whatever the size of their results.
_ALWAYS_WORK = ("custom-call", "sort", "topk", "gather", "scatter", "ragged-dot")
# `{1,0:T(8,128)}` behind a shape of the compiler's.
_LAYOUT = re.compile(r"\{[^}]*\}")
_ARRAY = re.compile(r"\b(?:pred|[a-z]+?(\d+)\w*)\[([\d,]*)\]")


def answer_of_compiler(estimate: Estimate, text: str, partitions: int) -> Estimate:
    """Return `estimate`, the model's, with the compiler's answer for the same program in `text`.

    Raises PodyardError FAILED_PRECONDITION where the compiler is not installed.
    """
    verdict = client.compile_exact(text, estimate.accelerator_type, partitions)
    unsaid = dataclasses.replace(
        estimate,
        compiler="xla-tpu",
        largest_buffers=(),
        unknown_ops=(),
        bound="unpriced",
        doubts=_doubts_of_model(estimate),
    )
    return _fitting(unsaid, verdict) if verdict.fits else _too_large(unsaid, verdict)


def _doubts_of_model(estimate: Estimate) -> tuple[Doubt, ...]:
    """Memory and operations are the compiler's; the time of collectives and the turns of loops are
    still the model's."""
    return tuple(
        dataclasses.replace(doubt, about_memory=False)
        for doubt in estimate.doubts
        if doubt.kind != "operation"
    )


def _too_large(unsaid: Estimate, verdict: ExactVerdict) -> Estimate:
    return dataclasses.replace(
        unsaid,
        modelled_seconds=0.0, compute_seconds=0.0, collective_seconds=0.0, overhead_seconds=0.0,
        cycles=0.0, fitted_share=0.0,
        mxu_utilization=0.0, energy_joules=None, ops=(), collectives=(), argument_bytes=0,
        result_bytes=0,
        temporary_bytes=0, peak_hbm_bytes=named_total_bytes(verdict.out_of_memory_text) or 0,
        fits=False,
        memory_text=verdict.out_of_memory_text, doubts=(),
    )  # fmt: skip


def _fitting(unsaid: Estimate, verdict: ExactVerdict) -> Estimate:
    names = {collective.name for collective in verdict.collectives}
    by_cycles = verdict.cycles / unsaid.clock_hz
    compute = max(by_cycles, unsaid.traffic_seconds)
    # The model may see a sum that the compiler found a way around: what it does not send takes no
    # time.
    summed, sent = (
        (unsaid.collective_seconds, unsaid.ici_bytes) if verdict.collectives else (0.0, 0)
    )
    overhead = overhead_seconds(
        compute + summed, unsaid.dispatch_seconds, unsaid.feed_seconds, unsaid.host_loop
    )
    parts: dict[Bound, float] = {"unpriced": compute, "ici": summed, "overhead": overhead}
    if compute > by_cycles:
        parts = {"hbm": compute, "ici": summed, "overhead": overhead}
    seconds = sum(parts.values())
    kind = parse(unsaid.accelerator_type)
    return dataclasses.replace(
        unsaid,
        cycles=float(verdict.cycles),
        compute_seconds=compute,
        collective_seconds=summed,
        overhead_seconds=overhead,
        ici_bytes=sent,
        modelled_seconds=seconds,
        fitted_share=overhead / seconds if seconds else 0.0,
        mxu_utilization=unsaid.mxu_utilization * unsaid.modelled_seconds / seconds,
        energy_joules=device_joules(kind, unsaid.devices, seconds, compute / seconds),
        argument_bytes=verdict.argument_bytes,
        result_bytes=verdict.output_bytes,
        temporary_bytes=verdict.temporary_bytes,
        peak_hbm_bytes=verdict.peak_bytes,
        fits=True,
        memory_text="",
        bound=max(parts, key=lambda bound: parts[bound]),
        ops=_operations(verdict, names),
        collectives=tuple(map(_collective_text, verdict.collectives)),
        doubts=(
            *unsaid.doubts,
            *_without_cycles(verdict.ops, names),
            *_traffic_doubt(unsaid, by_cycles),
        ),
    )


def _operations(verdict: ExactVerdict, collectives: set[str]) -> tuple[OpEstimate, ...]:
    clock, ops = 0.0, list[OpEstimate]()
    for op in verdict.ops:
        cycles = float((op.cycles or 0) * op.count)
        bound: Bound = "ici" if op.name in collectives else "unpriced"
        ops.append(
            OpEstimate(op.name, op.kind, cycles, 0, 0, bound, op.count, clock, where=op.where)
        )
        clock += cycles
    return tuple(ops)


def _without_cycles(ops: Sequence[ExactOp], collectives: set[str]) -> list[Doubt]:
    """Name the operations that do work and have no cycles from the compiler: custom calls, sorts,
    top-k, gathers, scatters and ragged products, alone or fused."""
    unknown = [
        op
        for op in ops
        if op.cycles is None
        and op.name not in collectives
        and (op.kind in _ALWAYS_WORK or (op.kind == "fusion" and _nbytes(op.shape) >= _TILE_BYTES))
    ]
    if not unknown:
        return []
    names = [f"{op.name} ({op.where})" if op.where else op.name for op in unknown[:_NAMES_SHOWN]]
    more = f" and {len(unknown) - _NAMES_SHOWN} more" if len(unknown) > _NAMES_SHOWN else ""
    reason = f"the compiler gives no cycles to {', '.join(names)}{more}: counted as 0"
    return [Doubt("operation", "without cycles", reason, about_memory=False)]


def _traffic_doubt(unsaid: Estimate, by_cycles: float) -> list[Doubt]:
    if unsaid.traffic_seconds <= by_cycles:
        return []
    reason = (
        f"the compiler's cycles take {by_cycles * 1e6:,.1f} us, less than HBM needs to move "
        f"{unsaid.hbm_bytes:,} bytes: raised to {unsaid.traffic_seconds * 1e6:,.1f} us"
    )
    return [Doubt("operation", "below the memory's time", reason, about_memory=False)]


def _nbytes(shape: str) -> int:
    """Return the bytes of a shape in HLO's spelling, such as `(f32[8,128]{1,0}, s32[])`."""
    total = 0
    for bits, sizes in _ARRAY.findall(_LAYOUT.sub("", shape)):
        count = 1
        for size in filter(None, sizes.split(",")):
            count *= int(size)
        total += count * int(bits or 8) // 8
    return total


def _collective_text(collective: ExactCollective) -> str:
    """`all-reduce (f32[512,512], f32[8]) x 1 in groups of 8: UniDirectionNDRingStrategy, 4 colours
    x 2 phases,
    {4 2},...`; where there is no such strategy, the compiler's spelling of it."""
    shape = _LAYOUT.sub("", collective.shape)
    how = collective.emitter or "no strategy named"
    if collective.strategy:
        how = (
            f"{collective.strategy}, {collective.colors} colours x {collective.phases} phases, "
            f"{collective.rings}"
        )
    among = f" in groups of {collective.group_size}" if collective.group_size else ""
    return f"{collective.kind} {shape} x {collective.count}{among}: {how}"
