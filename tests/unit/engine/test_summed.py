"""Sums over short axes of images against cycles that the TPU compiler gave (libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from benchmarks.corpus import vision
from benchmarks.corpus.data import slice_for
from benchmarks.corpus.layout import BF16, ONE, Made
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

_NEAR = 0.16


@pytest.mark.parametrize(
    ("generation", "examples", "side", "features", "compiled"),
    [
        ("v5e", 8, 32, 80, 68_413),
        ("v5e", 16, 32, 128, 144_841),
        ("v5e", 8, 48, 96, 161_494),
        ("v6e", 16, 32, 128, 57_447),
    ],
)
def test_pairs_of_columns_are_summed_up_as_images_lie(
    generation: str, examples: int, side: int, features: int, compiled: int
) -> None:
    half = side // 2

    def halved(x: Any, first: Any, second: Any) -> Any:
        y = jnp.tanh(vision.conv(x, first))
        y = jnp.sum(y.reshape(examples, side, half, 2, features), 3)
        return vision.conv(jnp.sum(y.reshape(examples, half, 2, half, features), 2), second)

    kernel = ONE.array((3, 3, features, features), "", BF16)
    made = Made(halved, (ONE.array((examples, side, side, features), "", BF16), kernel, kernel))
    estimate = estimate_program(parse_stablehlo(made.text()), parse(slice_for(generation, 1)))
    assert abs(estimate.cycles / compiled - 1) <= _NEAR
