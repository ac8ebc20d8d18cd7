"""The summary of a program, from the files of its run: modules, how often they ran, and what each
would take on the slice."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podyard.base.files import list_inside, read_inside, read_json
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs.estimator import ModuleEstimate, as_run, of_json
from podyard.programs.records import (
    ERROR_CHARACTERS_MAX,
    MODULE_BYTES_MAX,
    MODULES_MAX,
    PROCESSES_MAX,
    RUN_BYTES_MAX,
    SOURCES,
    ModuleRuns,
)
from podyard.programs.step.training_step import ModuleUse, StepChoice, training_step

NAME_CHARACTERS_MAX = 200
LABEL_CHARACTERS_MAX = 48  # of a name with its types: a table with its figures fits a terminal
HOST_INPUT_MAX = 1_000  # arguments of a module that the host sends: a batch has a handful
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # XLA's status of an allocation that fails
_LINE = re.compile(r"\bline (\d{1,9})\b")  # of a module's text
# of runs, and of seconds: what a thousand processes add up to can still be told as it is
NUMBER_MAX = 1e12


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleTotal:
    """A module in all processes. `runs`: of the slice, which runs a module of all hosts once for
    all. `wall_seconds`: of a run on this machine, without compilation and the program's own work
    between runs; of TensorFlow and PyTorch from one run's end to the next. None: not known.
    `estimate`: None: not priced yet."""

    digest: str
    name: str
    devices: int
    runs: int
    compile_seconds: float
    wall_seconds: float | None
    estimate: ModuleEstimate | None
    is_library: bool = False
    feeds_itself: bool | None = None
    site: str = ""
    calls: int | None = None
    is_eager_loop: bool = False

    @property
    def steps(self) -> int:
        """Training steps in a run: the turns of the training loop inside, 1 without one."""
        return 1 if self.estimate is None else max(1, self.estimate.turns)

    @property
    def use(self) -> ModuleUse:
        calls = self.runs if self.calls is None else self.calls
        one = self.estimate
        seconds = None if one is None else one.device_seconds
        waits = one is not None and one.device_seconds < (one.seconds or 0.0)
        turns = 0 if one is None else one.turns
        return ModuleUse(
            self.name,
            calls,
            seconds,
            self.site,
            turns,
            self.is_library,
            self.feeds_itself,
            waits,
            self.is_eager_loop,
        )

    @property
    def seconds(self) -> float:
        """Of all runs, on the slice; 0 where it is not priced."""
        return self.runs * (self.estimate.seconds or 0.0) if self.estimate is not None else 0.0

    @property
    def work_seconds(self) -> float:
        """Of all runs, what the devices themselves do: small modules wait for the host."""
        return self.runs * self.estimate.device_seconds if self.estimate is not None else 0.0

    @property
    def is_priced(self) -> bool:
        return self.estimate is not None and self.estimate.seconds is not None


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramSummary:
    """`modules`: those that take the most on the slice first. `left_out`: modules that were too
    many or too large to be handed over. `step_name`: what the user takes for the training step.
    `error`: the exception that ended a process of the program, or empty."""

    kind: AcceleratorType
    modules: tuple[ModuleTotal, ...]
    left_out: int
    step_name: str | None = None
    error: str = ""

    @property
    def is_out_of_memory(self) -> bool:
        """Return True if the program ended because a device had no room, as on a TPU."""
        return OUT_OF_MEMORY in self.error

    @property
    def fits(self) -> bool | None:
        """Return True if the program fits on the slice; None: its step has no memory check."""
        if self.too_large or self.is_out_of_memory:
            return False
        return True if self.step is not None and self.step.is_priced else None

    @property
    def seconds(self) -> float:
        return sum(module.seconds for module in self.modules)

    @property
    def dispatch_seconds(self) -> float:
        """Time in which the devices wait for the host to start the next run."""
        return sum(module.seconds - module.work_seconds for module in self.modules)

    def label(self, module: ModuleTotal) -> str:
        """Return the name of a module, with its types where another one has the same name."""
        same = [one for one in self.modules if one.name == module.name]
        estimate = module.estimate
        has_types = len(same) > 1 and estimate is not None and estimate.signature
        if not has_types or estimate is None:
            return module.name
        text = f"{module.name}{estimate.signature}"
        is_short = len(text) <= LABEL_CHARACTERS_MAX
        return text if is_short else f"{text[: LABEL_CHARACTERS_MAX - 3]}..."

    @property
    def choice(self) -> StepChoice | None:
        """The training step and the reason, by the rule of `training_step`."""
        return training_step([module.use for module in self.modules], self.step_name)

    @property
    def step(self) -> ModuleTotal | None:
        """The training step; None: none of the modules is one."""
        choice = self.choice
        return None if choice is None else self.modules[choice.index]

    def with_full_attention(self) -> ProgramSummary:
        """Return the summary with the model FLOPs of causal attention counted in full."""
        modules = tuple(
            module
            if module.estimate is None
            else dataclasses.replace(module, estimate=module.estimate.with_full_attention())
            for module in self.modules
        )
        return dataclasses.replace(self, modules=modules)

    @property
    def too_large(self) -> tuple[ModuleTotal, ...]:
        return tuple(
            one for one in self.modules if one.estimate is not None and not one.estimate.fits
        )

    @property
    def ahead_of_time(self) -> tuple[ModuleTotal, ...]:
        """Modules that are compiled for a topology, and run nowhere."""
        return tuple(
            one for one in self.modules if one.estimate is not None and one.estimate.compiled_for
        )

    @property
    def not_covered(self) -> tuple[ModuleTotal, ...]:
        """Modules that ran and have no time."""
        return tuple(module for module in self.modules if module.runs and not module.is_priced)

    @property
    def doubts(self) -> tuple[str, ...]:
        found = [d for m in self.modules if m.runs and m.estimate for d in m.estimate.doubts]
        return tuple(dict.fromkeys(found))

    def to_json(self) -> dict[str, Any]:
        choice = self.choice
        return {
            "acceleratorType": self.kind.name,
            "deviceSeconds": self.seconds,
            "step": None if choice is None else self.modules[choice.index].digest,
            "stepReason": None if choice is None else choice.reason,
            "modules": [_module_json(module) for module in self.modules],
            "modulesLeftOut": self.left_out,
            "doubts": list(self.doubts),
            "programError": self.error or None,
        }


def read_summary(
    run: Path,
    verdicts: Path,
    kind: AcceleratorType,
    step_name: str | None = None,
    replica: str | None = None,
) -> ProgramSummary:
    """Return what is written so far. `run` is the program's to write: what is not as it should be
    is left out. `replica`: of a job, whose processes alone count; None: all processes."""
    by_digest: dict[str, list[tuple[int, ModuleRuns]]] = {}
    left_out, errors = 0, list[str]()
    for worker, left, modules, error in _processes(run, replica):
        left_out += left
        errors += [error] if error else []
        for module in modules:
            by_digest.setdefault(module.digest, []).append((worker, module))
    totals = [_total(run, verdicts, digest, found, kind) for digest, found in by_digest.items()]
    totals.sort(key=lambda one: (-one.work_seconds, -one.runs, one.name))
    error = min(errors, key=lambda one: OUT_OF_MEMORY not in one, default="")
    return ProgramSummary(kind, tuple(totals), left_out, step_name, error)


def _with_sources(run: Path, digest: str, estimate: ModuleEstimate) -> ModuleEstimate:
    """Return the estimate with the program's lines in place of those of the module's text, which
    are called that where the program's are not known (TensorFlow)."""
    if not _LINE.search(" ".join((*estimate.doubts, estimate.error))):
        return estimate
    text = read_inside(run, SOURCES, f"{digest}.txt", MODULE_BYTES_MAX) or b""
    lines = text.decode(errors="replace").split("\n")

    def source(match: re.Match[str]) -> str:
        number = int(match[1]) - 1
        name = lines[number] if 0 <= number < len(lines) else ""
        is_known = name.isprintable() and 0 < len(name) <= NAME_CHARACTERS_MAX
        return name if is_known else f"module {match[0]}"

    doubts = tuple(_LINE.sub(source, one) for one in estimate.doubts)
    return dataclasses.replace(estimate, doubts=doubts, error=_LINE.sub(source, estimate.error))


