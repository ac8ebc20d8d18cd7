"""What a program did, from the files of its run: modules, how often they ran, and what each would
take on the slice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podyard.base.files import list_inside, read_inside, read_json
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs.estimator import ModuleEstimate, of_json
from podyard.programs.records import MODULES_MAX, PROCESSES_MAX, RUN_BYTES_MAX, ModuleRuns

NAME_CHARACTERS_MAX = 200
# of runs, and of seconds: what a thousand processes add up to can still be told as it is
NUMBER_MAX = 1e12


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleTotal:
    """A module in all processes. `runs`: of the slice, which runs a module of all hosts once for
    all. `wall_seconds`: from one run's end to the next, on this machine; None with fewer than two
    runs. `estimate`: None: not priced yet."""

    digest: str
    name: str
    devices: int
    runs: int
    compile_seconds: float
    wall_seconds: float | None
    estimate: ModuleEstimate | None

    @property
    def seconds(self) -> float:
        """Of all runs, on the slice; 0 where it is not priced."""
        return self.runs * (self.estimate.seconds or 0.0) if self.estimate is not None else 0.0

    @property
    def work_seconds(self) -> float:
        """Of all runs, what the devices themselves do: small modules wait for the host."""
        return self.runs * self.estimate.device_seconds if self.estimate is not None else 0.0

    @property
    def waits_for_host(self) -> bool:
        """Whether the devices are done before the host can start the next run."""
        return self.estimate is None or self.estimate.device_seconds < (
            self.estimate.seconds or 0.0
        )

    @property
    def is_priced(self) -> bool:
        return self.estimate is not None and self.estimate.seconds is not None


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramSummary:
    """`modules`: those that take the most on the slice first. `left_out`: modules that were too
    many or too large to be handed over."""

    kind: AcceleratorType
    modules: tuple[ModuleTotal, ...]
    left_out: int

    @property
    def seconds(self) -> float:
        return sum(module.seconds for module in self.modules)

    @property
    def step(self) -> ModuleTotal | None:
        """The main step: of what runs again and again, the module that takes the most; one that
        waits for the host only if all do. What is not priced yet takes long to price, and may be
        it."""
        waiting = [module for module in self.modules if module.runs > 1 and module.estimate is None]
        if waiting:
            return max(waiting, key=lambda module: module.runs)
        often = [module for module in self.modules if module.runs > 1 and module.work_seconds]
        large = [module for module in often if not module.waits_for_host]
        return max(
            large or often or self.modules, key=lambda module: module.work_seconds, default=None
        )

    @property
    def too_large(self) -> tuple[ModuleTotal, ...]:
        return tuple(
            one for one in self.modules if one.estimate is not None and not one.estimate.fits
        )

    @property
    def not_covered(self) -> tuple[ModuleTotal, ...]:
        """Modules that ran and have no time."""
        return tuple(module for module in self.modules if module.runs and not module.is_priced)

    @property
    def doubts(self) -> tuple[str, ...]:
        found = [d for m in self.modules if m.runs and m.estimate for d in m.estimate.doubts]
        slices = (
            max((m.devices for m in self.modules if m.runs), default=0) // self.kind.device_count
        )
        if slices > 1:
            found.insert(0, f"the traffic between {slices} slices is not modelled")
        return tuple(dict.fromkeys(found))

    def to_json(self) -> dict[str, Any]:
        step = self.step
        return {
            "acceleratorType": self.kind.name,
            "deviceSeconds": self.seconds,
            "step": None if step is None else step.digest,
            "modules": [_module_json(module) for module in self.modules],
            "modulesLeftOut": self.left_out,
            "doubts": list(self.doubts),
        }


def read_summary(run: Path, verdicts: Path, kind: AcceleratorType) -> ProgramSummary:
    """Of what is written so far. `run` is the program's to write: what is not as it should be is
    left out."""
    by_digest: dict[str, list[tuple[int, ModuleRuns]]] = {}
    left_out = 0
    for worker, left, modules in _processes(run):
        left_out += left
        for module in modules:
            by_digest.setdefault(module.digest, []).append((worker, module))
    totals = [_total(verdicts, digest, found) for digest, found in by_digest.items()]
    totals.sort(key=lambda one: (-one.work_seconds, -one.runs, one.name))
    return ProgramSummary(kind, tuple(totals), left_out)


def _total(verdicts: Path, digest: str, found: list[tuple[int, ModuleRuns]]) -> ModuleTotal:
    by_worker: dict[int, int] = {}
    walls = []
    for worker, one in found:
        by_worker[worker] = by_worker.get(worker, 0) + one.runs
        if one.runs > 1:
            walls.append((one.last - one.first) / (one.runs - 1))
    data = read_json(verdicts / f"{digest}.json")
    first = found[0][1]
    return ModuleTotal(
        digest=digest,
        name=first.name,
        devices=first.devices,
        runs=max(by_worker.values()),
        compile_seconds=max(one.compile_seconds for _, one in found),
        wall_seconds=max(walls, default=None),
        estimate=of_json(data) if data else None,
    )


def _processes(run: Path) -> Iterator[tuple[int, int, list[ModuleRuns]]]:
    """Worker, modules that it left out, modules; of as many processes as there is room for."""
    room = RUN_BYTES_MAX
    for name in list_inside(run, "processes", ".json", PROCESSES_MAX):
        text = read_inside(run, "processes", name, room) or b""
        room -= len(text)
        try:
            data = json.loads(text)
            yield (
                int(data["worker"]),
                int(data["left_out"]),
                [_module_runs(one) for one in data["modules"][:MODULES_MAX]],
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            continue


def _module_runs(data: dict[str, Any]) -> ModuleRuns:
    """Raises ValueError, TypeError or KeyError for what no process of ours has written."""
    digest, name = str(data["digest"]), str(data["name"])
    if not (
        digest.isascii()
        and digest.isalnum()
        and name.isprintable()
        and len(name) <= NAME_CHARACTERS_MAX
    ):
        raise ValueError(f"{digest[:80]!r} and {name[:80]!r} are no names of ours")
    compile_seconds, first, last = (
        float(data[field]) for field in ("compile_seconds", "first", "last")
    )
    devices, runs = int(data["devices"]), int(data["runs"])
    if not all(
        0 <= number <= NUMBER_MAX for number in (compile_seconds, first, last, devices, runs)
    ):
        raise ValueError("counts and times are between 0 and NUMBER_MAX")
    return ModuleRuns(digest, name, devices, compile_seconds, runs, first, last)


def _module_json(module: ModuleTotal) -> dict[str, Any]:
    estimate = module.estimate
    found: dict[str, Any] = {
        "digest": module.digest,
        "name": module.name,
        "devices": module.devices,
        "runs": module.runs,
        "compileSeconds": module.compile_seconds,
        "wallSecondsPerRun": module.wall_seconds,
    }
    if estimate is not None:
        found |= {
            "deviceSecondsPerRun": estimate.seconds,
            "flopsPerDevice": estimate.flops,
            "mfu": estimate.mfu,
            "mxuUtilization": estimate.mxu_utilization,
            "peakBytes": estimate.peak_bytes,
            "limitBytes": estimate.limit_bytes,
            "argumentBytes": estimate.argument_bytes,
            "fits": estimate.fits,
            "verdict": estimate.verdict,
            "largestBuffers": list(estimate.largest),
            "compiler": estimate.compiler,
            "doubts": list(estimate.doubts),
            "error": estimate.error,
        }
    return found
