"""The compiled programs of a training run.

One program computes one core's shard. It is compiled once, for the shard's shape, and called for each core: how a
program rounds depends on its shapes, so nothing else would give the same bits for 1 and for 4 processes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from podyard.engine.collectives.transport import Vector
from podyard.engine.numerics.transform import mxu_numerics
from podyard.engine.training.optimizer import adam_update
from podyard.engine.training.recipe import Batch, Recipe, Tensors
from podyard.engine.training.xla import COMPILER_OPTIONS

# Behind the gradient in every core's vector: loss and accuracy, so that one sum carries all three.
METRIC_COUNT = 2


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each tensor lies in the flat vector, in order of names."""

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, tensors: Tensors) -> Layout:
        return cls({name: tuple(tensors[name].shape) for name in sorted(tensors)})

    @property
    def length(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def flatten(self, tensors: Tensors) -> Any:
        return jnp.concatenate([tensors[name].reshape(-1) for name in self.shapes])

    def unflatten(self, vector: Any) -> dict[str, Any]:
        tensors, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            tensors[name] = vector[start:stop].reshape(shape)
            start = stop
        return tensors


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that a checkpoint holds. `step` is the number of steps done."""

    step: int
    params: dict[str, Any]
    first_moments: dict[str, Any]
    second_moments: dict[str, Any]

    @classmethod
    def start(cls, params: dict[str, NDArray[np.float32]]) -> TrainState:
        zeros = {name: np.zeros_like(value) for name, value in params.items()}
        return cls(0, params, zeros, {name: value.copy() for name, value in zeros.items()})


def seed_words(seed: int) -> NDArray[np.uint32]:
    """A 64-bit seed as JAX's Threefry key."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def core_step(recipe: Recipe, layout: Layout) -> Callable[..., Any]:
    """f(params, batch, seed words [2], step, core) -> [gradient..., loss, accuracy] of one core's shard (means)."""

    def compute(params: Tensors, batch: Batch, words: Any, step: Any, core: Any) -> Any:
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        key = jax.random.fold_in(jax.random.fold_in(key, step), core)
        loss_and_slope = jax.value_and_grad(lambda p: recipe.loss(p, batch, key), has_aux=True)
        (loss, accuracy), gradient = loss_and_slope(params)
        return jnp.concatenate([layout.flatten(gradient), jnp.stack([loss, accuracy])])

    return mxu_numerics(compute)


def update_step(recipe: Recipe, layout: Layout, core_count: int) -> Callable[..., Any]:
    """f(params, first, second, summed vector, step) -> (params, first, second), the mean taken over `core_count`."""

    def compute(params: Any, first: Any, second: Any, total: Any, step: Any) -> Any:
        mean = total[: layout.length] / np.float32(core_count)
        return adam_update(params, first, second, layout.unflatten(mean), step, recipe.learning_rate)

    return compute


class TrainPrograms:
    """The compiled core program and update program of a run."""

    def __init__(self, recipe: Recipe, params: Tensors, shard: Batch, core_count: int) -> None:
        self.layout = Layout.of(params)
        scalars = (seed_words(0), np.uint32(0), np.uint32(0))
        core_jit = jax.jit(core_step(recipe, self.layout), compiler_options=COMPILER_OPTIONS)
        traced = core_jit.trace(dict(params), dict(shard), *scalars)
        self.core_jaxpr = traced.jaxpr
        self._core = traced.lower().compile()
        total = np.zeros(self.layout.length + METRIC_COUNT, np.float32)
        update_jit = jax.jit(
            update_step(recipe, self.layout, core_count), donate_argnums=(0, 1, 2), compiler_options=COMPILER_OPTIONS
        )
        self._update = update_jit.lower(dict(params), dict(params), dict(params), total, np.float32(0)).compile()

    def core_vector(self, params: Tensors, shard: Batch, words: NDArray[np.uint32], step: int, core: int) -> Vector:
        """One core's [gradient..., loss, accuracy] of 1-based `step`; read-only, valid as long as it is referred to."""
        return np.asarray(self._core(params, dict(shard), words, np.uint32(step), np.uint32(core)))

    def update(self, state: TrainState, total: Vector) -> TrainState:
        """The state after one more step. The given state's arrays are used up."""
        step = state.step + 1
        params, first, second = self._update(
            state.params, state.first_moments, state.second_moments, total, np.float32(step)
        )
        return TrainState(step, params, first, second)


def evaluate(recipe: Recipe, params: Tensors, batch: Batch) -> tuple[float, float]:
    """(mean loss in nats, accuracy) over `batch` in one program."""
    run = jax.jit(mxu_numerics(recipe.evaluate), compiler_options=COMPILER_OPTIONS)
    loss, accuracy = run(dict(params), dict(batch))
    return float(loss), float(accuracy)


def predict(recipe: Recipe, params: Tensors, batch: Batch) -> NDArray[Any]:
    """The recipe's answers for `batch`, one per example."""
    run = jax.jit(mxu_numerics(recipe.predict), compiler_options=COMPILER_OPTIONS)
    return np.asarray(run(dict(params), dict(batch)))
