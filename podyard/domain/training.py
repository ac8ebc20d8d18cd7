"""Training settings and elasticity as users write them, and what is allowed of them; checked at
submit, without JAX."""

from __future__ import annotations

import math
import re
import string
from typing import Any

from podyard.base.errors import invalid
from podyard.base.training_settings import TrainingSettings
from podyard.domain.job import Elastic
from podyard.domain.job_fields import INT32_MAX, check_limits

NAME_CHARACTERS_MAX = 100
# with a single one, a torn newest checkpoint would leave nothing to resume from
KEEP_CHECKPOINTS_LEAST = 2
WAYS = ("min", "max")
MORE_IS_BETTER = ("accuracy", "precision", "recall", "auc", "f1")
BATCH_RULES = ("keep", "scale")
RATE_RULES = ("keep", "linear")

_METRIC = re.compile(r"val_[A-Za-z0-9_]{1,60}")
_WHOLE_FIELDS = ("epoch", "step")
_TRAINING_FIELDS = ("loss", "accuracy")
_FORMAT = re.compile(r"0?[0-9]{0,2}(\.[0-9]{1,2})?[df]?")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def usual_way(metric: str) -> str:
    """Return which values of a metric are better when nobody says: more of a share of what is
    right, less of anything else."""
    return "max" if any(name in metric for name in MORE_IS_BETTER) else "min"


def elastic_json(elastic: Elastic | None) -> dict[str, Any] | None:
    if elastic is None:
        return None
    most = {} if elastic.max_replicas is None else {"maxReplicas": elastic.max_replicas}
    rules = {"batch": elastic.batch, "learningRate": elastic.learning_rate}
    return {"minReplicas": elastic.min_replicas, **most, **rules}


def check_training(settings: TrainingSettings, checkpoint_every_steps: int) -> None:
    """Raises PodyardError INVALID_ARGUMENT naming the field that is wrong, or contradicts another
    one."""
    check_limits(settings, "training")
    if 0 < settings.keep_checkpoints < KEEP_CHECKPOINTS_LEAST:
        text = (
            f"training.keepCheckpoints is {settings.keep_checkpoints}: use 0 to keep "
            "all, or at least"
        )
        raise invalid(f"{text} {KEEP_CHECKPOINTS_LEAST}", "training.keepCheckpoints")
    loop, evaluate = settings.iterations_per_loop, settings.evaluate_every_steps
    _check_multiple(
        "checkpointEverySteps", checkpoint_every_steps, "training.iterationsPerLoop", loop
    )
    _check_multiple("training.evaluateEverySteps", evaluate, "training.iterationsPerLoop", loop)
    stopping, best = settings.early_stopping, settings.best
    if stopping is not None:
        _check_watched("training.earlyStopping", stopping.metric, stopping.mode, evaluate)
        if not 1 <= stopping.patience <= INT32_MAX:
            text = (
                f"training.earlyStopping.patience is {stopping.patience}: it must be from 1 "
                f"to {INT32_MAX}"
            )
            raise invalid(text, "training.earlyStopping.patience")
        # NaN compares false with everything, so it is refused here.
        if not 0 <= stopping.min_delta < math.inf:
            text = (
                f"training.earlyStopping.minDelta is {stopping.min_delta}: it must be a number "
                "of at least 0"
            )
            raise invalid(text, "training.earlyStopping.minDelta")
    if best is not None:
        _check_watched("training.best", best.metric, best.mode, evaluate)
        _check_multiple(
            "checkpointEverySteps", checkpoint_every_steps, "training.evaluateEverySteps", evaluate
        )
    _check_name(settings.checkpoint_name, checkpoint_every_steps, evaluate)


def check_elastic(elastic: Elastic, process_count: int) -> None:
    """Raises PodyardError INVALID_ARGUMENT naming the field that is wrong; `process_count`: of the
    whole gang."""
    if not 1 <= elastic.min_replicas <= process_count:
        text = (
            f"elastic.minReplicas is {elastic.min_replicas}: the job has {process_count} "
            "replica processes"
        )
        raise invalid(text, "elastic.minReplicas")
    for field, value, allowed in (
        ("batch", elastic.batch, BATCH_RULES),
        ("learningRate", elastic.learning_rate, RATE_RULES),
    ):
        if value not in allowed:
            raise invalid(
                f"elastic.{field} is {value!r}: it must be {' or '.join(allowed)}",
                f"elastic.{field}",
            )


def usual_rate(batch: str) -> str:
    """Return what the learning rate does when nobody says: it follows the batch."""
    return "linear" if batch == "scale" else "keep"


def _check_multiple(field: str, value: int, of_field: str, of: int) -> None:
    if value % of:
        raise invalid(f"{field} {value} is not a multiple of {of_field} {of}", field)


def _check_watched(field: str, metric: str, way: str, evaluate_every_steps: int) -> None:
    if not _METRIC.fullmatch(metric):
        raise invalid(
            f"{field}.metric is {metric!r}: it must be a metric of evaluations, such as val_loss",
            f"{field}.metric",
        )
    if way not in WAYS:
        raise invalid(f"{field}.mode is {way!r}: it must be {' or '.join(WAYS)}", f"{field}.mode")
    if not evaluate_every_steps:
        raise invalid(f"{field} requires training.evaluateEverySteps above 0", field)


def _check_name(pattern: str, checkpoint_every_steps: int, evaluate_every_steps: int) -> None:
    field = "training.checkpointName"
    if not pattern or len(pattern) > NAME_CHARACTERS_MAX:
        raise invalid(
            f"{field} must have 1 to {NAME_CHARACTERS_MAX} characters, got {len(pattern)}", field
        )
    try:
        pieces = list(string.Formatter().parse(pattern))
    except ValueError as error:
        raise invalid(f"{field} {pattern!r} is not a valid pattern: {error}", field) from None
    samples: dict[str, int | float] = {}
    for _, name, form, conversion in pieces:
        if name is None:
            continue
        known = name in _WHOLE_FIELDS or name in _TRAINING_FIELDS or _METRIC.fullmatch(name)
        if not known or conversion or not _FORMAT.fullmatch(form or ""):
            text = (
                f"{field} {pattern!r}: use the fields epoch, step, loss, accuracy and "
                "val_..., as "
                f"in {{step:08d}}"
            )
            raise invalid(text, field)
        samples[name] = 1 if name in _WHOLE_FIELDS else 0.5
    try:
        shown = pattern.format(**samples)
    except ValueError as error:
        raise invalid(f"{field} {pattern!r}: {error}", field) from None
    if not _NAME.fullmatch(shown) or len(shown) > NAME_CHARACTERS_MAX:
        text = (
            f"{field} {pattern!r} gives names such as {shown[:40]!r}: use letters, "
            "digits, '.', "
            "'_' and '-', not a"
        )
        raise invalid(f"{text} dot first, and at most {NAME_CHARACTERS_MAX} characters", field)
    measured = [name for name in samples if name.startswith("val_")]
    if measured and (not evaluate_every_steps or checkpoint_every_steps % evaluate_every_steps):
        text = (
            f"{field} uses {measured[0]}, so each checkpoint needs an evaluation: "
            "training.evaluateEverySteps"
        )
        raise invalid(f"{text} must be above 0 and divide checkpointEverySteps", field)
