"""`podyard run --tpu TYPE -- COMMAND`: a program with a TPU around it. Needs no running Podyard.

The command starts once for each host of the slice, in an environment whose hook shows it the
slice's devices. What it compiles is priced by a process next to it, and said at the end.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import platformdirs

from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError
from podyard.base.money import cost_text
from podyard.cli.kit import output
from podyard.cli.programs.program_environment import ProgramOptions, environments_of
from podyard.cli.programs.run_report.comparison import NOTHING_FITS_CODE, comparison, forecast_of
from podyard.cli.programs.run_report.modules import module_table
from podyard.cli.programs.run_report.prices import prices
from podyard.cli.redirect import redirect
from podyard.engine.report import trace
from podyard.engine.report.summary import (
    EXACT_SENTENCE,
    REASONS_SHOWN,
    Report,
    bytes_text,
    time_text,
)
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs import estimator
from podyard.programs.launch import LaunchEnd
from podyard.programs.plan.run_record import ran_module
from podyard.programs.records import SUFFIX, VERDICTS
from podyard.programs.summary import ModuleTotal, ProgramSummary, read_summary

# How long the end waits for what is not priced yet, by compiler, in processor seconds of the
# estimator: libtpu takes minutes of several cores for a large module. Nobody waits longer than
# ESTIMATE_SECONDS_MAX, however busy the machine.
ESTIMATE_PROCESSOR_SECONDS = {"podyard": 60.0, "xla-tpu": 1200.0}
ESTIMATE_SECONDS_MAX = 600.0
MODULES_SHOWN = 5
NAMES_SHOWN = 20  # of modules, where none is a training step
NO_STEP_CODE = 3  # of a dry run that was to end with a price
_RED, _PLAIN = "\033[31m", "\033[0m"


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """A command that has ended, and what it did."""

    options: ProgramOptions
    end: LaunchEnd
    summary: ProgramSummary

    @property
    def code(self) -> int:
        """The program's exit code; NO_STEP_CODE for a dry run that has no training step and
        compiles nothing for a topology."""
        summary = self.summary
        has_price = bool(summary.step or summary.ahead_of_time or not self.options.dry_run_steps)
        return self.end.code if self.end.code or has_price else NO_STEP_CODE


def run_on_types(command: Sequence[str], several: Sequence[ProgramOptions]) -> int:
    """A dry run for each type, and one table.

    Returns the exit code of the first that fails for another reason than memory; else, with
    --strict, NOTHING_FITS_CODE if the program fits on none of the types; else 0.
    """
    strict = several[0].strict
    # A module that does not fit is a row of the table, and no error of the program.
    outcomes = [
        run_once(command, dataclasses.replace(options, strict=False)) for options in several
    ]
    rows = [(one.options, forecast_of(one.options, one.summary)) for one in outcomes]
    output.say(comparison(rows))
    report = several[0].report
    if report is not None:
        documents = [
            _document(outcome) | {"forecast": row.to_json()}
            for outcome, (_, row) in zip(outcomes, rows, strict=True)
        ]
        _write_report(report, documents)
    codes = [one.code for one in outcomes if one.summary.fits is not False]
    failed = next((code for code in codes if code), 0)
    fits = any(one.summary.fits for one in outcomes)
    return failed or (NOTHING_FITS_CODE if strict and not fits else 0)


def run_program(command: Sequence[str], options: ProgramOptions) -> int:
    """Returns the exit code of the first worker that fails, or minus the signal that it died of, or
    NO_STEP_CODE, or 0.

    Raises INVALID_ARGUMENT for more processes than this machine can carry.
    """
    outcome = run_once(command, options)
    for line in lines(outcome.summary, options, outcome.end.code):
        output.say(line)
    if options.report is not None:
        _write_report(options.report, _document(outcome))
    return outcome.code


def run_once(command: Sequence[str], options: ProgramOptions) -> ProgramOutcome:
    """Says what does not fit, and which worker failed, and leaves the rest to the caller."""
    kind = options.kind
    with tempfile.TemporaryDirectory(prefix="podyard-run-") as folder:
        run = Path(folder)
        environments = environments_of(command, options, run)
        with start_estimator(run, options) as process:
            watch = _Watch(run, kind)
            end = redirect.start(command, environments, watch.look)
            (run / VERDICTS / estimator.DONE).touch()
            summary = wait_for_estimates(run, options, process)
        summary = summary.with_full_attention() if options.has_full_attention else summary
        watch.tell(summary)
        if options.trace is not None and summary.step is not None:
            _write_trace(options.trace, run, summary.step, options)
    if end.failed_worker is not None and len(environments) > 1:
        how = f"signal {-end.code}" if end.code < 0 else f"exit code {end.code}"
        output.say(
            f"podyard run: worker {end.failed_worker} ended with {how}; the others were ended"
        )
    return ProgramOutcome(options, end, summary)


def _document(outcome: ProgramOutcome) -> dict[str, Any]:
    return outcome.summary.to_json() | {
        "exitCode": outcome.code,
        "failedWorker": outcome.end.failed_worker,
        "zone": outcome.options.zone,
        "dryRunSteps": outcome.options.dry_run_steps,
    }


def _write_trace(path: Path, run: Path, step: ModuleTotal, options: ProgramOptions) -> None:
    """Of the training step, as the model has it on the slice."""
    text = (run / "modules" / f"{step.digest}{SUFFIX}").read_bytes()
    try:
        found = estimator.analyze(text, options.kind, slices=options.slices)
    except PodyardError as error:
        output.say(f"podyard: no trace of {step.name}: {error.message}")
        return
    events = trace.trace_events(Report(step.name, found))
    path.write_text(json.dumps(events, separators=(",", ":"), allow_nan=False), encoding="utf-8")


def _write_report(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def lines(summary: ProgramSummary, options: ProgramOptions, code: int = 0) -> list[str]:
    """Return the report of a run, for people. `code`: the exit code of the program. One that has
    failed has no price of steps to come."""
    kind, step = summary.kind, summary.step
    device = kind.generation.device_word
    if not summary.modules:
        nothing = f"podyard: no estimate for {kind.name}: the program compiled nothing for the TPU"
        return [nothing, *_no_step(summary, options)]
    shown = [one for one in summary.modules[:MODULES_SHOWN] if one.runs]
    rows = [ran_module(summary, module) for module in shown]
    lines = [_head(options)]
    if rows or not summary.ahead_of_time:
        lines.append(module_table(rows, device))
    lines += map(_ahead_line, summary.ahead_of_time)
    if rest := [module for module in summary.modules[MODULES_SHOWN:] if module.runs]:
        runs, seconds = sum(one.runs for one in rest), sum(one.work_seconds for one in rest)
        lines.append(f"and {len(rest)} more modules with {runs} runs, {time_text(seconds)} in all")
    if summary.dispatch_seconds:
        lines.append(
            f"dispatch: {time_text(summary.dispatch_seconds)} in all, for runs that end before the "
            "host has started the next one"
        )
    choice = summary.choice
    if step is None or choice is None:
        lines += _no_step(summary, options)
    else:
        if step.estimate is not None and step.estimate.seconds:
            lines.append(_step_line(step, options, has_price=code == 0))
        lines.append(f"training step {step.name}: {choice.reason}")
        kernels = () if step.estimate is None else step.estimate.kernels
        lines += [f"kernel {line} of {step.name}" for line in kernels[:NAMES_SHOWN]]
    if summary.seconds and (step is not None or not options.dry_run_steps):
        lines.append(
            f"in all {time_text(summary.seconds)} on the TPU in {options.zone}: "
            f"{_costs(summary.seconds, options)}"
        )
    if uncovered := summary.not_covered:
        named = "; ".join(f"{one.name}: {_why(one)}" for one in uncovered[:REASONS_SHOWN])
        runs, all_runs = (
            sum(one.runs for one in uncovered),
            sum(one.runs for one in summary.modules),
        )
        share = f"{len(uncovered)} of {len(summary.modules)} modules, {runs} of {all_runs} runs"
        lines.append(f"not covered: {share} ({named})")
    if summary.left_out:
        lines.append(f"not covered: {summary.left_out} modules that were too many or too large")
    if options.dry_run_steps:
        lines.append(
            "dry run: nothing large was computed; losses are 0, and what depends on values "
            "did not happen"
        )
    lines += [f"lower bound: {doubt}" for doubt in summary.doubts[:REASONS_SHOWN]]
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        lines.append(f"the program failed: {summary.error or how}")
    return lines


def _head(options: ProgramOptions) -> str:
    kind = options.kind
    hosts = f"{kind.host_count} host{'s' * (kind.host_count > 1)}"
    by_compiler = f"the TPU compiler ({EXACT_SENTENCE})"
    judge = by_compiler if options.compiler == "xla-tpu" else "Podyard"
    devices = f"{kind.device_count} {kind.generation.device_kind} {kind.generation.device_word}s"
    return f"podyard: {kind.name} ({devices}, {hosts}), estimated by {judge}"


def _no_step(summary: ProgramSummary, options: ProgramOptions) -> list[str]:
    """For people, with what was seen. A program that computes need not train."""
    if summary.ahead_of_time or (not summary.modules and not options.dry_run_steps):
        return []
    if options.step_name is not None:
        why = f"the program called no jitted function {options.step_name}"
    else:
        why = "no jitted function was called twice from one place; name it with --step"
    shown = [f"{one.name} ({one.runs})" for one in summary.modules if one.runs][:NAMES_SHOWN]
    rest = sum(1 for one in summary.modules if one.runs) - len(shown)
    seen = f"{', '.join(shown) or 'no modules'}{f' and {rest} more' if rest else ''}"
    return [f"no training step found: {why}; seen: {seen}"]


def _ahead_line(module: ModuleTotal) -> str:
    """Of a module that is compiled for a topology."""
    estimate = module.estimate
    assert estimate is not None
    if not estimate.seconds:
        return f"{module.name} for {estimate.compiled_for}: {_why(module)}"
    return (
        f"{module.name} for {estimate.compiled_for}: {time_text(estimate.seconds)}, "
        f"MFU {estimate.mfu:.1%}, HFU {estimate.hfu:.1%}, {estimate.verdict}"
    )


def _step_line(step: ModuleTotal, options: ProgramOptions, *, has_price: bool) -> str:
    estimate = step.estimate
    assert estimate is not None and estimate.seconds
    seconds = estimate.seconds / step.steps
    parts = [f"step {step.name}: {time_text(seconds)} on {options.kind.name}"]
    if step.steps > 1:
        parts.append(f"1 of {step.steps} turns of its loop")
    if step.wall_seconds is not None:
        parts.append(f"{time_text(step.wall_seconds / step.steps)} on this machine")
    if estimate.feed_seconds:
        parts.append(f"host input {time_text(estimate.feed_seconds / step.steps)}")
    parts.append(f"MXU {estimate.mxu_utilization:.0%}")
    if options.batch:
        parts.append(f"{options.batch / seconds:,.0f} examples per second")
    if has_price:
        parts.append(f"1,000 steps {_costs(1000 * seconds, options)}")
    return ", ".join(parts)


def _costs(seconds: float, options: ProgramOptions) -> str:
    """Return what the slice costs for so long, by the ways to buy it."""
    found = []
    for price in prices(options.kind, options.zone):
        cost: Fraction | None = price.of_seconds(seconds)
        if cost is not None:
            found.append(f"{cost_text(cost, price.currency)} {price.usage}")
    return ", ".join(found) or f"no price in {options.zone}"


def _why(module: ModuleTotal) -> str:
    return "not priced in time" if module.estimate is None else module.estimate.error


class _Watch:
    """Says at once which module does not fit."""

    def __init__(self, run: Path, kind: AcceleratorType) -> None:
        self._run = run
        self._kind = kind
        self._told: set[str] = set()
        self._seen = 0

    def look(self) -> None:
        folder = self._run / VERDICTS
        count = sum(1 for _ in folder.iterdir()) if folder.exists() else 0
        if count != self._seen:
            self._seen = count
            self.tell(read_summary(self._run, self._run / VERDICTS, self._kind))

    def tell(self, summary: ProgramSummary) -> None:
        for module in summary.too_large:
            if not self._told:
                output.say(_red(too_large_line(module, self._kind)))
            self._told.add(module.digest)


def too_large_line(module: ModuleTotal, kind: AcceleratorType) -> str:
    estimate = module.estimate
    assert estimate is not None
    device = kind.generation.device_word
    others = (
        f" and {bytes_text(estimate.other_bytes)} of other arrays" if estimate.other_bytes else ""
    )
    pair = (
        f"{bytes_text(estimate.peak_bytes)}{others} of "
        f"{bytes_text(estimate.limit_bytes)} a {device}"
    )
    judge = "" if estimate.compiler == "podyard" else " (judged by the TPU compiler)"
    largest = f"; the largest buffers are {', '.join(estimate.largest)}" if estimate.largest else ""
    name = estimate.compiled_for or kind.name
    return f"podyard: {module.name} does not fit on {name}: {pair}{judge}{largest}"


def _red(text: str) -> str:
    return f"{_RED}{text}{_PLAIN}" if sys.stderr.isatty() else text


@contextmanager
def start_estimator(run: Path, options: ProgramOptions) -> Iterator[subprocess.Popen[bytes]]:
    """Prices modules as long as the context lasts, in the process that it gives."""
    (run / VERDICTS).mkdir()
    cache = platformdirs.user_cache_path("podyard") / "estimates"
    environ: Mapping[str, str] = {**os.environ, estimator.CACHE_VARIABLE: str(cache)}
    process = subprocess.Popen(
        estimator.command(
            run,
            run / VERDICTS,
            estimator.PricedOn(options.kind, options.compiler, options.slices),
        ),
        env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_for_estimates(
    run: Path, options: ProgramOptions, process: subprocess.Popen[bytes]
) -> ProgramSummary:
    """`process`: the estimator. It has a low priority, so on a busy machine its own seconds
    count."""
    import psutil

    clock = OsClock()
    until, started = clock.monotonic_seconds() + ESTIMATE_SECONDS_MAX, None
    while True:
        has_ended = process.poll() is not None  # before the look: it has written all that it will
        summary = read_summary(run, run / VERDICTS, options.kind, options.step_name)
        waiting = [module for module in summary.modules if module.estimate is None]
        if not waiting or has_ended or clock.monotonic_seconds() > until:
            return summary
        times = psutil.Process(process.pid).cpu_times()
        worked = times.user + times.system
        started = worked if started is None else started
        if worked - started > ESTIMATE_PROCESSOR_SECONDS[options.compiler]:
            return summary
        clock.sleep(0.05)
