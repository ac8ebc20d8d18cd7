"""Adam, on flat vectors: one fused loop over all parameters, which also compiles several times faster than a loop per
tensor. Every replica computes it on the same summed gradient and gets the same bits."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-7  # Keras' default, which the reference models were trained with


def adam_update(
    params: Any, first: Any, second: Any, gradient: Any, step: Any, learning_rate: float
) -> tuple[Any, Any, Any]:
    """(params, first moments, second moments), all [n], after 1-based `step` (float32 scalar).

    Source: Kingma and Ba, arXiv 1412.6980, section 2, with the bias corrections folded into the rate.
    """
    rate = learning_rate * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)
    first = BETA1 * first + (1 - BETA1) * gradient
    second = BETA2 * second + (1 - BETA2) * gradient * gradient
    return params - rate * first / (jnp.sqrt(second) + EPSILON), first, second
