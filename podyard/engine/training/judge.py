"""Metrics over all test examples, judged by all hosts: each has every n-th batch, and their sums
are summed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from podyard.base.errors import failed_precondition
from podyard.engine.collectives.transport import Vector
from podyard.engine.numerics.transform import mxu_numerics
from podyard.engine.training.input.pipeline import EvaluationInput
from podyard.engine.training.programs import Layouts, TrainState, trees_of
from podyard.engine.training.recipe import Input, Metrics, Ratio, Trainable
from podyard.engine.training.xla import compiler_options


def judging(data: Input) -> EvaluationInput:
    return EvaluationInput(
        data.test, min(data.test.count, data.judged_at_once), data.test_transforms
    )


class Judge:
    """`length`: numbers in a host's sums."""

    def __init__(self, model: Trainable, layouts: Layouts, data: Input, host_count: int) -> None:
        """Raises PodyardError FAILED_PRECONDITION for metrics that are neither scalars nor
        ratios."""
        self._layouts = layouts
        self._batches = judging(data)
        self._count = data.test.count
        self._host_count = host_count
        self._run = jax.jit(mxu_numerics(model.evaluate), compiler_options=compiler_options())
        params, statistics = (
            layout.unflatten(np.zeros(layout.length, np.float32))
            for layout in (layouts.params, layouts.statistics)
        )
        shapes = jax.eval_shape(model.evaluate, params, statistics, dict(next(iter(self._batches))))
        self._shapes = {name: _shape(name, shapes[name]) for name in sorted(shapes)}
        self.length = sum(2 * size if is_ratio else 1 for is_ratio, size in self._shapes.values())

    def sums(self, state: TrainState, host: int) -> Vector:
        """Over the batches of a host, [length]: of means times examples, and of both sides of
        ratios."""
        params, statistics = trees_of(self._layouts, state)
        total = np.zeros(self.length, np.float32)
        for batch in self._batches.share(host, self._host_count):
            size = len(next(iter(batch.values())))
            total += self._flat(self._run(params, statistics, dict(batch)), size)
        return total

    def metrics(self, total: Vector) -> dict[str, float]:
        """From the sums over all hosts, which may have more behind them."""
        found: dict[str, float] = {}
        at = 0
        for name, (is_ratio, size) in self._shapes.items():
            if is_ratio:
                above, below = total[at : at + size], total[at + size : at + 2 * size]
                counted = below != 0
                found[name] = (
                    float(np.mean(above[counted] / below[counted])) if counted.any() else 0.0
                )
                at += 2 * size
            else:
                found[name] = float(total[at]) / self._count
                at += 1
        return found

    def _flat(self, metrics: Metrics, size: int) -> Vector:
        parts: list[Any] = []
        for name, (is_ratio, _) in self._shapes.items():
            value = metrics[name]
            sides = (
                [value.above, value.below] if is_ratio else [np.asarray(value) * np.float32(size)]
            )
            parts += [np.ravel(side) for side in sides]
        return np.concatenate(parts).astype(np.float32)


def _shape(name: str, value: Any) -> tuple[bool, int]:
    """(is it a ratio, its size)"""
    if isinstance(value, Ratio) and value.above.shape == value.below.shape:
        return True, value.above.size
    if isinstance(value, Ratio) or getattr(value, "shape", None) != ():
        raise failed_precondition(f"the model's metric {name!r} is neither a scalar nor a ratio")
    return False, 1
