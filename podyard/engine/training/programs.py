"""The compiled programs of a training run.

One program computes one shard. It is compiled once, for the shard's shape, and called for each
core: how a program rounds depends on its shapes, so nothing else would give the same bits for 1 and
for 4 processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from podyard.base.rng import Streams
from podyard.engine.collectives.transport import Vector
from podyard.engine.numerics.transform import mxu_numerics
from podyard.engine.training.layout import ParameterLayout, SlotLayout
from podyard.engine.training.optimizers import Optimizer
from podyard.engine.training.order import Position
from podyard.engine.training.recipe import Batch, Trainable
from podyard.engine.training.xla import compile_turn, compiler_options

LOSS = "loss"


@dataclasses.dataclass(frozen=True)
class TrainState:
    """The state that training goes on from. `step`: the number of steps done, which have come to
    `position` in the data. `params` and `statistics` are flat float32 vectors, `slots` is the
    optimizer's state."""

    step: int
    params: Any
    statistics: Any
    slots: Any
    position: Position = dataclasses.field(default_factory=Position)


@dataclasses.dataclass(frozen=True)
class Layouts:
    """Of a model's parameters and statistics, and of its optimizer's state."""

    params: ParameterLayout
    statistics: ParameterLayout
    slots: SlotLayout

    def start(self, model: Trainable, seed: int, optimizer: Optimizer) -> TrainState:
        """Step 0, from the model's initial numbers."""
        variables = model.init(Streams(seed))
        params = self.params.flatten(variables.params)
        slots = optimizer.start(
            params if optimizer.is_elementwise else self.params.unflatten(params)
        )
        return TrainState(0, params, self.statistics.flatten(variables.statistics), slots)


def layouts_of(model: Trainable, seed: int) -> Layouts:
    variables = model.init(Streams(seed))
    params = ParameterLayout.of(variables.params)
    # What an optimizer remembers does not depend on the batch that it is made for.
    return Layouts(
        params, ParameterLayout.of(variables.statistics), SlotLayout.of(model.optimizer(1), params)
    )


