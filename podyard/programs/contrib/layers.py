"""`tf.contrib.layers`: initializers, regularizers, and layers with the defaults that contrib gives
them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_RENAMED = {
    "weights_regularizer": "kernel_regularizer",
    "biases_initializer": "bias_initializer",
    "scope": "name",
}


def names_of(v1: Any) -> dict[str, Any]:
    """Return the module's names over `tensorflow.compat.v1`."""
    functions: tuple[Callable[..., Any], ...] = (
        xavier_initializer, variance_scaling_initializer, l1_regularizer, l2_regularizer,
        fully_connected, linear, conv2d, max_pool2d, dropout,
    )  # fmt: skip
    names = {one.__name__: functools.partial(one, v1) for one in functions}
    return {**names, "flatten": v1.layers.flatten}


def xavier_initializer(
    v1: Any, uniform: bool = True, seed: int | None = None, dtype: Any = None
) -> Any:
    kind = v1.glorot_uniform_initializer if uniform else v1.glorot_normal_initializer
    return kind(seed=seed, dtype=dtype or v1.float32)


def variance_scaling_initializer(
    v1: Any,
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = None,
) -> Any:
    distribution = "uniform" if uniform else "truncated_normal"
    return v1.variance_scaling_initializer(
        factor, mode.lower(), distribution, seed, dtype or v1.float32
    )


def l1_regularizer(v1: Any, scale: float, scope: str | None = None) -> Any:  # noqa: ARG001
    return lambda weights: v1.multiply(scale, v1.reduce_sum(v1.abs(weights)))


def l2_regularizer(v1: Any, scale: float, scope: str | None = None) -> Any:  # noqa: ARG001
    return lambda weights: v1.multiply(scale, v1.nn.l2_loss(weights))


def fully_connected(v1: Any, inputs: Any, num_outputs: int, *args: Any, **named: Any) -> Any:
    """Return a dense layer's results; `activation_fn` is relu where none is given."""
    activation, named = _activation(v1, args, named)
    return v1.layers.dense(inputs, num_outputs, activation, **_of_layer(v1, named))


def linear(v1: Any, inputs: Any, num_outputs: int, **named: Any) -> Any:
    return fully_connected(v1, inputs, num_outputs, None, **named)


def conv2d(
    v1: Any,
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    **named: Any,
) -> Any:
    activation, named = _activation(v1, (), named)
    layer = functools.partial(v1.layers.conv2d, activation=activation, **_of_layer(v1, named))
    return layer(inputs, num_outputs, kernel_size, stride, padding)


def max_pool2d(
    v1: Any, inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID"
) -> Any:
    return v1.layers.max_pooling2d(inputs, kernel_size, stride, padding)


def dropout(v1: Any, inputs: Any, keep_prob: float = 0.5, is_training: Any = True) -> Any:
    return v1.layers.dropout(inputs, 1 - keep_prob, training=is_training)


def _activation(
    v1: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    rest = dict(named)
    default = args[0] if args else v1.nn.relu
    return rest.pop("activation_fn", default), rest


def _of_layer(v1: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names that `tf.layers` has for them."""
    start = named.pop("weights_initializer", None) or xavier_initializer(v1)
    return {"kernel_initializer": start} | {
        _RENAMED.get(name, name): value for name, value in named.items()
    }
