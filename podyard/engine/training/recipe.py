"""The interface between a model and the training runtime: a small protocol that recipes and users'
own modules implement."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from podyard.base.rng import Streams
from podyard.engine.training.input.augment import Transform
from podyard.engine.training.input.source import Examples
from podyard.engine.training.optimizers import Optimizer

# Nested dicts of arrays: numpy outside of compiled programs, JAX inside of them.
Tree = Any
# Feature name -> array whose leading axis counts examples.
Batch = Mapping[str, Any]
# Name -> float32 scalar, the mean over a batch; of evaluations also `Ratio`.
Metrics = Mapping[str, Any]


class Ratio(NamedTuple):
    """A metric that is not a mean over examples: both sides [k] are summed over all batches, and it
    is the mean of
    above / below over those k whose `below` is not 0. Precision over classes, for example."""

    above: Any
    below: Any


@dataclasses.dataclass(frozen=True)
class Variables:
    """Float32 trees: `params` are moved by the optimizer, `statistics` (running means of batches)
    by the loss."""

    params: Tree
    statistics: Tree


@dataclasses.dataclass(frozen=True)
class Input:
    """Examples to train with and to judge by, none in both; transforms are applied batch by batch.
    `judged_at_once`: in one program; more take memory and no less time."""

    train: Examples
    test: Examples
    train_transforms: Sequence[Transform] = ()
    test_transforms: Sequence[Transform] = ()
    judged_at_once: int = 1000


class Trainable(Protocol):
    """`loss`, `evaluate` and `predict` are traced by JAX; they must be pure. Losses are means over
    the batch in nats.

    `loss` gives (loss, (metrics, statistics after the batch)), for training: with dropout drawn
    from `key`, normalized by the batch. `evaluate` gives metrics, "loss" among them, and `predict`
    an answer per example, both without chance.
    """

    def input(self) -> Input: ...
    def init(self, streams: Streams, /) -> Variables: ...
    def loss(
        self, params: Tree, statistics: Tree, batch: Batch, key: Any, /
    ) -> tuple[Any, tuple[Metrics, Tree]]: ...
    def evaluate(self, params: Tree, statistics: Tree, batch: Batch, /) -> Metrics: ...
    def predict(self, params: Tree, statistics: Tree, batch: Batch, /) -> Any: ...
    def optimizer(self, global_batch: int, /) -> Optimizer: ...
