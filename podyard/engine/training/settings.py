"""Checks of the settings of a training run. No JAX in here."""

from __future__ import annotations

from podyard.base.errors import invalid
from podyard.base.training_settings import TrainingSettings

# Of the names of what is measured on the test data.
MEASURED_PREFIX = "val_"


def check_settings(settings: TrainingSettings, checkpoint_every_steps: int) -> None:
    """Raises PodyardError INVALID_ARGUMENT for settings that no run can follow."""
    loop, every = settings.iterations_per_loop, settings.evaluate_every_steps
    if settings.accumulation_steps < 1 or loop < 1:
        raise invalid("accumulationSteps and iterationsPerLoop are at least 1", "training")
    if every < 0 or every % loop or checkpoint_every_steps % loop:
        text = (
            "evaluations and checkpoints come at the end of a loop: multiples of "
            f"iterationsPerLoop ({loop})"
        )
        raise invalid(text, "training.iterationsPerLoop")
    if (settings.early_stopping or settings.best) and not every:
        raise invalid(
            "evaluations are watched, and evaluateEverySteps is 0", "training.evaluateEverySteps"
        )
