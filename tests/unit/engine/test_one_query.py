"""A token from caches, one query for each head of keys: cycles of the whole step as libtpu 0.0.42.1
gives them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.unit.engine.compiled import estimate_of

_WIDTH = 1024


def _attended(  # noqa: PLR0913
    x: Any, queries: Any, makers: Any, out: Any, keys: Any, values: Any, at: Any, is_written: bool
) -> Any:
    q, k, v = (jnp.einsum("bw,whd->bhd", x, weights) for weights in (queries, *makers))
    if is_written:
        keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0, 0))
        values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0, 0))
    scores = jnp.einsum("bhd,bshd->bhs", q, keys).astype(jnp.float32) * keys.shape[-1] ** -0.5
    shares = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[1]) <= at, scores, -1e9)).astype(
        jnp.bfloat16
    )
    made = jnp.einsum("bhd,hdw->bw", jnp.einsum("bhs,bshd->bhd", shares, values), out)
    return (made, keys, values) if is_written else made


def _cycles(on: str, batch: int, seen: int, heads: int, head: int, is_written: bool) -> float:
    struct: Any = jax.ShapeDtypeStruct

    def half(*shape: int) -> Any:
        return struct(shape, jnp.bfloat16)

    def step(*arrays: Any) -> Any:
        return _attended(*arrays, is_written=is_written)

    into, cache = half(_WIDTH, heads, head), half(batch, seen, heads, head)
    arrays = (
        half(batch, _WIDTH),
        into,
        [into] * 2,
        half(heads, head, _WIDTH),
        cache,
        cache,
        struct((), jnp.int32),
    )
    return estimate_of(step, on, *arrays, donated=(4, 5) if is_written else ()).cycles


@pytest.mark.parametrize(
    ("on", "batch", "seen", "heads", "head", "cycles"),
    [
        ("v5litepod-1", 16, 1024, 2, 128, 462_983),
        ("v5litepod-1", 16, 1024, 8, 128, 582_694),
        ("v5litepod-1", 8, 1536, 4, 128, 385_519),
        ("v5litepod-1", 20, 896, 8, 64, 298_086),
        ("v4-8", 16, 1024, 2, 128, 238_029),
        ("v4-8", 16, 1024, 8, 128, 301_117),
        ("v6e-1", 16, 1024, 2, 128, 318_485),
        ("v6e-1", 16, 1024, 8, 128, 348_986),
        ("v6e-1", 48, 384, 2, 128, 352_747),
        ("v6e-1", 24, 768, 8, 128, 387_536),
        ("v6e-1", 16, 2048, 1, 128, 106_318),
        ("v6e-1", 20, 896, 8, 64, 171_251),
    ],
)
def test_a_token_from_caches_that_the_step_writes(
    on: str, batch: int, seen: int, heads: int, head: int, cycles: int
) -> None:
    assert _cycles(on, batch, seen, heads, head, is_written=True) == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("batch", "seen", "heads", "cycles"),
    [(8, 512, 8, 90_056), (32, 256, 8, 163_212), (16, 512, 4, 142_428)],
)
def test_a_softmax_around_them_reads_and_writes_at_the_full_price_on_v4(
    batch: int, seen: int, heads: int, cycles: int
) -> None:
    assert _cycles("v4-8", batch, seen, heads, 128, is_written=True) == pytest.approx(
        cycles, rel=0.1
    )


@pytest.mark.parametrize(
    ("on", "batch", "seen", "heads", "cycles"),
    [
        ("v5litepod-1", 16, 640, 8, 221_950),
        ("v6e-1", 16, 640, 8, 144_966),
        ("v6e-1", 16, 1024, 2, 195_733),
        ("v6e-1", 8, 512, 16, 118_255),
        ("v4-8", 16, 1024, 8, 215_436),
    ],
)
def test_keys_that_the_step_leaves_alone_are_multiplied_by_the_matrix_unit(
    on: str, batch: int, seen: int, heads: int, cycles: int
) -> None:
    assert _cycles(on, batch, seen, heads, 128, is_written=False) == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("heads", "head", "says_so"), [(8, 64, True), (8, 128, False), (4, 64, False)]
)
def test_caches_of_narrow_heads_in_a_loop_are_a_doubt(heads: int, head: int, says_so: bool) -> None:
    """Four layers with caches [2, 2048, 8, 64] were 0.4 of the compiled cycles on v4 and v5p, 0.6
    on v6e."""

    def half(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    def step(  # noqa: PLR0913
        x: Any,
        queries: Any,
        keys_of: Any,
        values_of: Any,
        out: Any,
        keys: Any,
        values: Any,
        at: Any,
    ) -> Any:
        def layer(x: Any, one: Any) -> Any:
            made, k, v = _attended(x, one[0], (one[1], one[2]), *one[3:], at, is_written=True)
            return made, (k, v)

        return lax.scan(layer, x, (queries, keys_of, values_of, out, keys, values))

    into, cache = half(4, _WIDTH, heads, head), half(4, 2, 2048, heads, head)
    arrays = half(2, _WIDTH), into, into, into, half(4, heads, head, _WIDTH), cache, cache
    estimate = estimate_of(
        step, "v4-8", *arrays, jax.ShapeDtypeStruct((), jnp.int32), donated=(5, 6)
    )
    subjects = {doubt.subject for doubt in estimate.doubts}
    assert ("cache of narrow heads" in subjects) is says_so
