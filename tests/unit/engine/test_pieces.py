"""Rows that are cut and put together again (rotary positions): cycles as libtpu 0.0.42.1 gives them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.unit.engine.compiled import estimate_of


def _rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * 1e4 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(jnp.bfloat16)


def _scores(x: Any, queries: Any, keys: Any) -> Any:
    q, k = (_rotated(jnp.einsum("bte,ehd->bthd", x, w)) for w in (queries, keys))
    return jnp.einsum("bthd,bshd->bhts", q, k)


@pytest.mark.parametrize(
    ("on", "batch", "tokens", "heads", "cycles"),
    [
        ("v4-8", 8, 192, 8, 110_919),
        ("v4-8", 16, 96, 4, 55_025),
        ("v5litepod-1", 8, 192, 8, 159_088),
        ("v5litepod-1", 16, 96, 4, 73_973),
        ("v3-8", 8, 192, 8, 254_327),
        ("v6e-1", 8, 192, 8, 64_332),
        ("v6e-1", 16, 96, 4, 33_632),
    ],
)
def test_halves_of_rows_are_written_before_they_are_put_together(
    on: str, batch: int, tokens: int, heads: int, cycles: int
) -> None:
    struct: Any = jax.ShapeDtypeStruct
    x, w = struct((batch, tokens, 512), jnp.float32), struct((512, heads, 128), jnp.float32)
    assert estimate_of(_scores, on, x, w, w).cycles == pytest.approx(cycles, rel=0.17)
