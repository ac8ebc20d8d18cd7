"""TPUStrategy of programs for TensorFlow 1 that build graphs: Keras models in its scope."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from podyard.programs.graphs.keras_models import count_steps

if TYPE_CHECKING:
    from podyard.programs.tensorflow_system import TpuSystem


def strategy_of_graphs(tf: Any, system: TpuSystem, strategy: Any) -> Callable[..., Any]:
    """Return what makes a TPUStrategy: `strategy`, or in a graph one whose models run fused."""

    def make(tpu_cluster_resolver: Any = None, *args: Any, **named: Any) -> Any:
        if tf.executing_eagerly():
            return strategy(tpu_cluster_resolver, *args, **named)
        return GraphTpuStrategy(system, tpu_cluster_resolver)

    return make


class GraphTpuStrategy:
    """A strategy for `fit`, `evaluate` and `predict` of Keras. A model that is compiled in its
    scope runs with the global batch, and its steps are counted."""

    def __init__(self, system: TpuSystem, cluster_resolver: Any) -> None:
        system.say_what_was_found()
        self._system = system
        self.cluster_resolver = cluster_resolver
        self.num_replicas_in_sync = len(system.devices)

    @contextlib.contextmanager
    def scope(self) -> Iterator[GraphTpuStrategy]:
        model_class = import_module("keras.src.engine.training_v1").Model
        inner = model_class.compile

        def compile_counted(model: Any, *args: Any, **named: Any) -> None:
            inner(model, *args, **named)
            count_steps(model, self._system, self.num_replicas_in_sync)

        model_class.compile = compile_counted
        try:
            yield self
        finally:
            model_class.compile = inner
