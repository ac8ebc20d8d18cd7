"""One slice for a whole run: whether the program fits, its step time with the error that is to be
expected, hours, and cost. The same row for `podyard run --dry-run` and for the console."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from podyard.engine.plan.tokens import TokensPerStep, steps_of
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.generation import StepError

COST_DECIMALS = 6
_SECONDS_PER_HOUR = 3600
_NANOS_PER_UNIT = 10**9


@dataclasses.dataclass(frozen=True, slots=True)
class RunRequest:
    """A run that is asked for: `tokens` in all, None: not asked; `tokens_per_step` of the caller,
    None: from the step; `slices` of a multislice."""

    tokens: int | None = None
    tokens_per_step: int | None = None
    slices: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class SlicePrice:
    """An hour of a slice that is bought as `usage`, in nanos (1e-9) of `currency`; None: it has no
    price."""

    usage: str
    nanos_per_hour: int | None
    currency: str


@dataclasses.dataclass(frozen=True, slots=True)
class RunCost:
    """Cost of the run when the slices are bought as `usage`; `amount` None: no price."""

    usage: str
    amount: Fraction | None
    currency: str


@dataclasses.dataclass(frozen=True, slots=True)
class StepOnSlice:
    """The training step of a program on a type. `fits` None: not known. `memory`: the memory check
    in words, with the peak. `seconds` None: it has no time, and `memory` or `why` says why."""

    fits: bool | None
    memory: str
    why: str = ""
    seconds: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    tokens: TokensPerStep | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SliceForecast:
    """The step in a zone, and the run that is asked for. `error`: of published step times, by
    generation. `steps`, `hours` None: not asked, not known, or the program does not fit."""

    kind: AcceleratorType
    zone: str
    step: StepOnSlice
    error: StepError | None = None
    steps: int | None = None
    hours: float | None = None
    costs: tuple[RunCost, ...] = ()

    @property
    def interval(self) -> tuple[float, float] | None:
        """Seconds of a step at the 10th and the 90th percentile of the expected error."""
        if self.step.seconds is None or self.error is None:
            return None
        return self.error.interval(self.step.seconds)

    def cost(self, usage: str) -> RunCost | None:
        """Return the cost in a usage class; None: there is none."""
        return next((one for one in self.costs if one.usage == usage and one.amount), None)

    def to_json(self) -> dict[str, Any]:
        """Return the row with exact figures; null: not known."""
        step, interval, tokens = self.step, self.interval, self.step.tokens
        return {
            "zone": self.zone,
            "fits": step.fits,
            "memory": step.memory,
            "reason": step.why or None,
            "stepSeconds": step.seconds,
            "expectedStepSeconds": None
            if interval is None or self.error is None
            else {"p10": interval[0], "p90": interval[1], "publishedRuns": self.error.rows},
            "mfu": step.mfu,
            "hfu": step.hfu,
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
    kind: AcceleratorType,
    zone: str,
    step: StepOnSlice,
    prices: Sequence[SlicePrice],
    run: RunRequest,
) -> SliceForecast:
    """Return the row of one type. `prices`: of one slice in the zone."""
    if run.tokens_per_step is not None:
        named = TokensPerStep(run.tokens_per_step, "as you say")
        step = dataclasses.replace(step, tokens=named)
    row = SliceForecast(kind, zone, step, kind.generation.step_error)
    count = None if step.tokens is None else step.tokens.count
    if run.tokens is None or count is None or not step.fits or step.seconds is None:
        return row
    steps = steps_of(run.tokens, count)
    hours = steps * step.seconds / _SECONDS_PER_HOUR
    costs = tuple(
        RunCost(
            price.usage,
            None
            if price.nanos_per_hour is None
            else Fraction(price.nanos_per_hour, _NANOS_PER_UNIT) * Fraction(hours) * run.slices,
            price.currency,
        )
        for price in prices
    )
    return dataclasses.replace(row, steps=steps, hours=hours, costs=costs)
