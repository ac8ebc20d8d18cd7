"""What collectives and batched products hold in memory besides the arrays of the program. The bytes and cycles in here
are those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse


def _estimate(function: Any, on: str, *shapes: Any, donated: tuple[int, ...] = ()) -> Estimate:
    traced = jax.jit(function, donate_argnums=donated).trace(*shapes)
    return estimate_program(parse_stablehlo(traced.lower(lowering_platforms=("tpu",)).as_text()), parse(on))


def _each(function: Any, given: Any, made: Any) -> Any:
    return jax.shard_map(function, mesh=AbstractMesh((8,), ("d",)), in_specs=given, out_specs=made, check_vma=False)


def _step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    summed = jax.lax.psum([x.T @ (jnp.sin(x) @ weight) for weight in weights], "d")
    return [weight - one for weight, one in zip(weights, summed, strict=True)]


@pytest.mark.parametrize(
    ("on", "count", "peak"), [("v3-8", 1, 8_912_896), ("v3-8", 3, 25_953_280), ("v5litepod-8", 2, 33_030_656)]
)
def test_sums_of_one_collective_are_held_until_the_last_and_in_place_unless_on_the_chip(
    on: str, count: int, peak: int
) -> None:
    arrays = [jax.ShapeDtypeStruct((1024, 1024), jnp.float32)] * count
    made = _estimate(_each(_step, (P(), P("d")), P()), on, arrays, arrays[0], donated=(0,))
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.1)


@pytest.mark.parametrize("on", ["v3-8", "v5litepod-8", "v6e-8", "v5p-16", "v4-16"])
def test_what_is_gathered_is_copied_into_a_result(on: str) -> None:
    gather = _each(lambda x: jax.lax.all_gather(x, "d", axis=0, tiled=True), P("d"), P())
    made = _estimate(gather, on, jax.ShapeDtypeStruct((4096, 2048), jnp.float32))
    assert made.peak_hbm_bytes == pytest.approx(71_303_168, rel=0.01)


@pytest.mark.parametrize(("on", "cycles"), [("v3-8", 2 * 149_360), ("v5litepod-1", 2 * 64_512)])
def test_operands_of_small_products_are_copied_where_the_products_number_is_in_lanes(on: str, cycles: int) -> None:
    arrays = [jax.ShapeDtypeStruct((1024, 64, 64), jnp.bfloat16)] * 2
    batched = _estimate(lambda a, b: jnp.einsum("bik,bkj->bij", a, b), on, *arrays)
    assert sum(op.cycles for op in batched.ops if op.kind == "copy") > 0
    large = [jax.ShapeDtypeStruct((64, 256, 256), jnp.bfloat16)] * 2
    whole = _estimate(lambda a, b: jnp.einsum("bik,bkj->bij", a, b), on, *large)
    assert not [op for op in whole.ops if op.kind == "copy"]
    products = next(op for op in batched.ops if op.kind == "matrix")
    assert products.flops == 2 * 1024 * 64**3
    assert batched.cycles > cycles * 0.85


def test_a_small_weight_tile_loads_by_its_rows_on_v6e() -> None:
    small, wide = (
        _estimate(
            lambda a, b: jnp.einsum("bik,bkj->bij", a, b),
            "v6e-1",
            jax.ShapeDtypeStruct((1024, 8, 64), jnp.bfloat16),
            jax.ShapeDtypeStruct((1024, 64, columns), jnp.bfloat16),
        )
        for columns in (8, 64)
    )
    units = [dict(next(op for op in one.ops if op.kind == "matrix").unit_cycles)["mxu"] for one in (small, wide)]
    assert units == pytest.approx([3072, 17_408], rel=0.15)
