"""A user's program for tests: a dense layer on points of three classes; small enough to be compiled
in no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from podyard.base.rng import Streams
from podyard.engine.training.input.source import Examples
from podyard.engine.training.optax_adapter import Optax
from podyard.engine.training.optimizers import Adam, Momentum, Optimizer, Sgd
from podyard.engine.training.recipe import Input, Metrics, Ratio, Tree, Variables

CENTRES = np.array([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]], np.float32)


class Tiny:
    def __init__(self, rate: float, optimizer: str, noise: float, data: str | None) -> None:
        self._rate, self._optimizer, self._noise = rate, optimizer, noise
        assert data is None or data.startswith("/")

    def input(self) -> Input:
        rng = np.random.default_rng(1)

        def examples(count: int) -> Examples:
            label = rng.integers(0, 3, count).astype(np.int32)
            point = CENTRES[label] + rng.normal(0, self._noise, (count, 2)).astype(np.float32)
            return Examples({"point": point, "label": label})

        return Input(examples(96), examples(50))

    def init(self, streams: Streams) -> Variables:
        kernel = np.full((2, 3), 0.1, np.float32)
        return Variables(
            {"dense": {"kernel": kernel, "bias": np.zeros(3, np.float32)}},
            {"seen": np.zeros(1, np.float32)},
        )

    def loss(
        self, params: Tree, statistics: Tree, batch: Mapping[str, Any], key: Any
    ) -> tuple[Any, tuple[Metrics, Tree]]:
        scores = _scores(params, batch)
        return _cross_entropy(scores, batch), (
            {"accuracy": _accuracy(scores, batch)},
            {"seen": statistics["seen"] + 1},
        )

    def evaluate(self, params: Tree, statistics: Tree, batch: Mapping[str, Any]) -> Metrics:
        scores = _scores(params, batch)
        named = (jnp.argmax(scores, 1)[:, None] == jnp.arange(3)).astype(jnp.float32)
        right = named * (jnp.argmax(scores, 1) == batch["label"])[:, None]
        precision = Ratio(right.sum(0), named.sum(0))
        return {
            "loss": _cross_entropy(scores, batch),
            "accuracy": _accuracy(scores, batch),
            "precision": precision,
        }

    def predict(self, params: Tree, statistics: Tree, batch: Mapping[str, Any]) -> Any:
        return jnp.argmax(_scores(params, batch), axis=1)

    def optimizer(self, global_batch: int) -> Optimizer:
        if self._optimizer == "optax":
            import optax

            return Optax(optax.adamw(self._rate))
        if self._optimizer == "momentum":
            return Momentum(lambda _: self._rate, 0.9, 0.0)
        return Adam(self._rate) if self._optimizer == "adam" else Sgd(lambda _: self._rate)


def build(
    rate: float = 0.1,
    optimizer: str = "sgd",
    noise: float = 0.3,
    data: str | None = None,
    fail: bool = False,
) -> Tiny:
    if fail:
        raise KeyError("nothing of this name")
    return Tiny(rate, optimizer, noise, data)


def incomplete() -> object:
    return object()


def _scores(params: Tree, batch: Mapping[str, Any]) -> Any:
    return batch["point"] @ params["dense"]["kernel"] + params["dense"]["bias"]


def _cross_entropy(scores: Any, batch: Mapping[str, Any]) -> Any:
    target = (batch["label"][:, None] == jnp.arange(3)).astype(jnp.float32)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(scores) * target, axis=1))


def _accuracy(scores: Any, batch: Mapping[str, Any]) -> Any:
    return jnp.mean((jnp.argmax(scores, axis=1) == batch["label"]).astype(jnp.float32))
