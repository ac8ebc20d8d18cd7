"""TPUEstimator: its TPU is here, and its steps are priced.

It runs as on a CPU, with the global batch as one replica. Its model function is traced a second
time as a replica of the slice has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from podyard.programs.graphs.graph_steps import add_step, counting_hook

if TYPE_CHECKING:
    from podyard.programs.records import ModuleRuns
    from podyard.programs.tensorflow_system import TpuSystem

BATCH_SIZES = ("train_batch_size", "eval_batch_size", "predict_batch_size")
_STEPS = {"train": "train_step", "eval": "eval_step", "infer": "predict_step"}
_HOOKS = {"train": "training_hooks", "eval": "evaluation_hooks", "infer": "prediction_hooks"}


def apply_to(estimators: Any, system: TpuSystem) -> None:
    """Change TensorFlow's module that has TPUEstimator."""
    make, configure = estimators.TPUEstimator.__init__, estimators.tpu_config.RunConfig.__init__

    # In place: TensorFlow's methods name their own class where they call those above it.
    def make_fused(
        self: Any,
        model_fn: Any = None,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        use_tpu: bool = True,
        *args: Any,
        **named: Any,
    ) -> None:
        if use_tpu:
            system.say_what_was_found()
            sizes = {**dict(zip(BATCH_SIZES, args, strict=False)), **named}
            for name in BATCH_SIZES:
                if (size := sizes.get(name)) and size % len(system.devices):
                    raise ValueError(uneven(name, size, len(system.devices)))
        if callable(model_fn):
            model_fn, params = _model_of(system, model_fn, use_tpu), params or {}
        make(self, model_fn, model_dir, config, params, False, *args, **named)

    def configure_here(
        self: Any,
        tpu_config: Any = None,
        evaluation_master: Any = None,  # noqa: ARG001
        master: Any = None,  # noqa: ARG001
        cluster: Any = None,  # noqa: ARG001
        **named: Any,
    ) -> None:
        configure(self, tpu_config, **named)

    estimators.TPUEstimator.__init__ = make_fused
    estimators.tpu_config.RunConfig.__init__ = configure_here


def uneven(name: str, size: int, cores: int) -> str:
    return (
        f"{name} {size} cannot be shared evenly: {cores} cores have the same number of "
        "examples each"
    )


def _model_of(system: TpuSystem, model_fn: Callable[..., Any], use_tpu: bool) -> Any:
    """Return a model function with all arguments that TPUEstimator gives one, `params` included:
    the user's gets those that it has."""
    names = set(inspect.signature(model_fn).parameters)

    def model(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
        if labels is not None and "labels" not in names:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")

        def call(features: Any, labels: Any, params: Any) -> Any:
            every = {"labels": labels, "mode": mode, "config": config, "params": params}
            return model_fn(features, **{name: every[name] for name in every if name in names})

        if not use_tpu or system.steps is None or mode not in _STEPS:
            return call(features, labels, params)
        # Before the model itself: the class of its spec remembers the metrics of the last one.
        module = _module_of(system, call, mode, features, labels, params)
        spec, hooks = call(features, labels, params), _HOOKS[mode]
        hook = counting_hook(system.tf, module)
        return spec._replace(**{hooks: (*(getattr(spec, hooks) or ()), hook)})

    return model


def _module_of(
    system: TpuSystem, call: Callable[..., Any], mode: str, features: Any, labels: Any, params: Any
) -> ModuleRuns:
    """Return the module of a step in this mode, as a replica of the slice has it."""
    tf, replicas = system.tf, len(system.devices)
    batch = params.get("batch_size") if isinstance(params, dict) else None
    own = params
    if isinstance(params, dict):
        own = {**params, "use_tpu": True}
        if batch:
            own["batch_size"] = batch // replicas

    def build(features: Any, labels: Any) -> Any:
        one = call(features, labels, own)
        if mode == "infer":
            return one.predictions
        if mode == "eval":
            metrics = getattr(one, "eval_metrics", None)
            return one.loss, metrics[1] if metrics else ()
        with tf.control_dependencies([one.train_op]):
            return tf.identity(one.loss)

    return add_step(system, _STEPS[mode], build, (features, labels), batch, replicas)
