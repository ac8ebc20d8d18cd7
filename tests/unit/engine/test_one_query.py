"""A token from caches, one query for each head of keys: cycles of the whole step as libtpu 0.0.42.1 gives them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

_BATCH, _SEEN, _WIDTH, _HEAD = 16, 1024, 1024, 128


def _step(x: Any, queries: Any, makers: Any, out: Any, keys: Any, values: Any, at: Any) -> Any:
    q, k, v = (jnp.einsum("bw,whd->bhd", x, weights) for weights in (queries, *makers))
    keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0, 0))
    values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0, 0))
    scores = jnp.einsum("bhd,bshd->bhs", q, keys).astype(jnp.float32) * _HEAD**-0.5
    shares = jax.nn.softmax(jnp.where(jnp.arange(_SEEN) <= at, scores, -1e9)).astype(jnp.bfloat16)
    return jnp.einsum("bhd,hdw->bw", jnp.einsum("bhs,bshd->bhd", shares, values), out), keys, values


@pytest.mark.parametrize(
    ("on", "heads", "cycles"),
    [
        ("v5litepod-1", 2, 462_983),
        ("v5litepod-1", 4, 506_104),
        ("v5litepod-1", 8, 582_694),
        ("v5litepod-1", 16, 1_060_985),
        ("v4-8", 2, 238_029),
        ("v4-8", 8, 301_117),
        ("v6e-1", 2, 318_485),
        ("v6e-1", 8, 348_986),
    ],
)
def test_a_few_heads_take_whole_tiles_of_rows(on: str, heads: int, cycles: int) -> None:
    struct: Any = jax.ShapeDtypeStruct

    def half(*shape: int) -> Any:
        return struct(shape, jnp.bfloat16)

    into, cache = half(_WIDTH, heads, _HEAD), half(_BATCH, _SEEN, heads, _HEAD)
    arrays = half(_BATCH, _WIDTH), into, [into] * 2, half(heads, _HEAD, _WIDTH), cache, cache, struct((), jnp.int32)
    lowered = jax.jit(_step, donate_argnums=(4, 5)).trace(*arrays).lower(lowering_platforms=("tpu",))
    estimate = estimate_program(parse_stablehlo(lowered.as_text()), parse(on))
    assert estimate.cycles == pytest.approx(cycles, rel=0.28)
