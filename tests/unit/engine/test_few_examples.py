"""Chains of convolutions of few examples: parts of images become examples. The cycles and bytes in
here are those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse


def _chain(on: str, count: int, batch: int, size: int, features: int) -> Estimate:
    def run(x: Any, kernels: Any) -> Any:
        for place, kernel in enumerate(kernels):
            x = jax.nn.relu(x) if place else x
            numbers = ("NHWC", "HWIO", "NHWC")
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
        return x

    array: Any = jax.ShapeDtypeStruct
    x = array((batch, size, size, features), jnp.bfloat16)
    kernels = [array((3, 3, features, features), jnp.bfloat16)] * count
    text = jax.jit(run).trace(x, kernels).lower(lowering_platforms=("tpu",)).as_text()
    return estimate_program(parse_stablehlo(text), parse(on))


@pytest.mark.parametrize(
    ("on", "shape", "cycles", "peak"),
    [
        ("v5p-8", (1, 4, 32, 128), 48_908, 5_015_040),
        ("v5p-8", (4, 4, 32, 128), 101_126, 5_899_776),
        ("v5p-8", (3, 1, 32, 128), 46_231, 2_132_480),
        ("v5p-8", (3, 4, 48, 128), 134_579, 11_109_888),
        ("v5p-8", (3, 4, 32, 256), 161_756, 13_765_120),
        ("v5litepod-1", (1, 4, 32, 128), 83_010, 6_294_016),
        ("v5litepod-1", (4, 4, 32, 128), 142_842, 7_178_752),
        ("v5litepod-1", (3, 2, 32, 128), 74_158, 4_098_560),
        ("v5litepod-1", (3, 4, 64, 128), 423_943, 20_976_128),
    ],
)
def test_a_chain_of_convolutions_parts_its_images_once(
    on: str, shape: tuple[int, int, int, int], cycles: int, peak: int
) -> None:
    made = _chain(on, *shape)
    assert made.cycles == pytest.approx(cycles, rel=0.15)
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.12)
    assert made.doubts


def test_one_more_convolution_costs_no_more_parting() -> None:
    two, three, four = (_chain("v5p-8", count, 4, 32, 128).cycles for count in (2, 3, 4))
    # In the compiled programs, 17,406 cycles each time.
    assert three - two == pytest.approx(17_406, rel=0.1)
    assert four - three == pytest.approx(three - two, rel=0.05)


@pytest.mark.parametrize(("batch", "is_doubted"), [(4, True), (8, False)])
def test_few_images_in_steps_are_a_doubt(batch: int, is_doubted: bool) -> None:
    """Patches of 16 x 16 of 4 images took 6 to 20 times the model's cycles (v5e)."""

    def patches(images: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            images, kernel, (16, 16), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    array: Any = jax.ShapeDtypeStruct
    given = array((batch, 192, 192, 3), jnp.bfloat16), array((16, 16, 3, 256), jnp.bfloat16)
    text = jax.jit(patches).trace(*given).lower(lowering_platforms=("tpu",)).as_text()
    assert bool(estimate_program(parse_stablehlo(text), parse("v5litepod-1")).doubts) == is_doubted
