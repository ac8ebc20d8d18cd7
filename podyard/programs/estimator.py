"""What the modules of a program would take on the slice: a process that reads them from files and prices each once.

    python -m podyard.programs.estimator RUN ACCELERATOR_TYPE [COMPILER]

It ends when RUN/done exists and nothing is left to price, or when the process that started it is gone. Estimates are
kept for the next run of the same program (`CACHE_VARIABLE`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from podyard import engine
from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError
from podyard.base.files import read_json, write_atomically
from podyard.engine.report.summary import Report, bytes_text
from podyard.hardware.accelerator_types import AcceleratorType, parse

DONE = "done"
CACHE_VARIABLE = "PODYARD_ESTIMATES"
LOOK_SECONDS = 0.1
NICENESS = 5  # the program goes first
BUFFERS_SHOWN = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleEstimate:
    """One run of a module. Figures are those of one device, `seconds` of the slice; None where it cannot be priced, and
    `error` says why. `verdict` is a line such as `fits (3.1 of 15.5 GiB)`; `refusal` is how a TPU would say no.
    `compiler` judged. `doubts`: what is not modelled. `peak_flops`: of one device, a second."""

    seconds: float | None
    device_seconds: float = 0.0
    flops: int = 0
    mxu_utilization: float = 0.0
    peak_flops: float = 0.0
    peak_bytes: int = 0
    limit_bytes: int = 0
    argument_bytes: int = 0
    fits: bool = True
    verdict: str = ""
    refusal: str = ""
    largest: tuple[str, ...] = ()
    compiler: str = "podyard"
    doubts: tuple[str, ...] = ()
    error: str = ""

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: the flops of a run over what the devices could do in its time."""
        return self.flops / (self.seconds * self.peak_flops) if self.seconds and self.peak_flops else 0.0


def of_json(data: dict[str, Any]) -> ModuleEstimate:
    """Raises TypeError for fields that there are not."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return ModuleEstimate(**fields)


def estimate(text: str, kind: AcceleratorType, compiler: str = "podyard") -> ModuleEstimate:
    """Raises nothing: a module that the engine cannot read is one that is not covered."""
    try:
        found = engine.analyze_stablehlo(text, accelerator_type=kind.name, compiler=compiler)
    except PodyardError as error:
        return ModuleEstimate(None, compiler=compiler, error=error.message)
    except Exception as error:  # the engine's own fault must not take the others' estimates with it
        return ModuleEstimate(None, compiler=compiler, error=f"{type(error).__name__}: {error}")
    # The program's own copies to the devices are not part of a module: the estimate's feed is left out.
    seconds = max(found.device_seconds, found.dispatch_seconds)
    need, limit = found.needed_hbm_bytes, found.usable_hbm_bytes
    largest = tuple(f"{one.name} ({one.kind}) {bytes_text(one.nbytes)}" for one in found.largest_buffers)
    return ModuleEstimate(
        seconds=seconds,
        device_seconds=found.device_seconds,
        flops=found.flops,
        mxu_utilization=found.mxu_utilization * found.modelled_seconds / seconds if seconds else 0.0,
        peak_flops=kind.generation.peak_bf16_flops_per_second / kind.generation.devices_per_chip,
        peak_bytes=need,
        limit_bytes=limit,
        argument_bytes=found.argument_bytes,
        fits=found.fits,
        verdict=Report("", found).verdict,
        refusal="" if found.fits else _refusal(need, limit, found.memory_text),
        largest=largest[:BUFFERS_SHOWN],
        compiler=found.compiler,
        doubts=found.reasons,
    )


def _refusal(need: int, limit: int, why: str) -> str:
    """As XLA's compiler for TPUs says it."""
    if why.startswith("RESOURCE_EXHAUSTED"):
        return why
    over = f"{(need - limit) / 2**30:.2f}G"
    return (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
        f"Used {need / 2**30:.2f}G of {limit / 2**30:.2f}G hbm. Exceeded hbm capacity by {over}.\n{why}"
    )


def price_new(run: Path, kind: AcceleratorType, cache: Path | None, compiler: str) -> int:
    """Prices the modules of `run` that have no estimate yet; how many there were."""
    waiting = [path for path in sorted((run / "modules").glob("*.mlir"), key=_age) if not _verdict(run, path).exists()]
    for path in waiting:
        kept = None if cache is None else cache / f"{kind.name}-{compiler}-{path.stem}.json"
        data = read_json(kept) if kept is not None else {}
        if not data:
            data = dataclasses.asdict(estimate(path.read_text(encoding="utf-8"), kind, compiler))
            if kept is not None and data["seconds"] is not None:
                _write(kept, data)
        _write(_verdict(run, path), data)
    return len(waiting)


def engine_digest() -> str:
    """Changes with the engine's sources: estimates of another engine are not taken from the cache."""
    folder = Path(engine.__file__).parent
    files = sorted([*folder.rglob("*.py"), *(folder.parent / "hardware").rglob("*.py")])
    return hashlib.sha256(repr([(str(file), file.stat().st_mtime_ns) for file in files]).encode()).hexdigest()[:16]


def module_path(run: Path, digest: str) -> Path:
    """The text of a module."""
    return run / "modules" / f"{digest}.mlir"


def _age(path: Path) -> int:
    return path.stat().st_mtime_ns


def _verdict(run: Path, module: Path) -> Path:
    return run / "verdicts" / f"{module.stem}.json"


def _write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(data).encode())


def main(arguments: list[str]) -> None:
    run, kind = Path(arguments[0]), parse(arguments[1])
    compiler = arguments[2] if len(arguments) > 2 else "podyard"
    folder = os.environ.get(CACHE_VARIABLE)
    cache = Path(folder) / engine_digest() if folder else None
    os.nice(NICENESS)
    clock, parent = OsClock(), os.getppid()
    while os.getppid() == parent:
        is_done = (run / DONE).exists()  # before the look: what is written until then is seen by it
        if not price_new(run, kind, cache, compiler) and is_done:
            return
        clock.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
