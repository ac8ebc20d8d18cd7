"""Keras models that `keras_to_tpu_model` gives to the TPU: their steps are counted and priced.

A model runs as on a CPU, with the global batch as one replica, and Keras fetches the shapes of what
each step got. A step's module is that of a copy of the model with a replica's part of the batch, as
TensorFlow 1 makes one (`keras.models.clone_model`) for a TPU. The copy is in a separate graph,
with a fixed learning phase, and with loops and branches as XLA compiles them.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from podyard.programs.graphs.graph_steps import add_step
from podyard.programs.graphs.subgraph import Subgraph, as_xla_compiles

if TYPE_CHECKING:
    from podyard.programs.records import ModuleRuns
    from podyard.programs.tensorflow_system import TpuSystem

MODES = ("train", "test", "predict")
_SLOTS = ("_slots", "_non_slot_dict", "_deferred_slot_restorations")  # of a tf.train.Optimizer


class TPUDistributionStrategy:
    """The TPU that `keras_to_tpu_model` is given."""

    def __init__(self, tpu_cluster_resolver: Any = None, using_single_core: bool = False) -> None:
        self.tpu_cluster_resolver = tpu_cluster_resolver
        self.using_single_core = using_single_core


def give_to_tpu(model: Any, strategy: Any, system: TpuSystem) -> Any:
    """Return the model as `keras_to_tpu_model` does: it has `sync_to_cpu`, and `fit` and `evaluate`
    take functions that return a dataset. A TPU takes any batch, whatever the model's inputs say."""
    system.say_what_was_found()
    replicas = 1 if getattr(strategy, "using_single_core", False) else len(system.devices)
    own = model
    if replicas > 1 and any(one.shape[0] for one in model.inputs):
        own = _of_global_batch(system, model, replicas)

    def sync_to_cpu() -> Any:
        if own is not model:
            model.set_weights(own.get_weights())
        return model

    own.sync_to_cpu = sync_to_cpu
    for name in ("fit", "evaluate"):
        setattr(own, name, _taking_functions(getattr(own, name)))
    count_steps(own, system, replicas)
    return own


def count_steps(model: Any, system: TpuSystem, replicas: int) -> None:
    """Count what the model runs from now on, once however often this is called."""
    for mode in MODES if system.steps is not None else ():
        name = f"_make_{mode}_function"
        if name not in vars(model):
            counter = _StepCounter(system, model, mode, replicas)
            setattr(model, name, counter.counting(getattr(model, name)))


def _of_global_batch(system: TpuSystem, model: Any, replicas: int) -> Any:
    """Return a copy of a model with inputs for all cores: for any batch, but with state that each
    example keeps the model's batch is that of a core."""
    keras = system.tf.keras
    is_stateful = any(getattr(layer, "stateful", False) for layer in model.layers)

    def shape_of(shape: Any) -> tuple[int | None, ...]:
        return (shape[0] * replicas if is_stateful and shape[0] else None, *shape[1:])

    def copy_of(layer: Any) -> Any:
        config = layer.get_config()
        if shape := config.get("batch_input_shape"):
            config["batch_input_shape"] = shape_of(shape)
        return type(layer).from_config(config)

    inputs = [
        keras.Input(batch_shape=shape_of(one.shape.as_list()), dtype=one.dtype)
        for one in model.inputs
    ]
    own = keras.models.clone_model(model, input_tensors=inputs, clone_function=copy_of)
    own.set_weights(model.get_weights())
    if model.optimizer is not None:
        own.compile(**_compile_arguments(model))
    return own


def _compile_arguments(model: Any) -> dict[str, Any]:
    """Return what the model was compiled with, in objects without variables."""
    arguments = model._get_compile_args()
    return {
        "optimizer": _copy_of(model.optimizer),
        **{name: arguments[name] for name in ("loss", "loss_weights")},
        **{name: _copies(arguments[name]) for name in ("metrics", "weighted_metrics")},
    }


def _taking_functions(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any = None, *args: Any, **named: Any) -> Any:
        if callable(named.get("validation_data")):
            named["validation_data"] = named["validation_data"]()
        return method(x() if callable(x) else x, *args, **named)

    return call


