"""Layers that small recipes share, written for speed on CPUs and for the matrix unit's numerics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from podyard.base.rng import Streams


def conv_same(x: Any, kernel: Any, bias: Any) -> Any:
    """x [n, h, w, in], kernel [kh, kw, in, out]: stride 1, zero padding that keeps the size."""
    out = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return out + bias


def max_pool_2x2(x: Any) -> Any:
    """[n, h, w, c] -> [n, h/2, w/2, c]. By reshape and maximum: the gradient of reduce_window is a
    select_and_scatter, which is several times slower on CPUs."""
    n, h, w, c = x.shape
    return jnp.max(x.reshape(n, h // 2, 2, w // 2, 2, c), axis=(2, 4))


def dropout(x: Any, rate: float, key: Any) -> Any:
    """Zeroes a share `rate` of the elements and scales the others up, so that the mean stays."""
    if rate == 0:
        return x
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


def softmax_cross_entropy(logits: Any, labels: Any) -> tuple[Any, Any]:
    """logits [n, classes], labels [n] -> (mean loss in nats, share of correct answers)."""
    log_probabilities = jax.nn.log_softmax(logits)
    # One-hot and a sum, not an index: the gradient of an index is a scatter, which is a loop on CPUs.
    one_hot = (labels[:, None] == jnp.arange(logits.shape[1])).astype(jnp.float32)
    loss = -jnp.mean(jnp.sum(log_probabilities * one_hot, axis=1))
    correct = jnp.mean((jnp.argmax(logits, axis=1) == labels).astype(jnp.float32))
    return loss, correct


def init_glorot(shapes: Mapping[str, tuple[int, ...]], streams: Streams) -> dict[str, NDArray[np.float32]]:
    """Glorot uniform for kernels (Keras' default), zeros for biases. Each tensor has a stream of its own name, so that
    a layer more does not change the others."""
    tensors = {}
    for name, shape in shapes.items():
        if name.endswith("/bias"):
            tensors[name] = np.zeros(shape, np.float32)
            continue
        receptive_field = math.prod(shape[:-2])
        limit = math.sqrt(6 / (receptive_field * (shape[-2] + shape[-1])))
        rng = streams.stream(f"init/{name}")
        words = np.frombuffer(rng.randbytes(4 * math.prod(shape)), "<u4")
        unit = words.astype(np.float64) / 2**32
        tensors[name] = ((2 * unit - 1) * limit).astype(np.float32).reshape(shape)
    return tensors