def seed_words(seed: int) -> NDArray[np.uint32]:
    """A 64-bit seed as JAX's Threefry key."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def shard_step(model: Trainable, layouts: Layouts, metrics: tuple[str, ...]) -> Callable[..., Any]:
    """f(params [n], statistics [m], batch, seed words [2], step, shard) -> [gradient...,
    statistics..., metrics...] of
    a shard of the batch (means)."""

    def compute(
        params: Any, statistics: Any, batch: Batch, words: Any, step: Any, shard: Any
    ) -> Any:
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        key = jax.random.fold_in(jax.random.fold_in(key, step), shard)
        moved = layouts.statistics.unflatten(statistics)
        loss_and_slope = jax.value_and_grad(
            lambda tree: model.loss(tree, moved, batch, key), has_aux=True
        )
        # By tensors, not by the vector: the gradient of cutting a vector up pads each tensor to its
        # full length.
        (loss, (told, after)), gradient = loss_and_slope(layouts.params.unflatten(params))
        values = {**told, LOSS: loss}
        leaves = [*jax.tree.leaves(gradient), *jax.tree.leaves(after)]
        told_last = jnp.stack([values[name].astype(jnp.float32) for name in metrics])
        return jnp.concatenate([*(leaf.reshape(-1) for leaf in leaves), told_last])

    return mxu_numerics(compute, mode="fast")


def update_step(optimizer: Optimizer, layouts: Layouts, shard_count: int) -> Callable[..., Any]:
    """f(params, slots, summed vector, steps done) -> (params, statistics, slots), the means taken
    over all shards."""
    layout = layouts.params

    def compute(params: Any, slots: Any, total: Any, steps_done: Any) -> Any:
        mean = total / np.float32(shard_count)
        gradient = mean[: layout.length]
        statistics = mean[layout.length : layout.length + layouts.statistics.length]
        if optimizer.is_elementwise:
            # One loop over all numbers, which also compiles several times faster than a loop per
            # tensor.
            moved, after = optimizer.update(params, slots, gradient, steps_done)
            return moved, statistics, after
        moved, after = optimizer.update(
            layout.unflatten(params), slots, layout.unflatten(gradient), steps_done
        )
        return (
            jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(moved)]),
            statistics,
            after,
        )

    return compute


def whole_step(model: Trainable, state: Any, batch: Batch, words: Any) -> tuple[Any, Any]:
    """(state, metrics) after one more step of the whole batch, as a user writes it. `state` is
    {"params", "opt", "step"}, with "statistics" where a model has some; see `RecipeProgram`."""
    key = jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), state["step"])
    slope = jax.value_and_grad(model.loss, has_aux=True)
    (loss, (metrics, statistics)), gradient = slope(
        state["params"], state.get("statistics", {}), batch, key
    )
    optimizer = model.optimizer(jax.tree.leaves(batch)[0].shape[0])
    params, slots = optimizer.update(state["params"], state["opt"], gradient, state["step"])
    after = {**state, "params": params, "opt": slots, "step": state["step"] + 1}
    if "statistics" in state:
        after["statistics"] = statistics
    return after, {**metrics, "loss": loss}


class TrainPrograms:
    """The compiled shard program and update program of a run. `extra`: numbers that the sum has
    beyond a shard's."""

    def __init__(
        self,
        model: Trainable,
        layouts: Layouts,
        optimizer: Optimizer,
        shard: Batch,
        shard_count: int,
        extra: int,
        compilation_cache: str | None,
    ) -> None:
        params = np.zeros(layouts.params.length, np.float32)
        statistics = np.zeros(layouts.statistics.length, np.float32)
        self.metrics = _metric_names(model, layouts, shard)
        self.length = layouts.params.length + layouts.statistics.length + len(self.metrics)
        shard_jit = jax.jit(
            shard_step(model, layouts, self.metrics), compiler_options=compiler_options()
        )
        lowered = shard_jit.lower(
            params, statistics, dict(shard), seed_words(0), np.uint32(0), np.uint32(0)
        )
        self._shard = _compile(lowered, compilation_cache)
        update_jit = jax.jit(
            update_step(optimizer, layouts, shard_count),
            donate_argnums=(0, 1),
            compiler_options=compiler_options(),
        )
        slots = jax.tree.unflatten(layouts.slots.tree, list(layouts.slots.leaves.values()))
        lowered = update_jit.lower(
            params, slots, np.zeros(self.length + extra, np.float32), np.int32(0)
        )
        self._update = _compile(lowered, compilation_cache)

    def shard_vector(
        self, state: TrainState, batch: Batch, words: NDArray[np.uint32], step: int, shard: int
    ) -> Vector:
        """A shard's [gradient..., statistics..., metrics...] of 1-based `step`, read-only."""
        arguments = (
            state.params,
            state.statistics,
            dict(batch),
            words,
            np.uint32(step),
            np.uint32(shard),
        )
        return np.asarray(self._shard(*arguments))

    def update(self, state: TrainState, total: Vector, position: Position) -> TrainState:
        """The state after one more step, which has come to `position`. The given parameters and
        slots are used up."""
        # Read where it is, in a window that others share: nobody writes there before the next
        # vectors of all are ready, and those need the parameters that come out of this.
        given = jax.dlpack.from_dlpack(total)
        params, statistics, slots = self._update(
            state.params, state.slots, given, np.int32(state.step)
        )
        return TrainState(state.step + 1, params, statistics, slots, position)


def _metric_names(model: Trainable, layouts: Layouts, shard: Batch) -> tuple[str, ...]:
    """The loss, and what else a model tells of a step, in order."""
    params = layouts.params.unflatten(np.zeros(layouts.params.length, np.float32))
    statistics = layouts.statistics.unflatten(np.zeros(layouts.statistics.length, np.float32))
    key = jax.random.key(0, impl="threefry2x32")
    _, (metrics, _) = jax.eval_shape(model.loss, params, statistics, dict(shard), key)
    return (LOSS, *sorted(name for name in metrics if name != LOSS))


def _compile(lowered: Any, compilation_cache: str | None) -> Any:
    with compile_turn(compilation_cache, lowered.as_text()):
        return lowered.compile()


def predict(
    model: Trainable, layouts: Layouts, state: TrainState, batches: Iterable[Batch]
) -> NDArray[Any]:
    """The model's answers for all examples, one per example."""
    run = jax.jit(mxu_numerics(model.predict), compiler_options=compiler_options())
    params, statistics = trees_of(layouts, state)
    return np.concatenate([np.asarray(run(params, statistics, dict(batch))) for batch in batches])


def trees_of(layouts: Layouts, state: TrainState) -> tuple[Any, Any]:
    """(parameters, statistics) as the model has them, of numpy arrays."""
    params, statistics = np.asarray(state.params), np.asarray(state.statistics)
    return layouts.params.unflatten(params), layouts.statistics.unflatten(statistics)
