"""Gates with gradients, what exponentials are made for, and the room of sums. Cycles and peaks in
here are those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

BF16, F32 = jnp.bfloat16, jnp.float32
TOKENS, WIDTH, INNER = 16384, 2048, 8192


def _shape(*extents: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(extents, BF16)


def _estimate(function: Any, on: str, *shapes: jax.ShapeDtypeStruct) -> Estimate:
    return estimate_program(parse_stablehlo(jax.jit(function).lower(*shapes).as_text()), parse(on))


def _step(layer: Callable[..., Any]) -> Callable[..., Any]:
    """A layer and its gradients, for which it is worked out again."""

    def step(gradient: Any, *arguments: Any) -> Any:
        result, back = jax.vjp(jax.checkpoint(layer), *arguments)
        return result, *back(gradient)

    return step


def _gated(function: Any, is_up_first: bool, on: str) -> Estimate:
    def layer(x: Any, gate: Any, up: Any, down: Any) -> Any:
        if is_up_first:
            return x + ((x @ up) * function(x @ gate)) @ down
        return x + (function(x @ gate) * (x @ up)) @ down

    rows, weights = _shape(TOKENS, WIDTH), _shape(WIDTH, INNER)
    return _estimate(_step(layer), on, rows, rows, weights, weights, _shape(INNER, WIDTH))


@pytest.mark.parametrize("is_up_first", [False, True])
@pytest.mark.parametrize(
    "function", [jax.nn.silu, jax.nn.gelu, lambda gate: jnp.square(jax.nn.relu(gate))]
)
def test_a_gate_is_computed_last_and_two_arrays_are_made_of_it(
    function: Any, is_up_first: bool
) -> None:
    gated = _gated(function, is_up_first, "v5p-8")
    assert gated.peak_hbm_bytes == pytest.approx(1_543_512_608, rel=0.1)
    assert gated.cycles == pytest.approx(27_590_670, rel=0.15)


@pytest.mark.parametrize(
    ("on", "cycles", "within"),
    [
        ("v4-8", (25_984_370, 26_420_047), 0.02),
        ("v5p-8", (27_590_670, 27_590_670), 0.15),
        ("v6e-1", (19_072_633, 19_072_633), 0.2),
    ],
)
def test_which_factor_comes_first_changes_little(
    on: str, cycles: tuple[int, int], within: float
) -> None:
    """Which weights are fetched in time depends on it: cycles differ by up to 2 per cent."""
    first, second = (_gated(jax.nn.silu, is_up_first, on) for is_up_first in (False, True))
    assert first.peak_hbm_bytes == second.peak_hbm_bytes
    assert [first.cycles, second.cycles] == pytest.approx(list(cycles), rel=within)


def _softmax_twice(length: int, heads: int, width: int, on: str) -> Estimate:
    def run(x: Any, query: Any, key: Any, values: Any, gradient: Any) -> Any:
        queries, keys = (jnp.einsum("bsm,mhd->bshd", x, weights) for weights in (query, key))
        queries = queries[:, :, :, None]
        scores = jnp.einsum("bqhgd,bkhd->bhgqk", queries, keys, preferred_element_type=F32)
        shares = jax.nn.softmax(scores, -1).astype(BF16)
        given = jnp.einsum("bhgqk,bkhd->bqhgd", shares, values)
        return given, jnp.einsum("bhgqk,bqhgd->bkhd", shares, gradient)

    rows, weights = _shape(4, length, heads * width), _shape(heads * width, heads, width)
    split = (4, length, heads)
    return _estimate(
        run, on, rows, weights, weights, _shape(*split, width), _shape(*split, 1, width)
    )


@pytest.mark.parametrize(
    ("on", "cycles", "peak"),
    [("v5p-8", 3_367_880, 848_298_016), ("v5litepod-1", 6_591_090, 579_863_040)],
)
def test_a_softmax_that_two_products_multiply_is_written_once_but_not_on_v5e(
    on: str, cycles: int, peak: int
) -> None:
    twice = _softmax_twice(2048, 8, 64, on)
    assert twice.cycles == pytest.approx(cycles, rel=0.05)
    assert twice.peak_hbm_bytes == pytest.approx(peak, rel=0.05)


def _turned(x: Any) -> Any:
    """Positions as rotations."""
    length, half = x.shape[1], x.shape[-1] // 2
    angles = jnp.arange(length, dtype=F32)[:, None] * (
        10000.0 ** (-jnp.arange(half, dtype=F32) / half)
    )
    cosines, sines = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    first, second = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate(
        [first * cosines - second * sines, second * cosines + first * sines], -1
    ).astype(BF16)


def _attention(heads: int, width: int = 128, length: int = 2048) -> Estimate:
    def layer(x: Any, query: Any, key: Any, value: Any, out: Any) -> Any:
        queries, keys, values = (
            jnp.einsum("bsm,mhd->bshd", x, weights) for weights in (query, key, value)
        )
        queries, keys = _turned(queries).reshape(32, length, heads, 1, width), _turned(keys)
        scores = jnp.einsum("bqhgd,bkhd->bhgqk", queries, keys, preferred_element_type=F32)
        scores = scores * width**-0.5
        scores = scores + jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e9).astype(
            F32
        )
        shares = jax.nn.softmax(scores, -1).astype(BF16)
        mixed = jnp.einsum("bhgqk,bkhd->bqhgd", shares, values).reshape(32, length, heads, width)
        return x + jnp.einsum("bqhd,hdm->bqm", mixed, out)

    rows, weights = _shape(32, length, heads * width), _shape(heads * width, heads, width)
    return _estimate(
        _step(layer), "v5p-8", rows, rows, *[weights] * 3, _shape(heads, width, heads * width)
    )


def test_on_v5p_sums_take_the_room_of_windows() -> None:
    """Five times as many heads take eight times as long."""
    few, many = _attention(8), _attention(40)
    assert few.cycles == pytest.approx(89_810_120, rel=0.15)
    assert many.cycles / few.cycles == pytest.approx(710_214_509 / 89_810_120, rel=0.05)
