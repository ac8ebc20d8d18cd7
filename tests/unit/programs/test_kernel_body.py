"""Work of Pallas kernels over their grids, from traced bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from podyard.base.kernel_cost import KernelCost, cost_estimate_of, kernel_cost_of
from podyard.programs.kernels.kernel_body import (
    BLOCKS_BY_VALUES,
    BY_VALUES,
    DYNAMIC_LOOP,
    kernel_cost,
)
from podyard.programs.lowering.kernel_rules import scoped_vmem_bytes

jax: Any = pytest.importorskip("jax", reason="kernels are traced by JAX")
jnp: Any = jax.numpy
pl: Any = pytest.importorskip("jax.experimental.pallas")
pltpu: Any = pytest.importorskip("jax.experimental.pallas.tpu")

SQUARE = jax.ShapeDtypeStruct((512, 512), jnp.float32)


def _calls(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            yield equation.params
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns") and equation.primitive.name != "pallas_call":
                yield from _calls(inner)


def _cost(function: Any, *shapes: Any) -> KernelCost:
    (params,) = _calls(jax.make_jaxpr(function)(*shapes).jaxpr)
    return kernel_cost("kernel", params)


def _product(when: Any = None, **options: Any) -> Any:
    def kernel(x: Any, y: Any, out: Any) -> None:
        def multiply() -> None:
            out[...] += jnp.dot(x[...], y[...])

        if when is None:
            multiply()
        else:
            pl.when(when(x))(multiply)

    specs = [
        pl.BlockSpec((128, 128), lambda i, _, k: (i, k)),
        pl.BlockSpec((128, 128), lambda _, j, k: (k, j)),
    ]
    out = pl.BlockSpec((128, 128), lambda i, j, _: (i, j))
    return pl.pallas_call(
        kernel, grid=(4, 4, 4), in_specs=specs, out_specs=out, out_shape=SQUARE, **options
    )


def test_a_body_counts_for_each_step_and_a_block_where_its_index_changes() -> None:
    cost = _cost(_product(), SQUARE, SQUARE)
    assert (cost.flops, cost.matrix_flops, cost.steps) == (2 * 512**3, 2 * 512**3, 64)
    # the result's index changes every fourth step
    assert cost.hbm_bytes == (64 + 64 + 16) * 128 * 128 * 4
    assert cost.vector_operations == 64 * 128 * 128
    assert cost.vmem_bytes == 2 * 3 * 128 * 128 * 4
    assert cost.doubts == ()


def test_a_branch_counts_for_the_steps_that_take_it() -> None:
    below = _product(lambda _: pl.program_id(0) >= pl.program_id(1))
    assert _cost(below, SQUARE, SQUARE).flops == 2 * 512**3 * 10 / 16
    first = _product(lambda _: pl.program_id(2) == 0)
    assert _cost(first, SQUARE, SQUARE).flops == 2 * 512**3 / 4


def test_a_branch_by_values_counts_in_full_and_is_named() -> None:
    cost = _cost(_product(lambda x: x[0, 0] > 0), SQUARE, SQUARE)
    assert cost.flops == 2 * 512**3
    assert cost.doubts == (f"kernel kernel {BY_VALUES}",)


def test_the_author_s_estimate_wins() -> None:
    estimate = pl.CostEstimate(flops=512**3, bytes_accessed=1000, transcendentals=7)
    cost = _cost(_product(lambda x: x[0, 0] > 0, cost_estimate=estimate), SQUARE, SQUARE)
    assert (cost.flops, cost.hbm_bytes, cost.transcendentals, cost.doubts) == (512**3, 1000, 7, ())
    assert cost.vector_operations == 64 * 128 * 128 / 2  # as large a share as of the products


def test_a_batched_kernel_does_as_much_for_each_example() -> None:
    batch = jax.ShapeDtypeStruct((3, 512, 512), jnp.float32)
    assert _cost(jax.vmap(_product()), batch, batch).flops == 3 * 2 * 512**3


def test_narrow_blocks_fill_whole_lanes() -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], x[...])

    cost = _cost(
        pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8, 8), jnp.float32)),
        jnp.ones((8, 8)),
    )
    assert (cost.flops, cost.matrix_flops) == (2 * 8**3, 2 * 8 * 128 * 128)


def test_loops_count_their_turns_where_these_are_known() -> None:
    def kernel(x: Any, out: Any) -> None:
        def turn(_: Any, total: Any) -> Any:
            return total + jnp.exp(x[...])

        out[...] = jax.lax.fori_loop(0, 5, turn, jnp.zeros_like(out))

    cost = _cost(
        pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32)),
        jnp.ones((8, 128)),
    )
    assert (cost.transcendentals, cost.vector_operations) == (5 * 1024, 5 * 1024)

    def triangle(x: Any, out: Any) -> None:
        def turn(_: Any, total: Any) -> Any:
            return total + jnp.exp(x[...])

        out[...] = jax.lax.fori_loop(0, pl.program_id(0), turn, jnp.zeros_like(out))

    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    rows = jax.ShapeDtypeStruct((32, 128), jnp.float32)
    call = pl.pallas_call(triangle, grid=(4,), in_specs=[block], out_specs=block, out_shape=rows)
    assert _cost(call, rows).transcendentals == (0 + 1 + 2 + 3) * 1024


def test_prefetched_indices_are_not_known() -> None:
    def kernel(table: Any, x: Any, out: Any) -> None:
        def turn(_: Any, total: Any) -> Any:
            return total + x[...]

        out[...] = jax.lax.fori_loop(0, table[0], turn, jnp.zeros_like(out))

    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(4,),
        in_specs=[pl.BlockSpec((8, 128), lambda i, table: (table[i], 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i, _: (i, 0)),
    )
    rows = jax.ShapeDtypeStruct((32, 128), jnp.float32)
    cost = _cost(
        pl.pallas_call(kernel, grid_spec=grid, out_shape=rows), jnp.zeros(4, jnp.int32), rows
    )
    assert cost.hbm_bytes == 8 * 8 * 128 * 4
    assert cost.doubts == (f"kernel kernel {DYNAMIC_LOOP}", f"kernel kernel {BLOCKS_BY_VALUES}")


def test_a_record_is_read_back_and_nothing_else_is_one() -> None:
    cost = KernelCost("kernel", 1.0, 2.0, 3.0, vmem_limit_bytes=4.0, doubts=("kernel guesses",))
    assert kernel_cost_of(cost.to_json()) == cost
    for text in (
        "",
        "[]",
        "{}",
        cost.to_json().replace("1.0", "-1.0"),
        cost.to_json().replace("1.0", '"x"'),
    ):
        assert kernel_cost_of(text) is None


def test_the_author_s_estimate_is_read_from_a_backend_config() -> None:
    estimate = {"flops": 5, "transcendentals": 6, "bytes_accessed": 7}
    config = {"custom_call_config": {"body": "", "cost_estimate": estimate}}
    assert cost_estimate_of("k", config) == KernelCost("k", 5, 7, 5, 0, 6)
    assert cost_estimate_of("k", {"custom_call_config": {"body": ""}}) is None
    assert (
        cost_estimate_of("k", {"custom_call_config": {"cost_estimate": {"flops": "many"}}}) is None
    )


def test_flags_of_libtpu_set_the_scoped_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scoped_vmem_bytes() is None
    flags = "--xla_tpu_scoped_vmem_limit_kib=1 --xla_tpu_scoped_vmem_limit_kib=98304"
    monkeypatch.setenv("LIBTPU_INIT_ARGS", flags)
    assert scoped_vmem_bytes() == 96 * 2**20


def test_only_masks_that_order_two_axes_are_causal() -> None:
    def kernel(x: Any, y: Any, out: Any) -> None:
        scores = jnp.dot(x[...], y[...])
        rows, columns = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
        limits = {"causal": rows + 128 * pl.program_id(0) >= columns, "length": columns < 100}
        out[...] = jnp.where(limits[kind], scores, 0.0)

    for kind in ("causal", "length"):
        call = pl.pallas_call(
            kernel, grid=(4,), out_shape=SQUARE,
            in_specs=[pl.BlockSpec((128, 512), lambda i: (i, 0)), pl.BlockSpec((512, 512))],
            out_specs=pl.BlockSpec((128, 512), lambda i: (i, 0)),
        )  # fmt: skip
        cost = _cost(call, SQUARE, SQUARE)
        assert cost.flops == 2 * 512**3
        assert cost.causal_flops == (cost.flops if kind == "causal" else 0)
