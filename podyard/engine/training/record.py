"""Evaluations of a run that it remembers: the best one, and for how long there was no better
one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from podyard.base.errors import failed_precondition
from podyard.base.training_settings import TrainingSettings
from podyard.engine.training.settings import MEASURED_PREFIX


@dataclasses.dataclass(frozen=True)
class Tracked:
    """`value`: the best so far, of step `step`; `waited`: evaluations since then. None before the
    first."""

    value: float | None = None
    step: int = 0
    waited: int = 0

    def after(self, value: float, step: int, mode: str, min_delta: float) -> Tracked:
        """With one more evaluation. What is not a number is never better."""
        gain = value if mode == "max" else -value
        if self.value is None:
            is_better = gain == gain
        else:
            is_better = gain > (self.value if mode == "max" else -self.value) + min_delta
        return (
            Tracked(value, step) if is_better else dataclasses.replace(self, waited=self.waited + 1)
        )


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """Part of every checkpoint, so that a resumed run decides as an undisturbed one. `measured`:
    the newest evaluation, of step `measured_step`, by name ("val_loss")."""

    stopping: Tracked = dataclasses.field(default_factory=Tracked)
    best: Tracked = dataclasses.field(default_factory=Tracked)
    measured: Mapping[str, float] = dataclasses.field(default_factory=dict)
    measured_step: int = 0

    def after(
        self, metrics: Mapping[str, float], step: int, settings: TrainingSettings
    ) -> RunRecord:
        """With the evaluation of `step`. Raises PodyardError FAILED_PRECONDITION when it lacks what
        is watched."""
        measured = {MEASURED_PREFIX + name: value for name, value in metrics.items()}
        stopping, best = self.stopping, self.best
        if settings.early_stopping is not None:
            watched = settings.early_stopping
            stopping = stopping.after(
                _value(measured, watched.metric), step, watched.mode, watched.min_delta
            )
        if settings.best is not None:
            best = best.after(_value(measured, settings.best.metric), step, settings.best.mode, 0.0)
        return RunRecord(stopping, best, measured, step)

    def is_best(self, step: int) -> bool:
        return self.best.value is not None and self.best.step == step

    def why_stop(self, settings: TrainingSettings) -> str | None:
        """In words, when there has been no better evaluation for too long."""
        stopping = settings.early_stopping
        if stopping is None or self.stopping.waited < stopping.patience:
            return None
        best = (
            "there is no best one"
            if self.stopping.value is None
            else f"the best was {self.stopping.value:.6g}"
        )
        metric, step = stopping.metric, self.stopping.step
        return (
            f"{metric} was not better in {self.stopping.waited} evaluations: {best}, of step {step}"
        )

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> RunRecord:
        return cls(
            Tracked(**given["stopping"]),
            Tracked(**given["best"]),
            dict(given["measured"]),
            given["measured_step"],
        )


def _value(measured: Mapping[str, float], metric: str) -> float:
    if metric not in measured:
        raise failed_precondition(
            f"the model's evaluation has no {metric!r}; it has: {', '.join(sorted(measured))}"
        )
    return measured[metric]