def _total(
    run: Path,
    verdicts: Path,
    digest: str,
    found: list[tuple[int, ModuleRuns]],
    kind: AcceleratorType,
) -> ModuleTotal:
    by_worker: dict[int, int] = {}
    walls = []
    for worker, one in found:
        by_worker[worker] = by_worker.get(worker, 0) + one.runs
        if one.timed_runs:
            walls.append(one.timed_seconds / one.timed_runs)
        elif one.runs > 1 and one.last > one.first:
            walls.append((one.last - one.first) / (one.runs - 1))
    data = read_json(verdicts / f"{digest}.json")
    estimate = _with_sources(run, digest, of_json(data)) if data else None
    first = found[0][1]
    most = max((one for _, one in found), key=lambda one: one.calls or 0)
    host_input = set[str]().union(*(one.host_input for _, one in found))
    others = max(one.other_bytes for _, one in found)
    return ModuleTotal(
        digest=digest,
        name=first.name,
        devices=first.devices,
        runs=max(by_worker.values()),
        compile_seconds=max(one.compile_seconds for _, one in found),
        wall_seconds=max(walls, default=None),
        estimate=None if estimate is None else as_run(estimate, host_input, others, kind),
        is_library=all(one.is_library for _, one in found),
        feeds_itself=None
        if most.feeds_itself is None
        else any(one.feeds_itself for _, one in found),
        site=most.site,
        calls=most.calls,
        is_eager_loop=all(one.is_eager_loop for _, one in found),
    )


