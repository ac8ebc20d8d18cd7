"""Sums that share an array, what is summed up and leaves, what is converted twice, mapped updates.
The figures in here are those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.engine.program.from_jaxpr import program_of_jaxpr
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

Shape = jax.ShapeDtypeStruct
F32, BF16, I32 = jnp.float32, jnp.bfloat16, jnp.int32


def _estimate(
    fn: Callable[..., Any], on: str, *args: Any, donate: tuple[int, ...] = ()
) -> Estimate:
    """Of the StableHLO, after a look that the function itself has the same."""
    jitted = jax.jit(fn, donate_argnums=donate)
    text = jitted.trace(*args).lower(lowering_platforms=("tpu",)).as_text()
    estimate = estimate_program(parse_stablehlo(text), parse(on))
    traced = estimate_program(program_of_jaxpr(jax.make_jaxpr(jitted)(*args)), parse(on))
    assert traced.cycles == pytest.approx(estimate.cycles, rel=0.01)
    return estimate


@pytest.mark.parametrize(
    ("on", "cycles"), [("v4-8", 227040), ("v5litepod-1", 468256), ("v6e-1", 250480)]
)
def test_what_is_summed_up_and_leaves_is_written_by_the_sum(on: str, cycles: int) -> None:
    array = Shape((16384, 1024), F32)
    made = _estimate(lambda x, y: ((x * y).sum(-1), x * y), on, array, array)
    assert len(made.ops) == 1
    assert made.cycles == pytest.approx(cycles, rel=0.2)


def _normed(x: Any, y: Any) -> Any:
    z = jnp.tanh(x) * y
    mean = z.mean(0)
    return (z - mean) / jnp.sqrt(jnp.square(z - mean).mean(0)), jax.nn.softmax(z, -1)


@pytest.mark.parametrize(
    ("on", "cycles", "peak"), [("v3-8", 611732, 134267904), ("v5litepod-1", 559179, 167830016)]
)
def test_sums_that_share_an_array_are_one_kernel_and_results_take_its_place(
    on: str, cycles: int, peak: int
) -> None:
    made = _estimate(_normed, on, *[Shape((4096, 2048), F32)] * 2)
    assert [op.kind for op in made.ops].count("reduce") == 2
    assert made.cycles == pytest.approx(cycles, rel=0.15)
    # v3: the result is written over what it is made from; v5e: neither argument is on the chip at
    # the start.
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.01)


def test_an_argument_that_only_a_first_kernel_reads_is_not_fetched_before() -> None:
    array = Shape((16384, 1024), F32)
    once = _estimate(lambda x, y: jnp.tanh(x) + y, "v6e-1", array, array)
    assert once.cycles == pytest.approx(250480, rel=0.1)
    assert once.on_chip_bytes == 0
    # What a later kernel reads again is.
    twice = _estimate(
        lambda x: x * lax.rsqrt((x * x).mean(-1, keepdims=True)), "v6e-1", Shape((4096, 2048), F32)
    )
    assert twice.peak_hbm_bytes == pytest.approx(100696064, rel=0.01)


def _normed_images(images: Any, kernel: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=dims)
    mean = x.astype(F32).mean((0, 1, 2))
    var = jnp.square(x.astype(F32) - mean).mean((0, 1, 2))
    return jnp.tanh((x.astype(F32) - mean) * lax.rsqrt(var + 1e-5)).sum((1, 2))


def test_a_value_that_is_converted_three_times_is_kept_once_and_narrow() -> None:
    images, kernel = Shape((32, 32, 32, 64), BF16), Shape((3, 3, 64, 64), BF16)
    made = _estimate(_normed_images, "v3-8", images, kernel)
    assert made.peak_hbm_bytes == pytest.approx(16943104, rel=0.02)
    assert made.cycles == pytest.approx(220731, rel=0.1)


def _grouped(query: Any, key: Any, value: Any) -> Any:
    query = query.reshape(2, 1024, 2, 4, 64)
    scores = jnp.einsum("btgrd,bsgd->bgrts", query, key, preferred_element_type=F32) * 0.125
    scores = jnp.where(jnp.tri(1024, dtype=bool), scores, -1e30)
    return jnp.einsum("bgrts,bsgd->btgrd", jax.nn.softmax(scores, -1).astype(BF16), value).reshape(
        2, 1024, 512
    )


def test_scores_of_grouped_heads_lie_on_the_chip_alone() -> None:
    key = Shape((2, 1024, 2, 64), BF16)
    made = _estimate(_grouped, "v5litepod-1", Shape((2, 1024, 8, 64), BF16), key, key)
    assert made.peak_hbm_bytes == pytest.approx(76087296, rel=0.05)
    assert made.temporary_bytes < 2**20


def test_sums_of_narrow_products_need_no_copy_of_them() -> None:
    def nearest(points: Any, centres: Any) -> Any:
        own = jax.nn.one_hot(jnp.argmax(points @ centres.T, 1), 80)
        return own.T @ points, own.sum(0)

    made = _estimate(nearest, "v3-8", Shape((16384, 96), F32), Shape((80, 96), F32))
    assert made.peak_hbm_bytes == pytest.approx(6440960, rel=0.05)


def _mapped_update(cache: Any, rows: Any, at: Any) -> Any:
    return jax.vmap(lambda one, row, at: lax.dynamic_update_slice(one, row, (at, 0, 0)))(
        cache, rows, at
    )


_MAPPED = [
    ("v3-8", 8, 14129), ("v4-8", 8, 33310), ("v5litepod-1", 8, 95205), ("v5litepod-1", 32, 358557),
    ("v5p-8", 8, 112747), ("v6e-1", 8, 110397),
]  # fmt: skip


@pytest.mark.parametrize(("on", "batch", "cycles"), _MAPPED)
def test_a_mapped_update_puts_parts_in_one_by_one(on: str, batch: int, cycles: int) -> None:
    cache, rows, at = (
        Shape((batch, 1024, 4, 128), BF16),
        Shape((batch, 1, 4, 128), BF16),
        Shape((batch,), I32),
    )
    made = _estimate(_mapped_update, on, cache, rows, at, donate=(0,))
    assert made.cycles == pytest.approx(cycles, rel=0.1)


def test_rows_at_places_of_two_axes_are_scattered_at_once() -> None:
    cache, rows, at = Shape((8, 1024, 4, 128), BF16), Shape((8, 4, 128), BF16), Shape((8,), I32)
    made = _estimate(
        lambda cache, rows, at: cache.at[jnp.arange(8), at].set(rows),
        "v5litepod-1",
        cache,
        rows,
        at,
        donate=(0,),
    )
    assert made.cycles == pytest.approx(1828, rel=0.1)
