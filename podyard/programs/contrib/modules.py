"""The modules of `tf.contrib` that listings of 2018 and 2019 use, over `tensorflow.compat.v1` of
2.15: most of their names have moved there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from podyard.programs.contrib import layers

Names = dict[str, Any]
# Names of `tf.contrib.summary` in TensorFlow's module that still has them.
_SUMMARY = (
    "always_record_summaries", "audio", "create_file_writer", "create_noop_writer", "eval_dir",
    "flush", "generic", "histogram", "image", "initialize", "never_record_summaries",
    "record_summaries_every_n_global_steps", "scalar", "should_record_summaries",
)  # fmt: skip


def modules_of(tf: Any) -> dict[str, Names]:
    """Return the names of each module, by its path below `tf.contrib`."""
    v1 = tf.compat.v1
    return {
        "data": _data(v1),
        "distribute": _distribute(v1),
        "layers": layers.names_of(v1),
        "framework": _framework(v1),
        "training": {"HParams": HParams},
        "summary": _summary(v1),
        "rnn": {name: one for name, one in vars(v1.nn.rnn_cell).items() if name[0].isupper()},
        "metrics": {
            f"streaming_{name}": getattr(v1.metrics, name)
            for name in ("accuracy", "auc", "mean", "precision", "recall")
        },
        "estimator": {
            "stop_if_no_decrease_hook": v1.estimator.experimental.stop_if_no_decrease_hook,
            "stop_if_no_increase_hook": v1.estimator.experimental.stop_if_no_increase_hook,
        },
        "eager": {"Variable": tf.Variable, "GradientTape": tf.GradientTape},
    }


def _data(v1: Any) -> Names:
    experimental = v1.data.experimental
    names = {name: one for name, one in vars(experimental).items() if not name.startswith("_")}

    def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
        return lambda dataset: dataset.batch(batch_size, drop_remainder=True)

    def padded_batch_and_drop_remainder(
        batch_size: Any, padded_shapes: Any, padding_values: Any = None
    ) -> Callable[[Any], Any]:
        return lambda dataset: dataset.padded_batch(
            batch_size, padded_shapes, padding_values, drop_remainder=True
        )

    def sloppy_interleave(
        map_func: Any, cycle_length: int, block_length: int = 1
    ) -> Callable[[Any], Any]:
        made: Callable[[Any], Any] = experimental.parallel_interleave(
            map_func, cycle_length, block_length, sloppy=True
        )
        return made

    return {
        **names,
        "batch_and_drop_remainder": batch_and_drop_remainder,
        "padded_batch_and_drop_remainder": padded_batch_and_drop_remainder,
        "sloppy_interleave": sloppy_interleave,
    }


def _distribute(v1: Any) -> Names:
    """Return strategies, which TensorFlow 1.14 moved to `tf.distribute`."""
    own, strategies = v1.distribute, ("MirroredStrategy", "OneDeviceStrategy", "TPUStrategy")
    return {
        **{name: getattr(own, name) for name in strategies},
        "get_distribution_strategy": own.get_strategy,
        "has_distribution_strategy": own.has_strategy,
        "initialize_tpu_system": v1.tpu.experimental.initialize_tpu_system,
    }


def _framework(v1: Any) -> Names:
    return {
        "get_global_step": v1.train.get_global_step,
        "get_or_create_global_step": v1.train.get_or_create_global_step,
        "create_global_step": v1.train.create_global_step,
        "nest": v1.nest,
        "argsort": v1.argsort,
        "sort": v1.sort,
        "list_variables": v1.train.list_variables,
        "load_variable": v1.train.load_variable,
    }


def _summary(v1: Any) -> Names:
    module = importlib.import_module("tensorflow.python.ops.summary_ops_v2")
    return {name: getattr(module, name) for name in _SUMMARY} | {
        "all_summary_ops": v1.summary.all_v2_summary_ops
    }


class HParams:
    """Hyperparameters by name, as `tf.contrib.training.HParams` holds them."""

    def __init__(self, **values: Any) -> None:
        self._names = tuple(values)
        self.__dict__.update(values)

    def add_hparam(self, name: str, value: Any) -> None:
        """Raises ValueError for a name that is there."""
        if name in self.__dict__:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        self._names += (name,)
        self.__dict__[name] = value

    def set_hparam(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def values(self) -> Names:
        return {name: self.__dict__[name] for name in self._names}

    def get(self, key: str, default: Any = None) -> Any:
        return self.__dict__.get(key, default)

    def __contains__(self, name: str) -> bool:
        return name in self._names