def _processes(run: Path, replica: str | None) -> Iterator[tuple[int, int, list[ModuleRuns], str]]:
    """Worker, modules that it left out, modules, and the error that ended it, of as many processes
    as there is room for."""
    room = RUN_BYTES_MAX
    for name in list_inside(run, "processes", ".json", PROCESSES_MAX):
        text = read_inside(run, "processes", name, room) or b""
        room -= len(text)
        try:
            data = json.loads(text)
            if replica is not None and data.get("replica") != replica:
                continue
            yield (
                int(data["worker"]),
                int(data["left_out"]),
                [_module_runs(one) for one in data["modules"][:MODULES_MAX]],
                _printable(str(data.get("error", ""))),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            continue


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[
        :ERROR_CHARACTERS_MAX
    ]


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
    devices, runs, others = int(data["devices"]), int(data["runs"]), int(data.get("other_bytes", 0))
    if not all(
        0 <= number <= NUMBER_MAX
        for number in (compile_seconds, first, last, devices, runs, others)
    ):
        raise ValueError("counts and times are between 0 and NUMBER_MAX")
    host_input = tuple(str(key) for key in data.get("host_input", ())[:HOST_INPUT_MAX])
    calls_text = data.get("calls")  # a host with an older Podyard does not say
    site, calls = str(data.get("site", "")), None if calls_text is None else int(calls_text)
    if not (
        site.isprintable() and len(site) <= NAME_CHARACTERS_MAX and 0 <= (calls or 0) <= NUMBER_MAX
    ):
        raise ValueError("a call site is a short text, and calls are between 0 and NUMBER_MAX")
    timed_runs, timed = int(data.get("timed_runs", 0)), float(data.get("timed_seconds", 0.0))
    if not (0 <= timed_runs <= NUMBER_MAX and 0 <= timed <= NUMBER_MAX):
        raise ValueError("timed runs are between 0 and NUMBER_MAX")
    is_library, feeds = bool(data.get("is_library")), data.get("feeds_itself")
    feeds_itself = None if feeds is None else bool(feeds)
    return ModuleRuns(
        digest, name, devices, compile_seconds, runs, first, last, host_input, others, is_library,
        feeds_itself, site, calls, timed_runs, timed, bool(data.get("is_eager_loop"))
    )  # fmt: skip


def _module_json(module: ModuleTotal) -> dict[str, Any]:
    estimate = module.estimate
    found: dict[str, Any] = {
        "digest": module.digest,
        "name": module.name,
        "devices": module.devices,
        "runs": module.runs,
        "compileSeconds": module.compile_seconds,
        "wallSecondsPerRun": module.wall_seconds,
        "callSite": module.site or None,
        "isLibrary": module.is_library,
    }
    if estimate is not None:
        found |= {
            "deviceSecondsPerRun": estimate.seconds,
            "turns": estimate.turns,
            "hostInputSecondsPerRun": estimate.feed_seconds,
            "flopsPerDevice": estimate.flops,
            "mfu": estimate.mfu if estimate.seconds is not None else None,
            "hfu": estimate.hfu if estimate.seconds is not None else None,
            "modelFlopsPerDevice": estimate.model_flops,
            "maskedFlopsPerDevice": estimate.masked_flops,
            "peakFlopsPerSecond": estimate.peak_flops,
            "dtypePeakFlopsPerSecond": estimate.dtype_peak_flops,
            "mxuUtilization": estimate.mxu_utilization,
            "peakBytes": estimate.peak_bytes,
            "otherLiveBytes": estimate.other_bytes,
            "limitBytes": estimate.limit_bytes,
            "argumentBytes": estimate.argument_bytes,
            "fits": estimate.fits if estimate.verdict else None,
            "verdict": estimate.verdict,
            "largestBuffers": list(estimate.largest),
            "compiler": estimate.compiler,
            "compiledFor": estimate.compiled_for or None,
            "doubts": list(estimate.doubts),
            "kernels": list(estimate.kernels),
            "error": estimate.error,
        }
    return found
