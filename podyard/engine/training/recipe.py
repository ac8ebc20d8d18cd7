"""What a recipe gives to the training runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from podyard.base.rng import Streams

# Tensor name ("conv1/kernel") -> array: numpy outside of compiled programs, JAX inside of them.
Tensors = Mapping[str, Any]
# Feature name -> array whose leading axis counts examples.
Batch = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Numpy arrays by feature; no example is in both parts."""

    train: Mapping[str, NDArray[Any]]
    test: Mapping[str, NDArray[Any]]

    @property
    def train_count(self) -> int:
        return len(next(iter(self.train.values())))

    @property
    def test_count(self) -> int:
        return len(next(iter(self.test.values())))


class Recipe(Protocol):
    """A model with its data. `loss`, `evaluate` and `predict` are traced by JAX; they must be pure.

    `loss` and `evaluate` return the means over the batch of cross entropy (nats) and of correct answers (0 to 1).
    """

    @property
    def learning_rate(self) -> float: ...
    def data(self) -> Dataset: ...
    def init(self, streams: Streams) -> dict[str, NDArray[np.float32]]: ...
    def loss(self, params: Tensors, batch: Batch, dropout_key: Any) -> tuple[Any, Any]: ...
    def evaluate(self, params: Tensors, batch: Batch) -> tuple[Any, Any]: ...
    def predict(self, params: Tensors, batch: Batch) -> Any: ...
