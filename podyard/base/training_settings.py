"""Settings of a training job, apart from its recipe: what users set, what is stored, and what the
engine goes by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from podyard.base.errors import invalid
from podyard.base.spelling import camel_case

# Data sets that a package carries: a recipe's argument `data` names them like a folder.
DIGITS = "sklearn-digits"  # 1,797 images of 8 x 8
TEXTS = "sklearn-texts"  # 43 kB of descriptions of data sets
SETS_ON_HAND = frozenset({DIGITS, TEXTS})


@dataclasses.dataclass(frozen=True, slots=True)
class Best:
    """The choice of the best checkpoint: by `metric` of the evaluations, the least (`min`) or the
    greatest (`max`)."""

    metric: str
    mode: str


@dataclasses.dataclass(frozen=True, slots=True)
class EarlyStopping:
    """A job ends once `patience` evaluations in a row have not bettered `metric` by more than
    `min_delta`."""

    metric: str
    mode: str
    patience: int
    min_delta: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingSettings:
    """`accumulation_steps`: parts of each core's batch that are computed one after the other, as
    small as that is. `iterations_per_loop`: steps between two looks at what is outside (stop,
    report, save). `evaluate_every_steps` 0: only at the end. `keep_checkpoints` 0: all. `best`: a
    checkpoint is made of each best evaluation, and kept."""

    accumulation_steps: int = 1
    iterations_per_loop: int = 1
    evaluate_every_steps: int = 0
    early_stopping: EarlyStopping | None = None
    checkpoint_name: str = "checkpoint-{step:08d}"
    keep_checkpoints: int = 5
    best: Best | None = None
    export_at_end: bool = False

    def as_json(self) -> dict[str, Any]:
        """As REST and replicas have them, all keys."""
        return _camel_keys(dataclasses.asdict(self))

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> TrainingSettings:
        """Return what `as_json` made; what is not given has its default."""
        names = {camel_case(field.name): field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise invalid(
                f"unknown fields of training: {', '.join(unknown)}", f"training.{unknown[0]}"
            )
        stopping = given.get("earlyStopping")
        if stopping is not None:
            minimum = {
                "min_delta" if name == "minDelta" else name: value
                for name, value in stopping.items()
            }
            given = {**given, "earlyStopping": minimum}
        return cls.of_stored({names[name]: value for name, value in given.items()})

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> TrainingSettings:
        """Return what `dataclasses.asdict` made; what an older Podyard did not store is as
        usual."""
        stopping, best = stored.get("early_stopping"), stored.get("best")
        nested = {
            "early_stopping": stopping and EarlyStopping(**stopping),
            "best": best and Best(**best),
        }
        return cls(**{**stored, **nested})


USUAL_TRAINING = TrainingSettings()


def _camel_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        camel_case(name): _camel_keys(value) if isinstance(value, dict) else value
        for name, value in data.items()
    }
