"""The record of a program's run that every surface shows: `podyard run`, nodes, jobs, REST."""

from __future__ import annotations

import math

from podyard.domain.ran_module import MODULES_KEPT_MAX, ProgramRun, RanModule
from podyard.programs.summary import ModuleTotal, ProgramSummary

_NOTE_CHARACTERS_MAX = 500


def program_run(summary: ProgramSummary) -> ProgramRun:
    """Return the record of a run, in values that every database and every reader of JSON takes: a
    module is whatever a program wrote."""
    ran = [module for module in summary.modules if module.runs]
    choice, step = summary.choice, summary.step
    is_priced = any(module.is_priced for module in ran)
    step_seconds = None
    if step is not None and step.estimate is not None and step.estimate.seconds is not None:
        step_seconds = _finite(step.estimate.seconds / step.steps)
    return ProgramRun(
        modules=tuple(ran_module(summary, module) for module in ran[:MODULES_KEPT_MAX]),
        modules_left_out=max(0, len(ran) - MODULES_KEPT_MAX) + summary.left_out,
        step="" if step is None else _text(summary.label(step)),
        step_reason="" if choice is None else _text(choice.reason),
        steps=None if step is None else step.runs * step.steps,
        step_seconds=step_seconds,
        seconds=_finite(summary.seconds) if is_priced else None,
        error=_text(summary.error),
    )


def ran_module(summary: ProgramSummary, module: ModuleTotal) -> RanModule:
    """Return the row of a module. The time on the TPU is the devices' own: what they wait for the
    host is not in it."""
    estimate, name, runs = module.estimate, _text(summary.label(module)), module.runs
    if estimate is None:
        return RanModule(name, runs, None, module.wall_seconds, None, None, "", "not priced yet")
    is_priced = estimate.seconds is not None and math.isfinite(estimate.seconds)
    seconds = _finite(estimate.device_seconds) if is_priced else None
    mfu, hfu = (_finite(share) if is_priced else None for share in (estimate.mfu, estimate.hfu))
    verdict, note = map(_text, (estimate.verdict, estimate.error or "; ".join(estimate.doubts)))
    fits, wall = estimate.fits if estimate.verdict else None, module.wall_seconds
    return RanModule(name, runs, seconds, wall, mfu, fits, verdict, note, hfu)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _text(text: str) -> str:
    return "".join(
        letter if letter.isprintable() else " " for letter in text[:_NOTE_CHARACTERS_MAX]
    )
