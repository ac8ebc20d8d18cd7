"""Estimates of a program's modules on the slice: a process that reads them from files and prices
each once.

    python -m podyard.programs.estimator RUN VERDICTS ACCELERATOR_TYPE COMPILER

It ends when VERDICTS/done exists and nothing is left to price, or when the process that started it
is gone. Estimates are kept for the next run of the same program (`CACHE_VARIABLE`). RUN is the
program's to write: it may hold anything.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import resource
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from podyard import engine
from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError
from podyard.base.files import list_inside, read_inside, read_json, write_atomically
from podyard.base.interpreter import python_command
from podyard.engine.analysis import parse_module
from podyard.engine.cost.custom_call import KERNEL_LINE
from podyard.engine.plan.tokens import read_type, token_inputs
from podyard.engine.program.ir import Program
from podyard.engine.report.summary import Report, bytes_text, time_text
from podyard.engine.step.host_input import feed_seconds
from podyard.engine.training_loop import training_turns
from podyard.hardware.accelerator_types import AcceleratorType, parse
from podyard.programs.modules import hlo_records
from podyard.programs.records import (
    MODULE_BYTES_MAX,
    MODULES_MAX,
    NOT_LOWERED,
    SUFFIX,
    array_key,
    order_of_text,
    slice_of_text,
)

DONE = "done"
CACHE_VARIABLE = "PODYARD_ESTIMATES"
LOOK_SECONDS = 0.1
NICENESS = 5  # the program goes first
# a module may be anything; one of 7 billion parameters, unrolled, takes 0.13 GiB
MEMORY_BYTES_MAX = 4 * 2**30
BUFFERS_SHOWN = 3
TYPES_SHOWN = 2
OTHERS_SHOWN_BYTES = 2**30 // 20  # below, a tenth of a GiB shows nothing of it
NOTE = "// podyard: "
_NOTES_BYTES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleEstimate:
    """One run of a module. Figures are those of one device, `seconds` of the slice; None where it
    cannot be priced, and `error` says why. `verdict` is a line such as `fits (3.1 of 15.5 GiB)`;
    `refusal` is how a TPU would say no. `compiler` judged. `doubts`: what is not modelled.
    `peak_flops`: of one device, a second, for bf16; `dtype_peak_flops`: for the types of most
    products. `argument_sizes`: bytes of a device's part of each argument, by `records.array_key` of
    the whole. `feed_seconds`: for sending host input, of which a step waits for the excess over the
    devices' time. `other_bytes`: other arrays that are alive on a device while the module runs.
    `signature`: as in `(f32[8,128], s32[]) -> f32[]`.
    `turns`: of the training loop inside, as in `engine.training_loop`. `kernels`: a line for each
    Pallas kernel, with its time in a run. `token_inputs`: as in `engine.plan.tokens`.
    `compiled_for`: the type of a topology that the module is compiled for; empty: the run's
    slice."""

    seconds: float | None
    device_seconds: float = 0.0
    flops: int = 0
    hbm_bytes: int = 0
    mxu_utilization: float = 0.0
    model_flops: float = 0.0
    masked_flops: float = 0.0
    hardware_flops: float = 0.0
    peak_flops: float = 0.0
    dtype_peak_flops: float = 0.0
    peak_bytes: int = 0
    limit_bytes: int = 0
    argument_bytes: int = 0
    result_bytes: int = 0
    temporary_bytes: int = 0
    fits: bool = True
    verdict: str = ""
    refusal: str = ""
    largest: tuple[str, ...] = ()
    compiler: str = "podyard"
    doubts: tuple[str, ...] = ()
    signature: str = ""
    turns: int = 0
    kernels: tuple[str, ...] = ()
    token_inputs: tuple[str, ...] = ()
    error: str = ""
    argument_sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    feed_seconds: float = 0.0
    other_bytes: int = 0
    compiled_for: str = ""

    def with_full_attention(self) -> ModuleEstimate:
        """Return the estimate with causal attention counted in full."""
        return dataclasses.replace(
            self, model_flops=self.model_flops + self.masked_flops, masked_flops=0.0
        )

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: model FLOPs of a run over what the bf16 peak allows in its
        time."""
        return (
            self.model_flops / (self.seconds * self.peak_flops)
            if self.seconds and self.peak_flops
            else 0.0
        )

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization: the same with what is computed again in the backward pass."""
        return (
            self.hardware_flops / (self.seconds * self.peak_flops)
            if self.seconds and self.peak_flops
            else 0.0
        )


def as_run(
    estimate: ModuleEstimate, host_input: Collection[str], other_bytes: int, kind: AcceleratorType
) -> ModuleEstimate:
    """Return the estimate of a module in a program: of its arguments `host_input` (keys of
    `records.array_key`) come from the host, and `other_bytes` of other arrays are alive on a device
    while it runs.

    Sending host input passes while the devices work, so a step takes whichever is longer.
    """
    if estimate.seconds is None:
        return estimate
    feed = feed_seconds(kind, sum(estimate.argument_sizes.get(key, 0) for key in host_input))
    seconds = max(estimate.seconds, feed)
    share = estimate.mxu_utilization * estimate.seconds / seconds if seconds else 0.0
    with_feed = dataclasses.replace(
        estimate,
        seconds=seconds,
        mxu_utilization=share,
        feed_seconds=feed,
        other_bytes=other_bytes,
        token_inputs=_narrow(estimate.token_inputs, host_input),
    )
    if other_bytes < OTHERS_SHOWN_BYTES:
        return with_feed
    fits = estimate.fits and estimate.peak_bytes + other_bytes <= estimate.limit_bytes
    peak, others, limit = (
        size / 2**30 for size in (estimate.peak_bytes, other_bytes, estimate.limit_bytes)
    )
    verdict = (
        f"{'fits' if fits else 'does not fit'} ({peak:.1f} + {others:.1f} alive of {limit:.1f} GiB)"
    )
    return dataclasses.replace(with_feed, fits=fits, verdict=verdict)


def _narrow(inputs: Sequence[str], host_input: Collection[str]) -> tuple[str, ...]:
    """Return those of the inputs that the host sends, or all if it sends none of them."""
    types = {text: read_type(text) for text in inputs}
    sent = [text for text, one in types.items() if array_key(one.shape, one.itemsize) in host_input]
    return tuple(sent or inputs)


def of_json(data: dict[str, Any]) -> ModuleEstimate:
    """Raises TypeError for fields that there are not."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    return ModuleEstimate(**fields)


