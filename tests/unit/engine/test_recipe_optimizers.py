"""Optimizers of the recipes, against their rules computed step by step."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from podyard.engine.training.optimizers import Adam, Lars, Momentum, warm_up_and_stairs
from tests.unit.engine.test_recipe_programs import quick


@pytest.mark.slow
def test_optimizers_move_by_their_rules() -> None:
    params = {"kernel": np.array([[3.0, 4.0]], np.float32), "bias": np.array([1.0], np.float32)}
    slope = {"kernel": np.array([[0.6, 0.8]], np.float32), "bias": np.array([0.5], np.float32)}
    velocity = {"kernel": np.array([[1.0, 0.0]], np.float32), "bias": np.array([2.0], np.float32)}

    def moved(optimizer: Momentum | Lars) -> tuple[Any, Any]:
        result: tuple[Any, Any] = quick(optimizer.update)(
            params, {"velocity": velocity}, slope, np.int32(0)
        )
        return result

    got, state = moved(Momentum(lambda _steps: 0.1, 0.9, 0.01))
    assert np.allclose(state["velocity"]["kernel"], [[0.9 + 0.63, 0.84]])
    assert np.allclose(got["kernel"], [[3 - 0.153, 4 - 0.084]])
    assert np.allclose(got["bias"], [1 - 0.1 * (1.8 + 0.5)])
    got, state = moved(Lars(lambda _steps: 2.0, 0.9, 0.01, trust=0.1))
    own_rate = 2.0 * 0.1 * 5 / (1 + 0.01 * 5)
    assert np.allclose(got["kernel"], [[3 - 0.9 - own_rate * 0.63, 4 - own_rate * 0.84]])
    assert np.allclose(got["bias"], [1 - 1.8 - 2.0 * 0.5])
    zero = {"kernel": np.zeros((2, 2), np.float32)}
    got, _ = Lars(lambda _steps: 2.0, 0.9, 0.01).update(zero, {"velocity": zero}, zero, np.int32(0))
    assert np.array_equal(got["kernel"], zero["kernel"])
    # Adam's first step has the length of the rate, whatever the gradient.
    none = {
        "first": jax.tree.map(np.zeros_like, params),
        "second": jax.tree.map(np.zeros_like, params),
    }
    got, state = quick(Adam(0.01).update)(params, none, slope, np.int32(0))
    assert np.allclose(got["kernel"], params["kernel"] - 0.01, atol=1e-5)
    assert np.allclose(state["second"]["kernel"], 0.001 * slope["kernel"] ** 2)


def test_the_resnet_rate_rises_then_falls_in_stairs() -> None:
    rate = warm_up_and_stairs(0.4, 100, (300, 600))
    seen = [float(rate(np.int32(step))) for step in (0, 49, 99, 299, 300, 599, 600)]
    assert seen == pytest.approx([0.004, 0.2, 0.4, 0.4, 0.04, 0.04, 0.004])
    assert float(warm_up_and_stairs(0.4, 0, ())(np.int32(0))) == pytest.approx(0.4)
