"""From a model's parts to its training step, its shapes and its start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from podyard.base.errors import failed_precondition, invalid
from podyard.base.rng import Streams
from podyard.engine.recipes.tensors import Feature, Tensor, draw, init_tensor
from podyard.engine.training.layout import abstract
from podyard.engine.training.optimizers import Optimizer
from podyard.engine.training.programs import whole_step
from podyard.engine.training.recipe import Input, Variables

# (params, statistics, batch, key) -> (loss, (metrics, statistics after the batch))
Loss = Callable[[Any, Any, Any, Any], tuple[Any, tuple[Mapping[str, Any], Any]]]
# (params, statistics, batch) -> metrics, "loss" among them, or answers.
Judge = Callable[[Any, Any, Any], Any]


def _not_to_be_judged(_params: Any, _statistics: Any, _batch: Any) -> Any:
    raise failed_precondition(
        "this model is a program for estimates: it has no evaluation and no answers"
    )


def _no_data() -> Input:
    raise failed_precondition("this model is a program for estimates: it has no data to train with")


@dataclasses.dataclass(frozen=True)
class Model:
    """`params` and `statistics` are trees of Tensor, the one moved by the optimizer, the other by
    `loss`. A model is `Trainable` as far as it has an input and says how it is judged; all have a
    step for estimates."""

    params: Any
    features: Mapping[str, Feature]
    loss: Loss
    # Made for a global batch, because learning rates and their schedules depend on it.
    optimizer: Callable[[int], Optimizer]
    example_count: int
    statistics: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    evaluate: Judge = _not_to_be_judged
    predict: Judge = _not_to_be_judged
    input: Callable[[], Input] = _no_data

    def init(self, streams: Streams) -> Variables:
        """Return what training begins with."""
        return Variables(
            *(
                _map_named(lambda name, tensor: init_tensor(streams, name, tensor), tree)
                for tree in (self.params, dict(self.statistics))
            )
        )

    def step(self, state: Any, batch: Any, words: Any) -> tuple[Any, Any]:
        """(state, metrics) after one more step; see RecipeProgram."""
        return whole_step(self, state, batch, words)

    def abstract_arguments(self, global_batch: int) -> tuple[Any, Any, Any]:
        if isinstance(global_batch, bool) or not isinstance(global_batch, int) or global_batch < 1:
            raise invalid(
                f"the global batch is a whole number of at least 1, not {global_batch!r}",
                "globalBatch",
            )
        state = self._state(
            lambda _name, tensor: abstract(tensor.shape, jnp.float32),
            lambda optimizer, params: jax.eval_shape(optimizer.start, params),
            abstract((), jnp.int32),
        )
        batch = {
            name: abstract((global_batch, *feature.shape), feature.dtype)
            for name, feature in self.features.items()
        }
        return state, batch, abstract((2,), jnp.uint32)

    def first_state(self, streams: Streams) -> Any:
        return self._state(
            lambda name, tensor: init_tensor(streams, name, tensor),
            lambda optimizer, params: jax.tree.map(np.asarray, optimizer.start(params)),
            np.int32(0),
        )

    def sample_batch(self, streams: Streams, batch_size: int) -> dict[str, Any]:
        return {
            name: draw(
                streams,
                f"batch/{name}",
                (batch_size, *feature.shape),
                feature.dtype,
                feature.values,
            )
            for name, feature in self.features.items()
        }

    def _state(
        self,
        tensor_of: Callable[[str, Tensor], Any],
        start: Callable[[Optimizer, Any], Any],
        step: Any,
    ) -> Any:
        params = _map_named(tensor_of, self.params)
        # What an optimizer remembers does not depend on the batch.
        state = {"params": params, "opt": start(self.optimizer(1), params), "step": step}
        if self.statistics:
            state["statistics"] = _map_named(tensor_of, self.statistics)
        return state


def _map_named(make: Callable[[str, Tensor], Any], tree: Any) -> Any:
    return jax.tree_util.tree_map_with_path(
        lambda path, tensor: make(jax.tree_util.keystr(path, simple=True, separator="/"), tensor),
        tree,
    )
