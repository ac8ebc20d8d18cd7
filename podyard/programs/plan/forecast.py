"""The training step of a program that has run, as the forecast of a whole run takes it."""

from __future__ import annotations

from podyard.engine.plan.forecast import StepOnSlice
from podyard.engine.plan.tokens import tokens_per_step
from podyard.programs.summary import ModuleTotal, ProgramSummary


def step_on_slice(summary: ProgramSummary) -> StepOnSlice:
    """Return the training step of a run on the type of the summary."""
    step = summary.step
    if step is None or step.estimate is None or not step.estimate.seconds:
        return StepOnSlice(summary.fits, _memory(summary), _why(summary, step))
    estimate = step.estimate
    # A module of pmap has one replica's part of the batch.
    replicas = step.devices if step.name.startswith("pmap_") else 1
    return StepOnSlice(
        summary.fits,
        _memory(summary),
        seconds=step.estimate.seconds / step.steps,
        mfu=estimate.mfu,
        hfu=estimate.hfu,
        tokens=tokens_per_step(estimate.token_inputs, estimate.turns, replicas),
    )


def _memory(summary: ProgramSummary) -> str:
    """Return the memory check of the training step, or of the largest module that does not fit."""
    if summary.too_large:
        module = max(summary.too_large, key=lambda one: _peak_bytes(one))
        verdict = "does not fit" if module.estimate is None else module.estimate.verdict
        return verdict if module is summary.step else f"{module.name} {verdict}"
    if summary.is_out_of_memory:
        return "does not fit (out of memory)"
    step = summary.step
    return "" if step is None or step.estimate is None else step.estimate.verdict


def _peak_bytes(module: ModuleTotal) -> int:
    return 0 if module.estimate is None else module.estimate.peak_bytes


def _why(summary: ProgramSummary, step: ModuleTotal | None) -> str:
    if summary.error:
        return f"the program failed: {summary.error}"
    if step is None:
        return "no training step found"
    return "not priced in time" if step.estimate is None else step.estimate.error
