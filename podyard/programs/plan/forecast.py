"""One slice for a whole run: whether the program fits, its step time with the error that is to be
expected, hours, and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from podyard.engine.report.published_error import PublishedError, published_errors
from podyard.engine.report.summary import HourlyPrice
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs.modules.tokens import TokensPerStep, steps_of, tokens_per_step
from podyard.programs.summary import ModuleTotal, ProgramSummary

COST_DECIMALS = 6
_SECONDS_PER_HOUR = 3600


@dataclasses.dataclass(frozen=True, slots=True)
class RunRequest:
    """A run that is asked for: `tokens` in all, None: not asked; `tokens_per_step` of the caller,
    None: from the step; `slices` of a multislice."""

    tokens: int | None = None
    tokens_per_step: int | None = None
    slices: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class RunCost:
    """Cost of the run when the slices are bought as `usage`; `amount` None: no price."""

    usage: str
    amount: Fraction | None
    currency: str


@dataclasses.dataclass(frozen=True, slots=True)
class SliceForecast:
    """`fits` None: not known. `memory`: the memory check in words, with the peak. `step_seconds`
    None: the step has no time, and `memory` or `why` says why. `error`: of published step times, by
    generation. `steps`, `hours` None: not known, or the program does not fit."""

    kind: AcceleratorType
    zone: str
    fits: bool | None
    memory: str
    why: str = ""
    step_seconds: float | None = None
    error: PublishedError | None = None
    mfu: float | None = None
    hfu: float | None = None
    tokens_per_step: TokensPerStep | None = None
    steps: int | None = None
    hours: float | None = None
    costs: tuple[RunCost, ...] = ()

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds of a step at the 10th and the 90th percentile of the expected error."""
        if self.step_seconds is None or self.error is None:
            return None
        return self.error.interval(self.step_seconds)

    def to_json(self) -> dict[str, Any]:
        interval, tokens = self.interval, self.tokens_per_step
        return {
            "zone": self.zone,
            "fits": self.fits,
            "memory": self.memory,
            "reason": self.why or None,
            "stepSeconds": self.step_seconds,
            "expectedStepSeconds": None
            if interval is None or self.error is None
            else {"p10": interval[0], "p90": interval[1], "publishedRuns": self.error.rows},
            "mfu": self.mfu,
            "hfu": self.hfu,
            "tokensPerStep": None if tokens is None else tokens.count,
            "tokensPerStepSource": None if tokens is None else tokens.source,
            "steps": self.steps,
            "hours": self.hours,
            "costs": [
                {
                    "usage": one.usage,
                    "amount": None
                    if one.amount is None
                    else f"{float(one.amount):.{COST_DECIMALS}f}",
                    "currency": one.currency,
                }
                for one in self.costs
            ],
        }


def forecast(
    summary: ProgramSummary, zone: str, prices: Sequence[HourlyPrice], run: RunRequest
) -> SliceForecast:
    """Return the row of one type. `prices`: of an hour of one slice in the zone."""
    kind, step, fits = summary.kind, summary.step, summary.fits
    if step is None or step.estimate is None or not step.estimate.seconds:
        return SliceForecast(kind, zone, fits, _memory(summary), _why(summary, step))
    estimate, seconds = step.estimate, step.estimate.seconds / step.steps
    row = SliceForecast(
        kind,
        zone,
        fits,
        _memory(summary),
        step_seconds=seconds,
        error=published_errors().get(kind.generation.name),
        mfu=estimate.mfu,
        hfu=estimate.hfu,
    )
    if run.tokens is None:
        return row
    tokens = _tokens(step, run)
    row = dataclasses.replace(row, tokens_per_step=tokens)
    if tokens.count is None or not fits:
        return row
    steps = steps_of(run.tokens, tokens.count)
    all_seconds = steps * seconds
    costs = []
    for price in prices:
        amount = price.of_seconds(all_seconds)
        whole = None if amount is None else amount * run.slices
        costs.append(RunCost(price.usage, whole, price.currency))
    return dataclasses.replace(
        row, steps=steps, hours=all_seconds / _SECONDS_PER_HOUR, costs=tuple(costs)
    )


def _tokens(step: ModuleTotal, run: RunRequest) -> TokensPerStep:
    if run.tokens_per_step is not None:
        return TokensPerStep(run.tokens_per_step, "--tokens-per-step")
    assert step.estimate is not None
    replicas = step.devices if step.name.startswith("pmap_") else 1
    return tokens_per_step(step.estimate.token_inputs, step.estimate.turns, replicas)


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
