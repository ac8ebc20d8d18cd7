"""Rows that are cut and put together again (rotary positions): cycles as libtpu 0.0.42.1 gives
them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.unit.engine.compiled import estimate_of


def _rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * 1e4 ** (
        -jnp.arange(half, dtype=jnp.float32) / half
    )
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(
        jnp.bfloat16
    )


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


def _gated(given: Any, state: Any, x: Any) -> Any:
    """A gated recurrent unit over x (steps, batch, features)."""

    def turn(h: Any, x: Any) -> Any:
        first, second = jnp.split(x, 3, -1), jnp.split(h @ state, 3, -1)
        reset, update = jax.nn.sigmoid(first[0] + second[0]), jax.nn.sigmoid(first[1] + second[1])
        h = (1 - update) * jnp.tanh(first[2] + reset * second[2]) + update * h
        return h, h

    return jax.lax.scan(turn, jnp.zeros(x.shape[1:], jnp.bfloat16), x @ given)[1]


@pytest.mark.parametrize(
    ("on", "shape", "cycles", "off"),
    [
        ("v3-8", (32, 128, 256), 336_766, 0.2),
        ("v3-8", (24, 64, 512), 358_154, 0.1),
        # Kernels around the product are a third too cheap on v4 and v5e.
        ("v4-8", (32, 128, 256), 191_726, 0.3),
        ("v5litepod-1", (24, 64, 512), 281_410, 0.3),
        ("v5p-8", (32, 128, 256), 361_956, 0.06),
        ("v6e-1", (32, 128, 256), 212_500, 0.04),
        ("v6e-1", (24, 64, 512), 170_512, 0.04),
    ],
)
def test_gates_of_a_product_are_worked_out_by_the_next_kernel(
    on: str, shape: tuple[int, int, int], cycles: int, off: float
) -> None:
    struct: Any = jax.ShapeDtypeStruct
    w, x = struct((shape[2], 3 * shape[2]), jnp.bfloat16), struct(shape, jnp.bfloat16)
    assert estimate_of(_gated, on, w, w, x).cycles == pytest.approx(cycles, rel=off)