@dataclasses.dataclass
class _StepCounter:
    """Counts the runs of one of a model's functions, by the shapes that it ran with."""

    system: TpuSystem
    model: Any
    mode: str
    replicas: int

    def counting(self, make: Callable[[], None]) -> Callable[[], None]:
        """Return Keras' method that makes the function, which is counted from then on."""
        name = f"{self.mode}_function"

        def make_function() -> None:
            before = getattr(self.model, name, None)
            make()
            if (function := getattr(self.model, name)) is not before:
                self._count(function)

        return make_function

    def _count(self, function: Any) -> None:
        """Let Keras fetch the shapes of each run."""
        tf, modules = self.system.tf, dict[tuple[int, ...], "ModuleRuns"]()
        inputs = list(self.model._feed_inputs)
        targets = [] if self.mode == "predict" else list(self.model._feed_targets)
        feeds = [*inputs, *targets]

        def count(extents: Any) -> None:
            key = tuple(int(extent) for extent in extents)
            if key not in modules:
                modules[key] = self._module(feeds, len(inputs), key)
            modules[key].count()

        with feeds[0].graph.as_default():
            shapes = tf.concat([tf.shape(one) for one in feeds], 0)
        function.fetches.append(shapes)
        function.fetch_callbacks[shapes] = count

    def _module(self, feeds: Sequence[Any], inputs: int, extents: Sequence[int]) -> ModuleRuns:
        tf, rest, specs = self.system.tf, list(extents), []
        for feed in feeds:
            rank = feed.shape.rank
            specs.append(tf.TensorSpec(rest[:rank], feed.dtype))
            rest = rest[rank:]

        def build(tensors: Sequence[Any]) -> list[Any]:
            specs = [tf.TensorSpec(one.shape, one.dtype) for one in tensors]
            step: Subgraph | None = steps[0] if steps else None
            if step is None:
                step = self._copy(specs, inputs)
                steps.append(step)
            return step.build(tensors)

        steps: list[Subgraph] = []
        name = f"{self.mode}_step"
        return add_step(self.system, name, build, (specs,), extents[0], self.replicas)

    def _copy(self, specs: Sequence[Any], inputs: int) -> Subgraph:
        """Return the step of a copy of the model that gets tensors of these shapes."""
        tf, model = self.system.tf, self.model
        v1, keras = tf.compat.v1, tf.keras
        with as_xla_compiles(tf), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with keras.backend.learning_phase_scope(int(self.mode == "train")):
                feeds = [v1.placeholder(one.dtype, one.shape) for one in specs]
                own = keras.models.clone_model(model, input_tensors=feeds[:inputs])
                gradients: list[str] = []
                if self.mode != "predict":
                    self._compile(own, feeds[inputs:], gradients)
                getattr(own, f"_make_{self.mode}_function")()
                function = getattr(own, f"{self.mode}_function")
        return Subgraph(tf, feeds, function.outputs, function.updates_op, gradients)

    def _compile(self, own: Any, targets: Sequence[Any], gradients: list[str]) -> None:
        own.compile(**_compile_arguments(self.model), target_tensors=targets)
        self._mark(getattr(own.optimizer, "optimizer", own.optimizer), gradients)

    def _mark(self, optimizer: Any, gradients: list[str]) -> None:
        """Let the optimizer put an identity behind each gradient, and its name into the list. A sum
        over replicas is dense."""
        tf = self.system.tf

        def mark(gradient: Any) -> Any:
            if gradient is None:
                return None
            sum_place = tf.identity(tf.convert_to_tensor(gradient))
            gradients.append(sum_place.op.name)
            return sum_place

        for name in ("compute_gradients", "get_gradients"):
            if (compute := getattr(optimizer, name, None)) is None:
                continue

            def compute_marked(*args: Any, **named: Any) -> list[Any]:
                return [
                    (mark(one[0]), one[1]) if isinstance(one, tuple) else mark(one)
                    for one in compute(*args, **named)
                ]

            setattr(optimizer, name, compute_marked)
            return


def _copy_of(optimizer: Any) -> Any:
    """Return the optimizer without its variables; one of `tf.train` as Keras gets it."""
    inner = getattr(optimizer, "optimizer", None)
    if inner is None:
        return type(optimizer).from_config(optimizer.get_config())
    own = copy.copy(inner)
    for name in _SLOTS:
        setattr(own, name, {})
    return own


def _copies(metrics: Any) -> Any:
    """Return metrics as the program has named them; objects have variables of the program's
    graph."""
    if isinstance(metrics, dict):
        return {name: _copies(one) for name, one in metrics.items()}
    if isinstance(metrics, (list, tuple)):
        return [_copies(one) for one in metrics]
    return (
        type(metrics).from_config(metrics.get_config()) if hasattr(metrics, "result") else metrics
    )
