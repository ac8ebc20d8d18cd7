"""Adam, on trees of arrays. Every replica computes it on the same summed gradient and gets the same bits."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-7  # Keras' default, which the reference models were trained with


def adam_update(
    params: dict[str, Any],
    first: dict[str, Any],
    second: dict[str, Any],
    gradient: dict[str, Any],
    step: Any,
    learning_rate: float,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(params, first moments, second moments) after 1-based `step` (float32 scalar).

    Source: Kingma and Ba, arXiv 1412.6980, section 2, with the bias corrections folded into the rate.
    """
    rate = learning_rate * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)
    new_params, new_first, new_second = {}, {}, {}
    for name, value in params.items():
        slope = gradient[name]
        new_first[name] = BETA1 * first[name] + (1 - BETA1) * slope
        new_second[name] = BETA2 * second[name] + (1 - BETA2) * slope * slope
        new_params[name] = value - rate * new_first[name] / (jnp.sqrt(new_second[name]) + EPSILON)
    return new_params, new_first, new_second
