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
from podyard.engine.training.xla import COMPILER_OPTIONS, compile_turn

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

    def flatten(self, tensors: Tensors) -> Vector:
        """Numpy arrays -> one vector [length]."""
        return np.concatenate([np.asarray(tensors[name], np.float32).reshape(-1) for name in self.shapes])

    def unflatten(self, vector: Any) -> dict[str, Any]:
        """A vector, numpy's or JAX's, -> views (slices) by name."""
        tensors, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            tensors[name] = vector[start:stop].reshape(shape)
            start = stop
        return tensors


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that a checkpoint holds: flat float32 vectors [layout.length]. `step`: the number of steps done."""

    step: int
    layout: Layout
    params: Any
    first_moments: Any
    second_moments: Any

    @classmethod
    def start(cls, params: Tensors) -> TrainState:
        """Step 0, from a recipe's initial numpy arrays."""
        layout = Layout.of(params)
        return cls(
            0, layout, layout.flatten(params), np.zeros(layout.length, np.float32), np.zeros(layout.length, np.float32)
        )

    def tensors(self) -> dict[str, dict[str, NDArray[np.float32]]]:
        """Numpy views by group and name."""
        groups = {"params": self.params, "adam/first": self.first_moments, "adam/second": self.second_moments}
        return {group: self.layout.unflatten(np.asarray(vector)) for group, vector in groups.items()}


def seed_words(seed: int) -> NDArray[np.uint32]:
    """A 64-bit seed as JAX's Threefry key."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def core_step(recipe: Recipe, layout: Layout) -> Callable[..., Any]:
    """f(params [n], batch, seed words [2], step, core) -> [gradient..., loss, accuracy] of a core's shard (means)."""

    def compute(params: Any, batch: Batch, words: Any, step: Any, core: Any) -> Any:
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        key = jax.random.fold_in(jax.random.fold_in(key, step), core)
        loss_and_slope = jax.value_and_grad(lambda tensors: recipe.loss(tensors, batch, key), has_aux=True)
        # By tensors, not by the vector: the gradient of cutting a vector up pads each tensor to its full length.
        (loss, accuracy), gradient = loss_and_slope(layout.unflatten(params))
        return jnp.concatenate([*(gradient[name].reshape(-1) for name in layout.shapes), jnp.stack([loss, accuracy])])

    return mxu_numerics(compute)


def update_step(recipe: Recipe, core_count: int) -> Callable[..., Any]:
    """f(params, first, second, summed vector, step) -> (params, first, second), the mean taken over `core_count`."""

    def compute(params: Any, first: Any, second: Any, total: Any, step: Any) -> Any:
        mean = total[:-METRIC_COUNT] / np.float32(core_count)
        return adam_update(params, first, second, mean, step, recipe.learning_rate)

    return compute


class TrainPrograms:
    """The compiled core program and update program of a run."""

    def __init__(
        self, recipe: Recipe, layout: Layout, shard: Batch, core_count: int, compilation_cache: str | None
    ) -> None:
        params = np.zeros(layout.length, np.float32)
        core_jit = jax.jit(core_step(recipe, layout), compiler_options=COMPILER_OPTIONS)
        traced = core_jit.trace(params, dict(shard), seed_words(0), np.uint32(0), np.uint32(0))
        self.core_jaxpr = traced.jaxpr
        self._core = _compile(traced.lower(), compilation_cache)
        total = np.zeros(layout.length + METRIC_COUNT, np.float32)
        update_jit = jax.jit(
            update_step(recipe, core_count), donate_argnums=(0, 1, 2), compiler_options=COMPILER_OPTIONS
        )
        lowered = update_jit.lower(params, params, params, total, np.float32(0))
        self._update = _compile(lowered, compilation_cache)

    def core_vector(self, params: Any, shard: Batch, words: NDArray[np.uint32], step: int, core: int) -> Vector:
        """One core's [gradient..., loss, accuracy] of 1-based `step`, read-only."""
        return np.asarray(self._core(params, dict(shard), words, np.uint32(step), np.uint32(core)))

    def update(self, state: TrainState, total: Vector) -> TrainState:
        """The state after one more step. The given state's vectors are used up."""
        step = state.step + 1
        params, first, second = self._update(
            state.params, state.first_moments, state.second_moments, total, np.float32(step)
        )
        return TrainState(step, state.layout, params, first, second)


def _compile(lowered: Any, compilation_cache: str | None) -> Any:
    with compile_turn(compilation_cache, lowered.as_text()):
        return lowered.compile()


def evaluate(recipe: Recipe, params: Tensors, batch: Batch) -> tuple[float, float]:
    """(mean loss in nats, accuracy) over `batch` in one program."""
    run = jax.jit(mxu_numerics(recipe.evaluate), compiler_options=COMPILER_OPTIONS)
    loss, accuracy = run(dict(params), dict(batch))
    return float(loss), float(accuracy)


def predict(recipe: Recipe, params: Tensors, batch: Batch) -> NDArray[Any]:
    """The recipe's answers for `batch`, one per example."""
    run = jax.jit(mxu_numerics(recipe.predict), compiler_options=COMPILER_OPTIONS)
    return np.asarray(run(dict(params), dict(batch)))
