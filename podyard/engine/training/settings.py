"""Course of a training run: loops, evaluations, stopping early, checkpoints. No JAX in here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from podyard.base.errors import invalid

# Of the names of what is measured on the test data.
MEASURED_PREFIX = "val_"


@dataclasses.dataclass(frozen=True)
class Watched:
    """What of an evaluation is watched: "val_loss" and the like, and whether less ("min") or more ("max") is better."""

    metric: str
    mode: str


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """A run ends after `patience` evaluations in a row that were not better than the best one by `min_delta`."""

    watched: Watched
    patience: int
    min_delta: float = 0.0


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """`accumulation_steps`: parts of each core's batch that are computed one after the other, as small as that is.
    `iterations_per_loop`: steps between two looks at what is outside (stop, report, save). `evaluate_every_steps` 0:
    only at the end. `keep_checkpoints` 0: all. `best`: a checkpoint is made of each best evaluation, and kept."""

    accumulation_steps: int = 1
    iterations_per_loop: int = 1
    evaluate_every_steps: int = 0
    early_stopping: EarlyStopping | None = None
    checkpoint_name: str = "checkpoint-{step:08d}"
    keep_checkpoints: int = 5
    best: Watched | None = None
    export_at_end: bool = False

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> TrainingSettings:
        """From the names that the platform tells a replica; what is not given has its default."""
        names = {_camel(field.name): field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise invalid(f"training has no {', '.join(unknown)}", f"training.{unknown[0]}")
        values = {names[name]: value for name, value in given.items()}
        stopping, best = values.get("early_stopping"), values.get("best")
        if stopping is not None:
            values["early_stopping"] = EarlyStopping(_watched(stopping), stopping["patience"], stopping["minDelta"])
        if best is not None:
            values["best"] = _watched(best)
        return cls(**values)


def check_settings(settings: TrainingSettings, checkpoint_every_steps: int) -> None:
    """Raises PodyardError INVALID_ARGUMENT for settings that no run can follow."""
    loop, every = settings.iterations_per_loop, settings.evaluate_every_steps
    if settings.accumulation_steps < 1 or loop < 1:
        raise invalid("accumulationSteps and iterationsPerLoop are at least 1", "training")
    if every < 0 or every % loop or checkpoint_every_steps % loop:
        text = f"evaluations and checkpoints come at the end of a loop: multiples of iterationsPerLoop ({loop})"
        raise invalid(text, "training.iterationsPerLoop")
    if (settings.early_stopping or settings.best) and not every:
        raise invalid("evaluations are watched, and evaluateEverySteps is 0", "training.evaluateEverySteps")


def _watched(given: Mapping[str, Any]) -> Watched:
    return Watched(given["metric"], given["mode"])


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