def analyze(
    text: bytes, kind: AcceleratorType, compiler: str = "podyard", slices: int | None = 1
) -> engine.Estimate:
    """Return the engine's estimate of a run's module on `slices` slices of `kind`; None: on as many
    as it is written for. Raises PodyardError as `engine.analyze_stablehlo` does."""
    text = hlo_records.text_of(text)
    return engine.analyze_stablehlo(
        text.decode(errors="replace"),
        accelerator_type=kind.name,
        compiler=compiler,
        slices=slices or _slices_of(text, kind),
        device_order=order_of_text(text),
    )


def estimate(
    text: bytes, kind: AcceleratorType, compiler: str = "podyard", slices: int | None = 1
) -> ModuleEstimate:
    """Estimate a module as `analyze` does. Raises nothing: a module that the engine cannot read is
    one that is not covered."""
    if text.startswith(NOT_LOWERED):
        why = text.removeprefix(NOT_LOWERED).decode(errors="replace")
        return ModuleEstimate(None, compiler=compiler, error=f"XLA does not compile it: {why}")
    try:
        text = hlo_records.text_of(text)
        found = analyze(text, kind, compiler, slices)
    except PodyardError as error:
        return ModuleEstimate(None, compiler=compiler, error=error.message)
    except Exception as error:  # the engine's own fault must not take the others' estimates with it
        return ModuleEstimate(None, compiler=compiler, error=f"{type(error).__name__}: {error}")
    # without the feed: the program's own copies to the devices are not part of a module
    device = found.device_seconds
    seconds = max(device, found.dispatch_seconds)
    need, limit = found.needed_hbm_bytes, found.usable_hbm_bytes
    program = parse_module(text.decode(errors="replace"))
    return ModuleEstimate(
        seconds=seconds,
        device_seconds=device,
        flops=found.flops,
        hbm_bytes=found.hbm_bytes,
        mxu_utilization=found.mxu_utilization * found.modelled_seconds / seconds
        if seconds
        else 0.0,
        model_flops=found.model_flops,
        masked_flops=found.masked_flops,
        hardware_flops=found.hardware_flops,
        peak_flops=found.peak_flops_per_second,
        dtype_peak_flops=found.dtype_peak_flops_per_second,
        peak_bytes=need,
        limit_bytes=limit,
        argument_bytes=found.argument_bytes,
        result_bytes=found.result_bytes,
        temporary_bytes=found.temporary_bytes,
        fits=found.fits,
        verdict=Report("", found).verdict,
        refusal="" if found.fits else _refusal(need, limit, found.memory_text),
        largest=_largest(found),
        compiler=found.compiler,
        doubts=(*_notes(text), *found.reasons),
        argument_sizes={
            array_key(one.shape, one.itemsize): one.device_bytes for one in found.arguments
        },
        signature=_signature(program),
        kernels=_kernels(found),
        turns=training_turns(program),
        token_inputs=token_inputs(program),
    )


def _largest(found: engine.Estimate) -> tuple[str, ...]:
    return tuple(
        f"{one.name} ({one.kind}) {bytes_text(one.nbytes)}"
        for one in found.largest_buffers[:BUFFERS_SHOWN]
    )


