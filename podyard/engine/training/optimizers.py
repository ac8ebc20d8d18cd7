"""Optimizers over trees of parameters, as part of a program's step, and the schedules of their
rates.

Every replica computes them on the same summed gradient and gets the same bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-7  # Keras' default, which the reference models were trained with

# Steps done (a traced scalar) -> learning rate.
Schedule = Callable[[Any], Any]


class Optimizer(Protocol):
    """Its state is a tree of arrays. `is_elementwise`: each number of a tensor is moved by itself,
    so that all tensors may be one vector, and the state's trees of tensors as well."""

    @property
    def is_elementwise(self) -> bool: ...

    def start(self, params: Any) -> Any:
        """The state before the first step. It may depend on the parameters' shapes and numbers, not
        on the batch."""

    def update(self, params: Any, state: Any, gradient: Any, steps_done: Any, /) -> tuple[Any, Any]:
        """(params, state) after one more step. Parameters and gradient are of the same
        structure."""


class _Slots:
    """A state of trees shaped like the parameters, zero at the start, by name."""

    slots: ClassVar[tuple[str, ...]]

    def start(self, params: Any) -> Any:
        # Arrays of their own: a step takes over what it is given.
        return {
            slot: jax.tree.map(lambda param: np.zeros(param.shape, np.float32), params)
            for slot in self.slots
        }


@dataclasses.dataclass(frozen=True)
class Adam(_Slots):
    """Source: Kingma and Ba, arXiv 1412.6980, section 2, with the bias corrections folded into the
    rate."""

    slots: ClassVar[tuple[str, ...]] = ("first", "second")
    is_elementwise: ClassVar[bool] = True
    learning_rate: float

    def update(self, params: Any, state: Any, gradient: Any, steps_done: Any) -> tuple[Any, Any]:
        step = (steps_done + 1).astype(jnp.float32)
        rate = self.learning_rate * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)

        def one(param: Any, first: Any, second: Any, slope: Any) -> tuple[Any, ...]:
            first = BETA1 * first + (1 - BETA1) * slope
            second = BETA2 * second + (1 - BETA2) * slope * slope
            return param - rate * first / (jnp.sqrt(second) + EPSILON), first, second

        params, first, second = _by_tensor(one, params, state["first"], state["second"], gradient)
        return params, {"first": first, "second": second}


@dataclasses.dataclass(frozen=True)
class Sgd(_Slots):
    """Plain stochastic gradient descent: no state."""

    slots: ClassVar[tuple[str, ...]] = ()
    is_elementwise: ClassVar[bool] = True
    schedule: Schedule

    def update(self, params: Any, state: Any, gradient: Any, steps_done: Any) -> tuple[Any, Any]:
        rate = self.schedule(steps_done)
        return jax.tree.map(lambda param, slope: param - rate * slope, params, gradient), state


@dataclasses.dataclass(frozen=True)
class Momentum(_Slots):
    """SGD with momentum; `weight_decay` acts on kernels only, not on biases and the scales of
    normalizations.

    Source: Goyal et al., arXiv 1706.02677, sections 3 and 5.1.
    """

    slots: ClassVar[tuple[str, ...]] = ("velocity",)
    is_elementwise: ClassVar[bool] = False
    schedule: Schedule
    momentum: float
    weight_decay: float

    def update(self, params: Any, state: Any, gradient: Any, steps_done: Any) -> tuple[Any, Any]:
        rate = self.schedule(steps_done)

        def one(param: Any, velocity: Any, slope: Any) -> tuple[Any, ...]:
            if param.ndim > 1:
                slope = slope + self.weight_decay * param
            velocity = self.momentum * velocity + slope
            return param - rate * velocity, velocity

        params, velocity = _by_tensor(one, params, state["velocity"], gradient)
        return params, {"velocity": velocity}


@dataclasses.dataclass(frozen=True)
class Lars(_Slots):
    """Momentum with a separate rate for each kernel: `trust` times the norm of the kernel over that
    of its gradient. Biases and the scales of normalizations are moved as by `Momentum`.

    Source: You, Gitman and Ginsburg, arXiv 1708.03888, algorithm 1.
    """

    slots: ClassVar[tuple[str, ...]] = ("velocity",)
    is_elementwise: ClassVar[bool] = False
    schedule: Schedule
    momentum: float
    weight_decay: float
    trust: float = 0.001

    def update(self, params: Any, state: Any, gradient: Any, steps_done: Any) -> tuple[Any, Any]:
        rate = self.schedule(steps_done)

        def one(param: Any, velocity: Any, slope: Any) -> tuple[Any, ...]:
            own_rate = rate
            if param.ndim > 1:
                weight_norm, slope_norm = (
                    jnp.linalg.norm(param.ravel()),
                    jnp.linalg.norm(slope.ravel()),
                )
                below = slope_norm + self.weight_decay * weight_norm
                # A kernel or a gradient of zeros has no ratio: it is moved at the common rate.
                usable = (weight_norm > 0) & (slope_norm > 0)
                own_rate = rate * jnp.where(
                    usable, self.trust * weight_norm / jnp.where(usable, below, 1), 1
                )
                slope = slope + self.weight_decay * param
            velocity = self.momentum * velocity + own_rate * slope
            return param - velocity, velocity

        params, velocity = _by_tensor(one, params, state["velocity"], gradient)
        return params, {"velocity": velocity}


@dataclasses.dataclass(frozen=True)
class Scaled:
    """`optimizer` with its rates times `factor`: for optimizers whose rate multiplies what is taken
    off the parameters, as all above but `Lars` do; of that one the velocity keeps the old rate."""

    optimizer: Optimizer
    factor: float

    @property
    def is_elementwise(self) -> bool:
        return self.optimizer.is_elementwise

    def start(self, params: Any) -> Any:
        return self.optimizer.start(params)

    def update(self, params: Any, state: Any, gradient: Any, steps_done: Any) -> tuple[Any, Any]:
        moved, state = self.optimizer.update(params, state, gradient, steps_done)
        factor = jnp.float32(self.factor)
        return jax.tree.map(
            lambda before, after: before + factor * (after - before), params, moved
        ), state


def _by_tensor(update: Callable[..., tuple[Any, ...]], *trees: Any) -> tuple[Any, ...]:
    """`update` of the trees' tensors one by one; a tree for each of its results."""
    structure = jax.tree.structure(trees[0])
    results = [
        update(*tensors) for tensors in zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)
    ]
    return tuple(jax.tree.unflatten(structure, column) for column in zip(*results, strict=True))


def exponential_decay(start: float, factor: float, over_steps: int) -> Schedule:
    """start * factor^(steps done / over_steps), without stairs."""
    return lambda steps_done: start * factor ** (steps_done.astype(jnp.float32) / over_steps)


def warm_up_and_stairs(
    peak: float, warm_up_steps: float, stairs_at_steps: tuple[float, ...], factor: float = 0.1
) -> Schedule:
    """Rises in a line to `peak` in `warm_up_steps`, then is multiplied by `factor` at each of
    `stairs_at_steps`.

    Source: Goyal et al., arXiv 1706.02677, sections 2.2 and 5.1.
    """

    def rate(steps_done: Any) -> Any:
        step = steps_done.astype(jnp.float32)
        rising = jnp.minimum(1.0, (step + 1) / max(warm_up_steps, 1.0))
        stairs = sum((step >= at).astype(jnp.float32) for at in stairs_at_steps)
        return peak * rising * factor**stairs

    return rate
