"""What collectives and batched products hold in memory besides the arrays of the program. The bytes
and cycles in here are those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.copies import on_chip
from podyard.engine.timing.estimate import Estimate
from podyard.engine.timing.schedule import (
    MemorySchedule,
    Step,
    depth_first,
    scattering_last,
    together,
)
from podyard.hardware.accelerator_types import parse


def _estimate(function: Any, on: str, *shapes: Any, donated: tuple[int, ...] = ()) -> Estimate:
    traced = jax.jit(function, donate_argnums=donated).trace(*shapes)
    return estimate_program(
        parse_stablehlo(traced.lower(lowering_platforms=("tpu",)).as_text()), parse(on)
    )


def _each(function: Any, given: Any, made: Any) -> Any:
    return jax.shard_map(
        function, mesh=AbstractMesh((8,), ("d",)), in_specs=given, out_specs=made, check_vma=False
    )


def _step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    summed = jax.lax.psum([x.T @ (jnp.sin(x) @ weight) for weight in weights], "d")
    return [weight - one for weight, one in zip(weights, summed, strict=True)]


@pytest.mark.parametrize(
    ("on", "count", "peak"),
    [("v3-8", 1, 8_912_896), ("v3-8", 3, 25_953_280), ("v5litepod-8", 2, 33_030_656)],
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
def test_operands_of_small_products_are_copied_where_the_products_number_is_in_lanes(
    on: str, cycles: int
) -> None:
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
    units = [
        dict(next(op for op in one.ops if op.kind == "matrix").unit_cycles)["mxu"]
        for one in (small, wide)
    ]
    assert units == pytest.approx([3072, 17_408], rel=0.15)


@pytest.mark.parametrize(
    ("on", "rows", "peak"),
    [
        ("v5litepod-1", 20_000, 42_025_472),
        ("v5litepod-1", 50_000, 129_065_472),
        ("v6e-1", 20_000, 42_025_472),
    ],
)
def test_a_scatter_into_many_zeros_has_a_place_beside_them_on_the_chip(
    on: str, rows: int, peak: int
) -> None:
    """Up to 16 MB it writes the zeros itself, which no other kernel then does."""
    table = jax.ShapeDtypeStruct((rows, 128), jnp.float32)
    step = _estimate(
        lambda places, given, table: table - 0.1 * jnp.zeros((rows, 128)).at[places].add(given),
        on, jax.ShapeDtypeStruct((2048,), jnp.int32),
        jax.ShapeDtypeStruct((2048, 128), jnp.float32), table,
    )  # fmt: skip
    assert step.peak_hbm_bytes == pytest.approx(peak, rel=0.01)


def test_zeros_that_a_scatter_starts_from_are_not_those_that_others_compare_with() -> None:
    """A rectifier after a sum over edges: rows that are looked up are scattered at once, and the
    zeros of the rectifier are no array. 26,509,824 bytes on v5e, 16,139,264 on v3."""

    def layer(
        own: jax.Array, other: jax.Array, nodes: jax.Array, near: jax.Array, far: jax.Array
    ) -> jax.Array:
        summed = jnp.zeros((10_000, 128)).at[far].add(nodes[near])
        return jax.nn.relu(summed @ own + nodes @ other)

    edges = jax.ShapeDtypeStruct((80_000,), jnp.int32)
    square = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    for on, peak in (("v3-8", 16_139_264), ("v5litepod-1", 26_509_824)):
        made = _estimate(
            layer,
            on,
            square,
            square,
            jax.ShapeDtypeStruct((10_000, 128), jnp.float32),
            edges,
            edges,
        )
        assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.02)


def test_what_finds_no_place_on_the_chip_is_in_hbm_and_the_longest_lived_is_first() -> None:
    steps = [
        Step((), (1,), 0, False), Step((), (2,), 0, False), Step((2,), (3,), 0, False),
        Step((1, 3), (), 0, False),
    ]  # fmt: skip
    assert on_chip(steps, {1: 6, 2: 4, 3: 4}, 10, {})[0] == {2, 3}
    assert on_chip(steps, {1: 6, 2: 4, 3: 4}, 14, {})[0] == {1, 2, 3}
    assert on_chip(steps, {1: 6, 2: 4, 3: 4}, 10, {})[1].max() == 8


def test_what_is_gone_before_a_result_is_made_lies_in_its_place_which_counts_as_a_whole() -> None:
    """Values 1 and 2 are never there at one time, and are gone before result 5 is made; 3 lives
    until then, and 4 is
    too large."""
    steps = [
        Step((), (3,), 0, False), Step((), (1,), 0, False), Step((1,), (), 0, False),
        Step((), (2,), 0, False),
        Step((2,), (4,), 0, False), Step((4,), (), 0, False), Step((3,), (5,), 0, False),
        Step((5,), (), 0, False),
    ]  # fmt: skip
    schedule = MemorySchedule(steps, {1: 2, 2: 3, 3: 1, 4: 7, 5: 6}).with_hosts({5})
    assert dict(schedule.sizes) == {1: 6, 2: 6, 3: 1, 4: 7, 5: 6}


def test_depth_first_each_step_comes_just_before_what_reads_it() -> None:
    """Two results, each of a large value that is summed up: one large value at a time, not both."""
    steps = [
        Step((), (1,), 0, False), Step((), (2,), 0, False), Step((1,), (3,), 0, False),
        Step((2,), (4,), 0, False),
        Step((3, 4), (5,), 0, False),
    ]  # fmt: skip
    sizes = {1: 8, 2: 8, 3: 1, 4: 1, 5: 1}
    ordered = depth_first(steps, sizes)
    assert [step.makes for step in ordered] in (
        [(1,), (3,), (2,), (4,), (5,)],
        [(2,), (4,), (1,), (3,), (5,)],
    )
    assert (MemorySchedule(steps, sizes).peak, MemorySchedule(ordered, sizes).peak) == (17, 10)


def test_a_joined_collective_runs_as_soon_as_all_that_it_sends_is_there() -> None:
    """Places 0 and 3 are one. What comes after it does not wait for place 3, and what reads it
    follows at once."""
    steps = [
        Step((), (1,), 0, False, tuple_number=7), Step((1,), (2,), 0, False),
        Step((), (3,), 0, False),
        Step((), (4,), 0, False, tuple_number=7),
    ]  # fmt: skip
    assert [step.makes for step in together(steps)] == [(1, 4), (2,), (3,)]


def test_what_takes_the_place_of_another_on_the_chip_needs_no_room_and_is_counted_twice() -> None:
    steps = [Step((), (1,), 0, False), Step((1,), (2,), 0, False), Step((2,), (), 0, False)]
    here, loads, twice = on_chip(steps, {1: 6, 2: 6}, 10, {2: 1})
    assert here == {1, 2} and loads.tolist() == [6, 6, 6] and twice.tolist() == [0, 6, 0]
    assert on_chip(steps, {1: 6, 2: 6}, 10, {})[0] == {1}


@pytest.mark.parametrize(
    ("rows", "lanes", "peak"), [(5120, 768, 149_473_792), (2048, 8192, 503_369_216)]
)
def test_a_state_that_is_changed_on_the_chip_is_counted_twice(
    rows: int, lanes: int, peak: int
) -> None:
    """Two arrays and their momentum, all donated: one is fetched to the chip while the other is
    changed, changed there, and copied back. The compiler counts it before and after the change."""

    def lion(params: Any, state: Any, grads: Any) -> Any:
        signs = jax.tree.map(
            lambda m, g: jnp.sign(0.9 * m + 0.1 * g.astype(jnp.float32)), state, grads
        )
        params = jax.tree.map(lambda p, s: p - 1e-4 * (s + 0.1 * p), params, signs)
        return params, jax.tree.map(
            lambda m, g: 0.99 * m + 0.01 * g.astype(jnp.float32), state, grads
        )

    shapes = [(rows, lanes), (lanes, rows), (rows,)]
    params, grads = (
        [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        for dtype in ("float32", "bfloat16")
    )
    made = _estimate(lion, "v5litepod-1", params, params, grads, donated=(0, 1))
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.01)


def test_scattered_sums_run_after_all_that_does_not_wait_for_them() -> None:
    steps = [
        Step((1,), (2,), 0, False, scatters=True),
        Step((2,), (3,), 0, False),
        Step((1,), (4,), 0, False),
    ]
    assert [step.makes for step in scattering_last(steps)] == [(4,), (2,), (3,)]


@pytest.mark.parametrize(("on", "peak"), [("v4-16", 36_184_064), ("v5litepod-8", 21_495_808)])
def test_a_sum_of_which_each_takes_a_part_is_whole_on_v4(on: str, peak: int) -> None:
    """An update by a scattered sum of 16 MiB: on v4 all of the sum is on the chip next to what is
    summed up."""

    def step(weight: jax.Array, x: jax.Array) -> jax.Array:
        return weight - jax.lax.psum_scatter(x.T @ x, "d", scatter_dimension=0, tiled=True)

    arrays = (
        jax.ShapeDtypeStruct((2048, 2048), jnp.float32),
        jax.ShapeDtypeStruct((512, 2048), jnp.float32),
    )
    made = _estimate(_each(step, (P("d"), P("d")), P("d")), on, *arrays, donated=(0,))
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.1)


@pytest.mark.parametrize("on", ["v3-8", "v5litepod-1"])
def test_results_of_small_products_lie_in_tiles_of_their_own(on: str) -> None:
    """What is joined is copied into such tiles, too, and a product reads the copy."""

    def pairs(arrays: list[jax.Array]) -> jax.Array:
        joined = jnp.stack(arrays, 1)
        return jnp.sin(jnp.einsum("bnd,bmd->bnm", joined, joined))

    made = _estimate(pairs, on, [jax.ShapeDtypeStruct((2048, 64), jnp.bfloat16)] * 6)
    assert made.peak_hbm_bytes == pytest.approx(10_158_080, rel=0.01)


def test_a_convolution_of_single_features_has_its_weights_on_the_chip_when_it_starts() -> None:
    def run(x: jax.Array, kernel: jax.Array) -> jax.Array:
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=dims, feature_group_count=256
        )

    arrays = [
        jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((16, 56, 56, 256), (7, 7, 1, 256))
    ]
    assert _estimate(run, "v5litepod-1", *arrays).peak_hbm_bytes == pytest.approx(
        77_127_680, rel=0.01
    )
