"""float32 weights that are rounded by kernels before they are multiplied. The cycles and bytes are
those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.headed import copied_back, headed_weights
from podyard.engine.timing.rounded import round_before_loops
from podyard.hardware.cost_model import Tiling
from tests.unit.engine.compiled import estimate_of

_Stacks = tuple[Any, Any]


def _turn(state: Any, own: _Stacks) -> tuple[Any, None]:
    first, second = (one.astype(jnp.bfloat16) for one in own)
    return state + jnp.tanh(state @ first) @ second, None


def _forward(stacks: _Stacks, x: Any) -> Any:
    return jax.lax.scan(_turn, x, stacks)[0]


def _train(turn: Callable[..., Any]) -> Callable[[_Stacks, Any], Any]:
    def step(stacks: _Stacks, x: Any) -> Any:
        def loss(own: _Stacks) -> Any:
            return jnp.mean(jnp.square(jax.lax.scan(turn, x, own)[0].astype(jnp.float32)))

        return jax.tree.map(
            lambda one, gradient: one - 0.1 * gradient, stacks, jax.grad(loss)(stacks)
        )

    return step


def _shapes(layers: int, width: int, hidden: int) -> tuple[_Stacks, Any]:
    stacks = [
        jax.ShapeDtypeStruct((layers, *pair), jnp.float32)
        for pair in ((width, hidden), (hidden, width))
    ]
    return (stacks[0], stacks[1]), jax.ShapeDtypeStruct((width, width), jnp.bfloat16)


@pytest.mark.parametrize(
    ("on", "cycles"),
    [
        ("v3-8", 447_672),
        ("v4-8", 184_568),
        ("v5litepod-1", 365_064),
        ("v5p-8", 242_365),
        ("v6e-1", 237_136),
    ],
)
def test_stacks_that_a_loop_rounds_are_rounded_before_it(on: str, cycles: int) -> None:
    assert estimate_of(_forward, on, *_shapes(4, 512, 2048)).cycles == pytest.approx(
        cycles, rel=0.12
    )


@pytest.mark.parametrize(
    ("layers", "width", "hidden", "cycles", "peak", "hbm"),
    [
        (4, 512, 2048, 607_616, 156_242_944, 34_079_232),
        (6, 256, 1024, 251_993, 58_201_088, 12_714_496),
    ],
)
def test_both_ways_share_rounded_stacks_on_the_chip(
    layers: int, width: int, hidden: int, cycles: int, peak: int, hbm: int
) -> None:
    made = estimate_of(_train(_turn), "v4-8", *_shapes(layers, width, hidden), donated=(0,))
    assert made.cycles == pytest.approx(cycles, rel=0.05)
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.12)
    assert made.peak_hbm_bytes - made.on_chip_bytes == pytest.approx(hbm, rel=0.01)


@pytest.mark.parametrize(
    ("on", "cycles"), [("v3-8", 1_493_976), ("v4-8", 656_012), ("v5p-8", 688_240)]
)
def test_slices_before_a_checkpoint_are_kernels(on: str, cycles: int) -> None:
    step = _train(jax.checkpoint(_turn))
    assert estimate_of(step, on, *_shapes(4, 512, 2048), donated=(0,)).cycles == pytest.approx(
        cycles, rel=0.05
    )


def test_what_is_read_in_full_in_a_loop_is_not_rounded() -> None:
    def turn(state: Any, own: Any) -> tuple[Any, None]:
        return state @ own.astype(jnp.bfloat16) * jnp.sum(own).astype(jnp.bfloat16), None

    shapes = (
        jax.ShapeDtypeStruct((64, 64), jnp.bfloat16),
        jax.ShapeDtypeStruct((4, 64, 64), jnp.float32),
    )
    lowered = (
        jax.jit(lambda x, own: jax.lax.scan(turn, x, own)[0])
        .trace(*shapes)
        .lower(lowering_platforms=("tpu",))
    )
    program = parse_stablehlo(lowered.as_text())
    assert round_before_loops(program) is program


def _sgd(w: Any, m: Any, v: Any, gradient: Any) -> Any:
    return w - 0.1 * gradient, m, v


def _momentum(w: Any, m: Any, v: Any, gradient: Any) -> Any:
    m = 0.9 * m + gradient
    return w - 0.1 * m, m, v


def _adam(w: Any, m: Any, v: Any, gradient: Any) -> Any:
    m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient
    return w - 0.1 * m / (jnp.sqrt(v) + 1e-8), m, v


def _heads(update: Callable[..., Any]) -> Callable[..., Any]:
    def step(w: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            made = jnp.einsum("td,dhe->the", x, weights.astype(jnp.bfloat16))
            return jnp.mean(jnp.square((jnp.tanh(made) * y).astype(jnp.float32)))

        return update(w, m, v, jax.grad(loss)(w))

    return step


def _heads_shapes(width: int, heads: int) -> list[Any]:
    weights = [jax.ShapeDtypeStruct((width, heads, 128), jnp.float32)] * 3
    rows = [
        jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((512, width), (512, heads, 128))
    ]
    return [*weights, *rows]


@pytest.mark.parametrize(
    ("update", "width", "heads", "cycles"),
    [
        (_sgd, 512, 8, 26_702),
        (_sgd, 1024, 16, 84_094),
        (_momentum, 512, 8, 35_886),
        (_adam, 1024, 16, 164_658),
    ],
)
def test_weights_with_heads_are_converted_and_copied_back(
    update: Callable[..., Any], width: int, heads: int, cycles: int
) -> None:
    made = estimate_of(_heads(update), "v4-8", *_heads_shapes(width, heads), donated=(0, 1, 2))
    assert made.cycles == pytest.approx(cycles, rel=0.14)


def test_which_weights_have_heads_as_a_middle_axis() -> None:
    lowered = (
        jax.jit(_heads(_momentum)).trace(*_heads_shapes(512, 8)).lower(lowering_platforms=("tpu",))
    )
    program, tiling = parse_stablehlo(lowered.as_text()), Tiling(min_sublanes=1)
    assert headed_weights(program, program.body, tiling) == {program.body.parameters[0]}
    assert [str(one) for one in copied_back(program, tiling)] == ["f32[512,8,128]"] * 2


@pytest.mark.parametrize(
    ("count", "width", "hbm"),
    [(8, 2048, 171_401_728), (10, 2048, 213_344_768), (14, 1536, 172_711_424)],
)
def test_sums_that_find_no_room_next_to_arguments_are_in_memory_on_v4(
    count: int, width: int, hbm: int
) -> None:
    def step(weights: list[Any], x: Any) -> list[Any]:
        sent = [x.T @ (jnp.sin(x) @ one.astype(jnp.bfloat16)) for one in weights]
        summed = jax.lax.psum(sent, "d")
        return [one - made.astype(jnp.float32) for one, made in zip(weights, summed, strict=True)]

    mesh = AbstractMesh((8,), ("d",))
    each = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("d")), out_specs=P(), check_vma=False)
    arrays = [jax.ShapeDtypeStruct((width, width), jnp.float32)] * count
    made = estimate_of(
        each, "v4-16", arrays, jax.ShapeDtypeStruct((2048, width), jnp.bfloat16), donated=(0,)
    )
    assert made.peak_hbm_bytes - made.on_chip_bytes == pytest.approx(hbm, rel=0.16)
