"""Work of the vector unit in front of a product: cycles as libtpu 0.0.42.1 gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.unit.engine.compiled import estimate_of


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
def test_matrix_units_of_v4_wait_for_what_is_done_to_operands(
    function: Callable[[Any], Any], cycles: int
) -> None:
    def twice(x: Any, weights: Any) -> Any:
        made = lax.optimization_barrier(x @ weights)
        return function(made).astype(jnp.bfloat16) @ weights.T

    struct: Any = jax.ShapeDtypeStruct
    arrays = struct((1536, 512), jnp.float32), struct((512, 10240), jnp.float32)
    assert estimate_of(twice, "v4-8", *arrays).cycles == pytest.approx(cycles, rel=0.03)
