"""What a loop goes through: an array in memory that is split, or whose outer axes are in another
order, is no copy. Cycles and peaks are what the compiler has for the same programs (libtpu
0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

_HEADS, _SQUARE = (2, 4, 4096, 128), (128, 128)


def _estimate(fn: Any, on: str, *shapes: tuple[int, ...]) -> Estimate:
    given = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    return estimate_program(
        parse_stablehlo(jax.jit(fn).trace(*given).lower(lowering_platforms=("tpu",)).as_text()),
        parse(on),
    )


def _chunks(x: jax.Array) -> jax.Array:
    """Tokens in eight parts, in front."""
    batch, heads, tokens, features = x.shape
    return x.reshape(batch, heads, 8, tokens // 8, features).transpose(2, 0, 1, 3, 4)


def _products(x: jax.Array, weight: jax.Array) -> Any:
    def turn(total: Any, part: Any) -> Any:
        return total + jnp.einsum("bhtd,de->bhte", part, weight).astype(jnp.float32), None

    return lax.scan(turn, jnp.zeros((2, 4, 512, 128), jnp.float32), _chunks(x))[0]


def _sums(x: jax.Array, _weight: jax.Array) -> Any:
    def turn(total: Any, part: Any) -> Any:
        return total + jnp.sum(part.astype(jnp.float32), axis=2, keepdims=True), None

    return lax.scan(turn, jnp.zeros((2, 4, 1, 128), jnp.float32), _chunks(x))[0]


def _sums_of_made(x: jax.Array, weight: jax.Array) -> Any:
    """Return what a kernel makes is written in the order of the loop: nothing is saved."""
    return _sums(jnp.tanh(x) * 2, weight)


def _there_and_back(x: jax.Array, weight: jax.Array) -> Any:
    made = lax.scan(
        lambda carry, part: (carry, jnp.einsum("bhtd,de->bhte", part, weight)), 0, _chunks(x)
    )[1]
    return made.transpose(1, 2, 0, 3, 4).reshape(_HEADS)


def _layers(weights: jax.Array, x: jax.Array) -> Any:
    """Weights whose layers are the axis in the middle."""
    return lax.scan(
        lambda x, own: (jnp.tanh(x @ own).astype(x.dtype), None), x, weights.transpose(1, 0, 2)
    )[0]


def _sequence(x: jax.Array, _weight: jax.Array) -> Any:
    """Tokens in front of the batch: other rows share a tile, so that this is a copy."""

    def turn(total: Any, part: Any) -> Any:
        return total * 0.5 + jnp.tanh(part.astype(jnp.float32)), None

    return lax.scan(turn, jnp.zeros((x.shape[0], x.shape[2]), jnp.float32), x.swapaxes(0, 1))[0]


@pytest.mark.parametrize(
    ("fn", "shapes", "cycles", "peak"),
    [
        (_products, (_HEADS, _SQUARE), 111_904, 10_525_696),
        (_sums, (_HEADS, _SQUARE), 65_480, 8_402_944),
        (_sums_of_made, (_HEADS, _SQUARE), 143_152, 16_791_552),
        (_there_and_back, (_HEADS, _SQUARE), 170_184, 25_203_712),
        (_layers, ((512, 6, 512), (256, 512)), 55_534, 3_937_280),
        (_sequence, ((64, 128, 256), (256, 256)), 130_040, 8_461_312),
    ],
)
def test_a_loop_reads_other_orders_of_outer_axes_where_they_lie(
    fn: Any, shapes: tuple[tuple[int, ...], ...], cycles: int, peak: int
) -> None:
    estimate = _estimate(fn, "v3-8", *shapes)
    assert estimate.cycles == pytest.approx(cycles, rel=0.06)
    assert estimate.peak_hbm_bytes == pytest.approx(peak, rel=0.01)
