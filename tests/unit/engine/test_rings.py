"""Products around a ring of devices: collectives and cycles of fully sharded perceptrons as libtpu
0.0.42.1 compiles them (two layers, stochastic gradient descent)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse


def _step(devices: int, rows: int, on: str) -> Estimate:
    """512 -> 1024 -> 512, weights split over all devices; `rows` on each."""
    mesh = AbstractMesh((devices,), ("d",), axis_types=(AxisType.Auto,))

    def array(shape: tuple[int, ...], *axes: str | None) -> Any:
        struct: Any = jax.ShapeDtypeStruct
        return struct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes)))

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = jax.nn.relu(x.astype(jnp.bfloat16) @ weight.astype(jnp.bfloat16))
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    def step(weights: Any, x: Any) -> Any:
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x))

    weights = [array((512, 1024), "d", None), array((1024, 512), None, "d")]
    lowered = jax.jit(step, donate_argnums=0).trace(
        weights, array((devices * rows, 512), "d", None)
    )
    return estimate_program(
        parse_stablehlo(lowered.lower(lowering_platforms=("tpu",)).as_text()), parse(on)
    )


def _sent(estimate: Estimate) -> Counter[str]:
    sent = Counter[str]()
    for one in estimate.collective_ops:
        sent[one.kind] += one.count
    return sent


@pytest.mark.parametrize(
    ("on", "devices", "rows"),
    [("v5litepod-8", 8, 768), ("v4-16", 8, 1024), ("v6e-8", 8, 1280), ("v5p-64", 32, 2048)],
)
def test_long_products_send_their_parts_around_a_ring(on: str, devices: int, rows: int) -> None:
    """Both sums of gradients, and the weights that one product reads; those that two read are
    gathered."""
    sent = _sent(_step(devices, rows, on))
    assert (sent["collective-permute"], sent["all-gather"], sent["reduce-scatter"]) == (
        3 * (devices + 1),
        1,
        0,
    )


@pytest.mark.parametrize(
    ("on", "devices", "rows"),
    [
        ("v5litepod-8", 8, 512),
        ("v6e-8", 8, 1024),
        ("v5litepod-4", 4, 4096),
        ("v5litepod-64", 64, 2048),
        ("v3-8", 8, 2048),
    ],
)
def test_short_ones_and_small_and_large_groups_do_not(on: str, devices: int, rows: int) -> None:
    assert not _sent(_step(devices, rows, on))["collective-permute"]


def test_what_goes_around_a_ring_is_hidden_and_its_product_dearer() -> None:
    short, long = _step(8, 512, "v5litepod-8"), _step(8, 768, "v5litepod-8")
    assert long.cycles > 1.8 * short.cycles
    assert any(
        one.hidden_seconds > 0 for one in long.collective_ops if one.kind == "collective-permute"
    )


@pytest.mark.parametrize(
    ("on", "devices", "is_said"), [("v5litepod-8", 8, True), ("v3-8", 8, False)]
)
def test_a_convolution_that_may_go_around_a_ring_is_a_doubt(
    on: str, devices: int, is_said: bool
) -> None:
    """Features of kernels split over all devices: the compiler was seen to send their parts around
    on v5e and v6e."""
    mesh = AbstractMesh((devices,), ("d",), axis_types=(AxisType.Auto,))
    struct: Any = jax.ShapeDtypeStruct
    spec: Any = P
    lax: Any = jax.lax
    images = struct((512, 16, 16, 128), jnp.bfloat16, sharding=NamedSharding(mesh, spec("d")))
    kernel = struct(
        (3, 3, 128, 128), jnp.bfloat16, sharding=NamedSharding(mesh, spec(None, None, None, "d"))
    )

    def run(x: Any, kernel: Any) -> Any:
        made = lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return lax.with_sharding_constraint(made, NamedSharding(mesh, spec("d")))

    text = jax.jit(run).trace(images, kernel).lower(lowering_platforms=("tpu",)).as_text()
    estimate = estimate_program(parse_stablehlo(text), parse(on))
    assert any(doubt.subject == "convolution in a ring" for doubt in estimate.doubts) == is_said
