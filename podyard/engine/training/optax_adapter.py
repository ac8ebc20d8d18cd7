"""Optimizers of optax, https://github.com/google-deepmind/optax, for the models that want them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol

import jax


class Transformation(Protocol):
    """A transformation of gradients, as `optax.adamw(...)` and the like give it."""

    @property
    def init(self) -> Any: ...
    @property
    def update(self) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Optax:
    """`transformation` as an `Optimizer`: its whole state is saved, its own count of steps as
    well."""

    is_elementwise: ClassVar[bool] = False
    transformation: Transformation

    def start(self, params: Any) -> Any:
        return self.transformation.init(params)

    def update(self, params: Any, state: Any, gradient: Any, _steps_done: Any) -> tuple[Any, Any]:
        updates, state = self.transformation.update(gradient, state, params)
        return jax.tree.map(lambda param, change: param + change, params, updates), state
