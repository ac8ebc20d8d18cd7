"""A step as a Chrome trace (JSON object format), which Perfetto and chrome://tracing open.

Format: "Trace Event Format" of the Chromium project: `X` events have `ts` and `dur` in
microseconds, `M` events name processes and threads. A process is a core (a chip from v4 on), a
thread is one of its units.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from podyard.engine.report.summary import Report
from podyard.engine.timing.estimate import Estimate, OpEstimate

KERNELS = "kernels"
UNITS = ("mxu", "vpu", "hbm", "ici")
INFEED = "infeed"
THREADS = (KERNELS, *UNITS, INFEED)
_THREAD_NAMES = {
    "kernels": "kernels",
    "mxu": "MXU",
    "vpu": "VPU",
    "hbm": "HBM",
    "ici": "ICI",
    "infeed": "infeed",
}

# All devices do the same, so that a few show what all do.
PROCESSES_MAX = 8
# An operation in a loop is drawn this many times at most; beyond, all its executions are one event
# that says so.
LOOP_EVENTS_MAX = 32
# Operations of one device that have events of their own; the rest are one event per thread.
OPS_MAX = 4000


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A unit of one device is busy, in cycles from the step's start. `op` is None for what is not
    an operation; `times` executions of it are in the span."""

    thread: str
    name: str
    start: float
    cycles: float
    op: OpEstimate | None = None
    times: int = 1

    @property
    def end(self) -> float:
        return self.start + self.cycles


def spans(estimate: Estimate, expand_loops: bool = False) -> list[Span]:
    """Return what each unit does and when, in order of time on every thread; two spans of a thread
    never overlap.

    The step begins with dispatch and infeed, and the operations follow as the estimate has them;
    what collectives take beyond the operations that stand for them comes last. The spans of a unit
    add up to the units' cycles in the estimate: a unit that is still busy when an operation wants
    it begins that operation later.
    """
    free = dict.fromkeys(THREADS, 0.0)
    found: list[Span] = []

    def add(
        thread: str,
        name: str,
        start: float,
        cycles: float,
        op: OpEstimate | None = None,
        times: int = 1,
    ) -> None:
        if cycles <= 0:
            return
        start = max(start, free[thread])
        free[thread] = start + cycles
        found.append(Span(thread, name, start, cycles, op, times))

    ready = estimate.overhead_seconds * estimate.clock_hz
    add(INFEED, "dispatch and infeed", 0.0, ready)
    for op in sorted(estimate.ops, key=lambda one: one.start_cycles):
        pieces = op.count if expand_loops and 1 < op.count <= LOOP_EVENTS_MAX else 1
        times = op.count // pieces
        start = ready + op.start_cycles
        for piece in range(pieces):
            begin = start + piece * op.cycles / pieces
            add(KERNELS, op.name, begin, op.cycles / pieces, op, times)
            for unit, cycles in op.unit_cycles:
                add(unit, op.name, begin, cycles / pieces, op, times)
    told = sum(cycles for op in estimate.ops for unit, cycles in op.unit_cycles if unit == "ici")
    add("ici", "collectives", max(free.values()), _beyond(estimate, told))
    return found


def _beyond(estimate: Estimate, told: float) -> float:
    """Cycles of the collectives that no operation stands for; differences of rounding are none."""
    cycles = estimate.collective_seconds * estimate.clock_hz - told
    return cycles if cycles > 1e-9 * max(told, 1.0) else 0.0


def trace_events(report: Report) -> dict[str, Any]:
    """The trace as a JSON object: at most PROCESSES_MAX devices with OPS_MAX operations each."""
    estimate = report.estimate
    shown = min(estimate.devices, PROCESSES_MAX)
    drawn = bounded_spans(estimate)
    microseconds = 1e6 / estimate.clock_hz
    bodies = [
        {
            "ph": "X",
            "tid": THREADS.index(span.thread),
            "name": _name(span),
            "cat": span.thread,
            "ts": span.start * microseconds,
            "dur": span.cycles * microseconds,
            "args": _arguments(span),
        }
        for span in drawn
    ]
    events: list[dict[str, Any]] = []
    for process in range(shown):
        events += _metadata(f"{estimate.accelerator_type} {report.device} {process}", process)
        events += [{**body, "pid": process} for body in bodies]
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "program": report.program,
            "summary": report.headline,
            "compiler": estimate.compiler,
            "devices": estimate.devices,
            "devicesShown": shown,
        },
        "traceEvents": events,
    }


def bounded_spans(estimate: Estimate) -> list[Span]:
    """Spans for a trace: loops drawn out while that stays within OPS_MAX operations, else what is
    beyond as one."""
    pieces = sum(op.count if op.count <= LOOP_EVENTS_MAX else 1 for op in estimate.ops)
    if pieces <= OPS_MAX:
        return spans(estimate, expand_loops=True)
    if len(estimate.ops) <= OPS_MAX:
        return spans(estimate)
    ordered = sorted(estimate.ops, key=lambda one: one.start_cycles)
    kept, rest = ordered[: OPS_MAX - 1], ordered[OPS_MAX - 1 :]
    return spans(dataclasses.replace(estimate, ops=(*kept, _together(rest))))


def _together(rest: Sequence[OpEstimate]) -> OpEstimate:
    """The operations of `rest` as one."""
    units = {unit: sum(c for op in rest for u, c in op.unit_cycles if u == unit) for unit in UNITS}
    return OpEstimate(
        name=f"{len(rest)} more operations",
        kind="rest",
        cycles=sum(op.cycles for op in rest),
        bytes=sum(op.bytes for op in rest),
        flops=sum(op.flops for op in rest),
        bound=max(rest, key=lambda op: op.cycles).bound,
        start_cycles=rest[0].start_cycles,
        unit_cycles=tuple(units.items()),
    )


def _name(span: Span) -> str:
    return span.name if span.times == 1 else f"{span.name} (all {span.times} executions)"


def _arguments(span: Span) -> dict[str, Any]:
    """Bytes and flops are those of all of the operation's executions, as in the estimate."""
    op = span.op
    if op is None:
        return {}
    told = {
        "kind": op.kind,
        "bytes": op.bytes,
        "flops": op.flops,
        "bound": op.bound,
        "count": op.count,
    }
    return {**told, "where": op.where} if op.where else told


def _metadata(name: str, process: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}
    for index, thread in enumerate(THREADS):
        yield {
            "ph": "M",
            "pid": process,
            "tid": index,
            "name": "thread_name",
            "args": {"name": _THREAD_NAMES[thread]},
        }
        yield {
            "ph": "M",
            "pid": process,
            "tid": index,
            "name": "thread_sort_index",
            "args": {"sort_index": index},
        }
