"""Layers that recipes share. Where one is written for speed on CPUs or for the matrix unit's
numerics, it says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from podyard.engine.recipes.tensors import Tensor, glorot_uniform, zeros
from podyard.engine.training.recipe import Ratio

Padding = str | tuple[tuple[int, int], tuple[int, int]]


def conv(x: Any, kernel: Any, stride: int = 1, padding: Padding = "SAME") -> Any:
    """x [n, h, w, in], kernel [kh, kw, in, out]; `padding` SAME, VALID or (before, after) of both
    axes."""
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def conv_same(x: Any, kernel: Any, bias: Any) -> Any:
    """x [n, h, w, in], kernel [kh, kw, in, out]: stride 1, zero padding that keeps the size."""
    return conv(x, kernel) + bias


def max_pool(x: Any, window: int, stride: int, padding: Padding = "VALID") -> Any:
    """x [n, h, w, c]: the maximum of each window x window, every `stride` pixels. As libraries of
    layers write it."""
    pads = padding if isinstance(padding, str) else ((0, 0), *padding, (0, 0))
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1), pads
    )


def max_pool_2x2(x: Any) -> Any:
    """[n, h, w, c] -> [n, h/2, w/2, c]. By reshape and maximum: the gradient of reduce_window is a
    select_and_scatter, which is several times slower on CPUs."""
    n, h, w, c = x.shape
    return jnp.max(x.reshape(n, h // 2, 2, w // 2, 2, c), axis=(2, 4))


def dropout(x: Any, rate: float, key: Any) -> Any:
    """Zeroes a share `rate` of the elements and scales the others up, so that the mean stays.
    Without a key it does nothing."""
    if rate == 0 or key is None:
        return x
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


def batch_norm(
    x: Any, scale: Any, bias: Any, epsilon: float, groups: int = 1
) -> tuple[Any, Any, Any]:
    """x [n, ..., c] -> (normalized x in the type of x, mean [c], variance [c]); statistics over all
    axes but the last, in float32 whatever the type of x, for each of `groups` equal parts of the
    batch by itself (the returned ones are their means). Mean and mean square take one pass over x;
    the difference is not below zero.
    Source: Ioffe and Szegedy, arXiv 1502.03167, algorithm 1."""
    wide = x.astype(jnp.float32).reshape(groups, x.shape[0] // groups, *x.shape[1:])
    axes = tuple(range(1, wide.ndim - 1))
    mean = jnp.mean(wide, axes, keepdims=True)
    variance = jnp.maximum(jnp.mean(wide * wide, axes, keepdims=True) - mean * mean, 0.0)
    result = (wide - mean) * lax.rsqrt(variance + epsilon) * scale + bias
    kept = tuple(range(wide.ndim - 1))
    return result.reshape(x.shape).astype(x.dtype), jnp.mean(mean, kept), jnp.mean(variance, kept)


def layer_norm(x: Any, scale: Any, bias: Any, epsilon: float = 1e-5) -> Any:
    """x [..., c], normalized over its last axis in float32, in the type of x. Source: Ba et al.,
    arXiv 1607.06450."""
    wide = x.astype(jnp.float32)
    mean, variance = jnp.mean(wide, -1, keepdims=True), jnp.var(wide, -1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + epsilon) * scale + bias).astype(x.dtype)


def causal_attention(query: Any, key: Any, value: Any) -> Any:
    """[n, length, heads, depth] each -> the same: every position sees itself and those before it.
    Softmax in float32. Source: Vaswani et al., arXiv 1706.03762, section 3.2.1."""
    length, depth = query.shape[1], query.shape[3]
    scores = jnp.einsum("nqhd,nkhd->nhqk", query, key).astype(jnp.float32) * depth**-0.5
    visible = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf))
    return jnp.einsum("nhqk,nkhd->nqhd", weights.astype(value.dtype), value)


def softmax_cross_entropy(logits: Any, labels: Any, smoothing: float = 0.0) -> tuple[Any, Any]:
    """logits [n, classes], labels [n] -> (mean loss in nats, share of correct answers). `smoothing`
    is the share of
    the target that is spread over all classes (Szegedy et al., arXiv 1512.00567, section 7)."""
    log_probabilities = jax.nn.log_softmax(logits)
    # One-hot and a sum, not an index: the gradient of an index is a scatter, which is a loop on
    # CPUs.
    target = (labels[:, None] == jnp.arange(logits.shape[1])).astype(jnp.float32)
    if smoothing:
        target = (1 - smoothing) * target + smoothing / logits.shape[1]
    loss = -jnp.mean(jnp.sum(log_probabilities * target, axis=1))
    correct = jnp.mean((jnp.argmax(logits, axis=1) == labels).astype(jnp.float32))
    return loss, correct


def precision_counts(answers: Any, labels: Any, classes: int) -> Ratio:
    """answers, labels [n] -> of each class, how many of the answers that name it are right, and how
    many there are."""
    named = (answers[:, None] == jnp.arange(classes)).astype(jnp.float32)
    right = named * (answers == labels)[:, None]
    return Ratio(right.sum(axis=0), named.sum(axis=0))


def glorot_tensors(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Glorot uniform for kernels, zeros for biases, by name."""
    return {
        name: Tensor(shape, zeros if name.endswith("/bias") else glorot_uniform)
        for name, shape in shapes.items()
    }