def _slices_of(text: bytes, kind: AcceleratorType) -> int:
    return max(1, parse_module(text.decode(errors="replace")).partitions // kind.device_count)


def _signature(program: Program) -> str:
    """Return the types of a module, the first few: modules of one name differ in them."""
    sides = (program.body.parameters, program.body.results)
    arguments, results = ([str(program.types[value]) for value in side] for side in sides)
    return f"({_few(arguments)}) -> {_few(results)}"


def _few(types: Sequence[str]) -> str:
    more = len(types) - TYPES_SHOWN
    return ", ".join(types[:TYPES_SHOWN]) + (f", +{more}" if more > 0 else "")


def _kernels(found: engine.Estimate) -> tuple[str, ...]:
    """Those of one name together; the longest first."""
    runs: dict[str, int] = {}
    cycles: dict[str, float] = {}
    for op in found.ops:
        if op.name.startswith(KERNEL_LINE):
            name = op.name.removeprefix(KERNEL_LINE).rpartition(".")[0]
            runs[name] = runs.get(name, 0) + op.count
            cycles[name] = cycles.get(name, 0.0) + op.cycles
    ordered = sorted(cycles, key=lambda name: -cycles[name])
    return tuple(
        f"{name}: {time_text(cycles[name] / found.clock_hz)} in {runs[name]} "
        f"run{'s' * (runs[name] != 1)}"
        for name in ordered
    )


def _notes(text: bytes) -> tuple[str, ...]:
    """Return what who wrote the module says of it, in the comments before it."""
    lines = text[:_NOTES_BYTES].decode(errors="replace").splitlines()
    return tuple(line[len(NOTE) :] for line in lines if line.startswith(NOTE))


def _refusal(need: int, limit: int, why: str) -> str:
    """As XLA's compiler for TPUs says it."""
    if why.startswith("RESOURCE_EXHAUSTED"):
        return why
    over = f"{(need - limit) / 2**30:.2f}G"
    return (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in "
        "memory space hbm. "
        f"Used {need / 2**30:.2f}G of {limit / 2**30:.2f}G hbm. Exceeded hbm capacity by "
        f"{over}.\n{why}"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PricedOn:
    """The target of estimates: `slices` slices of `kind`, judged by `compiler`."""

    kind: AcceleratorType
    compiler: str = "podyard"
    slices: int = 1

    @property
    def key(self) -> str:
        slices = f"{self.slices}x" if self.slices > 1 else ""
        return f"{slices}{self.kind.name}-{self.compiler}"


def price_new(run: Path, verdicts: Path, on: PricedOn, cache: Path | None) -> int:
    """Prices the modules of `run` that have no estimate in `verdicts` yet; how many there were."""
    names = [
        name
        for name in list_inside(run, "modules", SUFFIX, MODULES_MAX)
        if not _verdict(verdicts, name).exists()
    ]
    for name in names:
        kept = None if cache is None else cache / f"{on.key}-{name.removesuffix(SUFFIX)}.json"
        data = read_json(kept) if kept is not None else {}
        if not data:
            text = read_inside(run, "modules", name, MODULE_BYTES_MAX) or b""
            other = slice_of_text(text)
            slices = on.slices if other is None else None
            one = estimate(text, other or on.kind, on.compiler, slices)
            compiled_for = "" if other is None else other.name
            data = dataclasses.asdict(dataclasses.replace(one, compiled_for=compiled_for))
            if kept is not None and data["seconds"] is not None:
                _write(kept, data)
        _write(_verdict(verdicts, name), data)
    return len(names)


def engine_digest() -> str:
    """Changes with the engine's sources: estimates of another engine are not taken from the
    cache."""
    folder = Path(engine.__file__).parent
    hardware = (folder.parent / "hardware").rglob("*.py")
    files = sorted([*folder.rglob("*.py"), *hardware, Path(__file__)])
    return hashlib.sha256(
        repr([(str(file), file.stat().st_mtime_ns) for file in files]).encode()
    ).hexdigest()[:16]


def _verdict(verdicts: Path, name: str) -> Path:
    return verdicts / f"{name.removesuffix(SUFFIX)}.json"


def _write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(data).encode())


def command(run: Path, verdicts: Path, on: PricedOn) -> list[str]:
    """Return what starts the process."""
    arguments = (str(run), str(verdicts), on.kind.name, on.compiler, str(on.slices))
    return python_command("-m", "podyard.programs.estimator", *arguments)


def main(arguments: list[str]) -> None:
    run, verdicts = Path(arguments[0]), Path(arguments[1])
    on = PricedOn(parse(arguments[2]), arguments[3], int(arguments[4]))
    folder = os.environ.get(CACHE_VARIABLE)
    cache = Path(folder) / engine_digest() if folder else None
    os.nice(NICENESS)
    if on.compiler == "podyard":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    clock, parent = OsClock(), os.getppid()
    while os.getppid() == parent:
        # before the look: what is written until then is seen by it
        is_done = (verdicts / DONE).exists()
        if not price_new(run, verdicts, on, cache) and is_done:
            return
        clock.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
