"""Work of the vector unit in front of a product: cycles as libtpu 0.0.42.1 gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse


@pytest.mark.parametrize(
    ("function", "cycles"),
    [
        (jnp.exp, 166_408),
        (jnp.tanh, 166_408),
        (lax.rsqrt, 166_920),
        (jnp.log, 170_248),
        (jax.nn.sigmoid, 182_280),
        (jax.nn.silu, 193_800),
    ],
)
def test_matrix_units_of_v4_wait_for_what_is_done_to_operands(function: Callable[[Any], Any], cycles: int) -> None:
    def twice(x: Any, weights: Any) -> Any:
        made = lax.optimization_barrier(x @ weights)
        return function(made).astype(jnp.bfloat16) @ weights.T

    struct: Any = jax.ShapeDtypeStruct
    arrays = struct((1536, 512), jnp.float32), struct((512, 10240), jnp.float32)
    text = jax.jit(twice).trace(*arrays).lower(lowering_platforms=("tpu",)).as_text()
    assert estimate_program(parse_stablehlo(text), parse("v4-8")).cycles == pytest.approx(cycles, rel=0.03)
