from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.base.errors import PodyardError
from podyard.engine.program.from_jaxpr import ops_of
from podyard.engine.program.ops import DeviceProgram, Op
from podyard.engine.timing.roofline import all_reduce_seconds, estimate_step
from podyard.hardware.accelerator_types import parse


def test_matrix_product_counts_its_flops_and_bytes() -> None:
    x, w = jnp.zeros((64, 128)), jnp.zeros((128, 32))
    ops = ops_of(jax.make_jaxpr(jax.jit(lambda a, b: jnp.sin(a @ b)))(x, w))
    matrix = [op for op in ops if op.kind == "matrix"]
    assert [(op.flops, op.hbm_bytes) for op in matrix] == [(2 * 64 * 128 * 32, 4 * (64 * 128 + 128 * 32 + 64 * 32))]
    sine = next(op for op in ops if op.name == "sin")
    assert (sine.flops, sine.hbm_bytes) == (64 * 32, 4 * 64 * 32)  # read fused, written as the result


def test_convolution_and_its_gradients_count_the_same_work() -> None:
    def conv(x: jax.Array, k: jax.Array) -> jax.Array:
        out = lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.sum(out**2)

    x, k = jnp.zeros((4, 8, 8, 32)), jnp.zeros((3, 3, 32, 64))
    ops = ops_of(jax.make_jaxpr(jax.grad(conv, argnums=(0, 1)))(x, k))
    flops = [op.flops for op in ops if op.kind == "matrix"]
    forward = 2 * 4 * 8 * 8 * 64 * 9 * 32
    assert flops == [forward] * 3


def test_loops_and_branches() -> None:
    x = jnp.zeros((8, 8))
    once = ops_of(jax.make_jaxpr(lambda a: a @ a)(x))[0].flops
    scan = ops_of(jax.make_jaxpr(lambda a: lax.scan(lambda c, _: (c @ a, None), a, None, length=5)[0])(x))
    assert sum(op.flops for op in scan if op.kind == "matrix") == 5 * once
    branches = ops_of(jax.make_jaxpr(lambda a: lax.cond(a[0, 0] > 0, lambda: a @ a @ a, lambda: a))(x))
    assert sum(op.flops for op in branches if op.kind == "matrix") == 2 * once


def test_step_time_follows_the_hardware() -> None:
    kind = parse("v3-32")
    generation = kind.generation
    flops_bound = DeviceProgram((Op("dot_general", "matrix", 10**12, 1),), 0)
    bytes_bound = DeviceProgram((Op("add", "other", 10**6, 10**9),), 0)
    per_core = generation.peak_bf16_flops_per_second / 2
    estimate = estimate_step(flops_bound, kind, 32)
    assert estimate.compute_seconds == pytest.approx(10**12 / per_core)
    assert estimate.estimate_model == "roofline"
    assert estimate_step(bytes_bound, kind, 32).compute_seconds == pytest.approx(
        10**9 / (generation.hbm_bytes_per_second / 2)
    )
    with pytest.raises(PodyardError):
        estimate_step(bytes_bound, kind, 0)


def test_all_reduce_grows_with_bytes_and_hops() -> None:
    small, large = parse("v3-32"), parse("v3-512")
    assert all_reduce_seconds(small, 2 * 10**8) > 1.9 * all_reduce_seconds(small, 10**8)
    assert all_reduce_seconds(large, 4) > all_reduce_seconds(small, 4) > 1e-6
    # Reference: 102 MB over a v3 torus takes 0.4 to 0.7 ms.
    assert 2e-4 < all_reduce_seconds(parse("v3-2048"), 102_000_000) < 9e-4


@pytest.mark.parametrize(
    "module",
    [
        "podyard.engine",
        "podyard.engine.executor",
        "podyard.engine.timing.roofline",
        "podyard.engine.program.ops",
        "podyard.engine.collectives.schedule",
        "podyard.domain.recipes",
    ],
)
def test_importing_needs_no_jax(module: str) -> None:
    code = f"import sys, {module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
