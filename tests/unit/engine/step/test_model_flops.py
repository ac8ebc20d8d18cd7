"""MFU and HFU by the field's definition: of functions, of their StableHLO, and of what `podyard
estimate` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from podyard import engine
from podyard.cli.kit.commands import root
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.step.model_flops import SUSTAINED_SHARE, Flops, model_flops
from podyard.programs.modules.locations import again_alone

LAYERS, ROWS, WIDTH, HIDDEN = 4, 8192, 1024, 4096
PRODUCT = 2 * ROWS * WIDTH * HIDDEN
SHAPES = (
    jax.ShapeDtypeStruct((LAYERS, WIDTH, HIDDEN), jnp.bfloat16),
    jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.bfloat16),
)


def _gradient(remat: bool, scan: bool) -> Any:
    """Each layer has two products forward, and four backward."""

    def block(h: Any, w: Any) -> Any:
        return jnp.tanh(jnp.tanh(h @ w) @ w.T), None

    layer = jax.checkpoint(block) if remat else block

    def loss(w: Any, x: Any) -> Any:
        if scan:
            return jax.lax.scan(layer, x, w)[0].sum()
        for number in range(LAYERS):
            x, _ = layer(x, w[number])
        return x.sum()

    return jax.value_and_grad(loss)


def _text(function: Any, *arguments: Any) -> str:
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
    return str(lowered.as_text(debug_info=True))


@pytest.mark.parametrize("scan", [False, True])
def test_what_is_computed_again_counts_for_hardware_alone(scan: bool) -> None:
    # Of the first layer nothing needs the gradient of its input, unless all layers are one.
    backward = 4 * LAYERS - (0 if scan else 1)
    for remat in (False, True):
        function = _gradient(remat, scan)
        text = _text(function, *SHAPES)
        # The last product of a layer need not be computed again: nothing but its result is left of
        # it.
        again = LAYERS * 2 if remat else 0
        for found in (
            engine.analyze(function, *SHAPES, accelerator_type="v5litepod-1"),
            engine.analyze_stablehlo(text, "v5litepod-1"),
            engine.analyze_stablehlo(again_alone(text), "v5litepod-1"),
        ):
            assert found.model_flops / PRODUCT == 2 * LAYERS + backward
            assert found.hardware_flops / PRODUCT == 2 * LAYERS + backward + again
            assert found.hfu / found.mfu == pytest.approx(found.hardware_flops / found.model_flops)
            assert found.mfu == pytest.approx(found.model_flops / found.modelled_seconds / 197e12)


def test_other_modules_keep_no_locations() -> None:
    lowered = (
        jax.jit(_gradient(remat=False, scan=True)).trace(*SHAPES).lower(lowering_platforms=("tpu",))
    )
    assert again_alone(lowered.as_text(debug_info=True)) == lowered.as_text()
    kept = again_alone(_text(_gradient(remat=True, scan=True), *SHAPES))
    assert "rematted_computation" in kept and ".py" not in kept


def test_a_function_that_is_called_while_computing_again_is_computed_again() -> None:
    def loss(w: Any, x: Any) -> Any:
        @jax.jit
        def inner(h: Any) -> Any:
            return jnp.tanh(h @ w)

        return jax.checkpoint(lambda x: jnp.sin(inner(x)))(x).sum()

    shapes = (
        jax.ShapeDtypeStruct((64, 64), jnp.float32),
        jax.ShapeDtypeStruct((32, 64), jnp.float32),
    )
    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    for found in (
        engine.analyze(gradient, *shapes),
        engine.analyze_stablehlo(_text(gradient, *shapes)),
    ):
        assert (found.model_flops, found.hardware_flops) == (
            3 * 2 * 32 * 64 * 64,
            4 * 2 * 32 * 64 * 64,
        )


@pytest.mark.parametrize("way", ["sharded", "shard_map", "replicated"])
def test_flops_of_a_slice_are_those_of_the_whole_program(way: str) -> None:
    mesh = AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def of(*spec: str | None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            (4096, 4096), jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec))
        )

    def product(a: Any, b: Any) -> Any:
        return a @ b

    function, rows = product, of("x", None)
    if way == "shard_map":
        function = jax.shard_map(product, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    if way == "replicated":
        rows = of(None, None)
    found = engine.analyze(function, rows, of(None, None), accelerator_type="v5litepod-8")
    assert found.devices == 8
    assert found.model_flops == 2 * 4096**3 / 8
    text = engine.analyze_stablehlo(_text(function, rows, of(None, None)), "v5litepod-8")
    assert (text.model_flops, text.mfu) == (found.model_flops, pytest.approx(found.mfu, rel=0.01))
    if way == "replicated":
        assert found.mfu <= 1 / 8


@pytest.mark.parametrize(
    "accelerator_type", ["v2-8", "v3-8", "v4-8", "v5litepod-1", "v5p-8", "v6e-1"]
)
@pytest.mark.parametrize("size", [2048, 4096, 16384])
def test_no_product_exceeds_what_is_measured(accelerator_type: str, size: int) -> None:
    shape = jax.ShapeDtypeStruct((size, size), jnp.bfloat16)
    found = engine.analyze(lambda a, b: a @ b, shape, shape, accelerator_type=accelerator_type)
    assert found.mfu <= SUSTAINED_SHARE + 1e-9
    assert found.mfu == found.hfu > 0.4


def test_bytes_have_a_peak_of_their_own_and_are_held_against_bf16() -> None:
    shape = jax.ShapeDtypeStruct((8192, 8192), jnp.int8)

    def product(a: Any, b: Any) -> Any:
        return jax.lax.dot(a, b, preferred_element_type=jnp.int32)

    found = engine.analyze(product, shape, shape, accelerator_type="v5litepod-1")
    assert (found.peak_flops_per_second, found.dtype_peak_flops_per_second) == (197e12, 393e12)
    assert 1 < found.mfu <= 2 * SUSTAINED_SHARE


@pytest.mark.parametrize(
    "cost", ["", ", \\22cost_estimate\\22: {\\22flops\\22: 123000, \\22bytes_accessed\\22: 5}"]
)
def test_kernels_count_what_their_author_states(cost: str) -> None:
    """With the configuration that JAX gives Pallas kernels, as MLIR prints it."""
    config = "{\\22custom_call_config\\22: {\\22body\\22: \\22TUzv\\22" + cost + "}}"
    types = "(tensor<128x128xf32>) -> tensor<128x128xf32>"
    text = f"""module @m {{
  func.func public @main(%arg0: tensor<128x128xf32>) -> tensor<128x128xf32> {{
    %0 = stablehlo.custom_call @tpu_custom_call(%arg0) {{backend_config = "{config}"}} : {types}
    return %0 : tensor<128x128xf32>
  }}
}}
"""
    flops = 123_000 if cost else 0
    assert model_flops(parse_stablehlo(text)) == Flops(flops, flops, 0)


def test_the_command_prints_both(tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(_text(_gradient(remat=True, scan=True), *SHAPES), encoding="utf-8")
    arguments = ["estimate", str(path), "--accelerator-type", "v5litepod-1"]
    table = CliRunner().invoke(root, arguments).stdout
    assert "MFU, model FLOPs" in table and "HFU, with recomputation" in table
    found = json.loads(CliRunner().invoke(root, [*arguments, "-o", "json"]).stdout)
    assert found["hfu"] / found["mfu"] == pytest.approx(8 / 6)
    assert (found["peakFlopsPerSecond"], found["dtypePeakFlopsPerSecond"]) == (197e12, 197e12)


HEADS, TOKENS, DEPTH = 4, 128, 64
ATTENTION = jax.ShapeDtypeStruct((2, TOKENS, HEADS, DEPTH), jnp.float32)
SCORES = 2 * 2 * HEADS * TOKENS * TOKENS * DEPTH


def _attention(masked: Any) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = masked(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)

    return attention


def _by_triangle(scores: Any) -> Any:
    return jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), scores, -1e9)


def _by_position(scores: Any) -> Any:
    place = jnp.arange(TOKENS)
    return jnp.where(
        (place[:, None] >= place[None, :])[None, None], scores, jnp.finfo(scores.dtype).min
    )


def _by_addition(scores: Any) -> Any:
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (TOKENS, TOKENS), axis) for axis in (0, 1))
    return scores + jnp.where(column <= row, 0.0, -1e9)[None, None]


def _by_padding(scores: Any) -> Any:
    return jnp.where(jnp.arange(TOKENS) < 100, scores, -1e9)


@pytest.mark.parametrize("is_gradient", [False, True])
@pytest.mark.parametrize(
    ("attention", "is_causal"),
    [
        (_attention(_by_triangle), True),
        (_attention(_by_position), True),
        (_attention(_by_addition), True),
        (_attention(_by_padding), False),
        (_attention(lambda scores: scores), False),
        (lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), True),
        (lambda q, k, v: jax.nn.dot_product_attention(q, k, v), False),
        (
            lambda q, k, v: jax.lax.scan(
                lambda x, _: (_attention(_by_triangle)(x, x * k, v), None), q, None, 3
            )[0],
            True,
        ),
    ],
)
def test_causal_attention_counts_half(attention: Any, is_causal: bool, is_gradient: bool) -> None:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v).sum()

    function = jax.grad(loss, (0, 1, 2)) if is_gradient else attention
    for found in (
        engine.analyze(function, *[ATTENTION] * 3),
        engine.analyze_stablehlo(_text(function, *[ATTENTION] * 3)),
    ):
        assert found.hardware_flops >= 2 * SCORES
        assert found.model_flops == found.hardware_flops / (2 if is_causal else 1)
        assert found.with_full_attention().model_flops == found.hardware_flops


def test_other_products_of_a_causal_model_count_in_full(tmp_path: Path) -> None:
    def block(q: Any, k: Any, v: Any, w: Any) -> Any:
        return _attention(_by_triangle)(q @ w, k @ w, v @ w) @ w

    shapes = (*[ATTENTION] * 3, jax.ShapeDtypeStruct((DEPTH, DEPTH), jnp.float32))
    plain = 4 * 2 * 2 * TOKENS * HEADS * DEPTH * DEPTH
    found = engine.analyze(block, *shapes)
    assert (found.model_flops, found.hardware_flops) == (plain + SCORES, plain + 2 * SCORES)
    path = tmp_path / "block.mlir"
    path.write_text(_text(block, *shapes), encoding="utf-8")
    half, full = (
        json.loads(CliRunner().invoke(root, ["estimate", str(path), "-o", "json", *options]).stdout)
        for options in ([], ["--mfu", "causal=full"])
    )
    assert full["mfu"] / half["mfu"] == pytest.approx((plain + 2 * SCORES) / (plain + SCORES))
    assert full["hfu"] == half["hfu"]
