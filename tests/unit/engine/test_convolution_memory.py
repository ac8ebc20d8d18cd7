"""What programs with convolutions hold in memory, against peaks and cycles of the TPU compiler
(libtpu 0.0.42.1);
most of shapes that no record has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchmarks.corpus import vision
from benchmarks.corpus.data import slice_for
from benchmarks.corpus.layout import BF16, F32, ONE, Made
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

_NEAR, _NEAR_PEAK = 0.1, 0.03


def _estimate(made: Made, generation: str) -> Estimate:
    return estimate_program(parse_stablehlo(made.text()), parse(slice_for(generation, 1)))


def _transposed(batch: int, size: int, read: int, made: int, window: int, gradient: str) -> Made:
    """A transposed convolution in steps of two, or a gradient of it."""

    def run(x: Any, kernel: Any) -> Any:
        return lax.conv_transpose(x, kernel, (2, 2), "SAME")

    def pull(x: Any, kernel: Any, back: Any) -> Any:
        return jax.vjp(run, x, kernel)[1](back)[0 if gradient == "input" else 1]

    given = (
        ONE.array((batch, size, size, read), "", BF16),
        ONE.array((window, window, read, made), "", BF16),
    )
    if not gradient:
        return Made(run, given)
    return Made(pull, (*given, ONE.array((batch, 2 * size, 2 * size, made), "", BF16)))


@pytest.mark.parametrize(
    ("generation", "sizes", "gradient", "peak"),
    [
        ("v3", (32, 28, 128, 64, 4), "", 58_064_896),
        ("v3", (32, 56, 64, 3, 4), "input", 54_145_024),
        ("v3", (64, 32, 96, 48, 4), "input", 134_414_336),
        ("v3", (64, 32, 96, 48, 4), "kernel", 167_968_768),
        ("v3", (32, 16, 256, 128, 4), "kernel", 22_020_096),
        # Images that a convolution copies while it reads them are in HBM: weights are on the chip
        # at the start.
        ("v5e", (32, 28, 128, 64, 4), "input", 32_636_928),
        ("v5e", (32, 56, 64, 3, 4), "", 41_312_256),
        ("v5e", (32, 16, 256, 128, 4), "", 23_068_672),
        # What is turned around is on the chip, and so is the other operand at the start.
        ("v5e", (32, 28, 128, 64, 4), "kernel", 64_487_424),
        ("v5e", (32, 16, 256, 128, 4), "kernel", 26_214_400),
    ],
)
def test_a_transposed_convolution_holds_what_was_compiled(
    generation: str, sizes: tuple[int, int, int, int, int], gradient: str, peak: int
) -> None:
    assert (
        abs(_estimate(_transposed(*sizes, gradient), generation).peak_hbm_bytes / peak - 1)
        <= _NEAR_PEAK
    )


@pytest.mark.parametrize(
    ("generation", "sizes", "compiled"),
    [
        ("v3", (32, 28, 128, 64, 4), 127_396),
        ("v3", (32, 56, 64, 3, 4), 258_162),
        ("v3", (32, 16, 256, 128, 4), 144_902),
        ("v3", (16, 64, 32, 16, 3), 702_311),
        ("v5e", (32, 28, 128, 64, 4), 54_791),
        ("v5e", (32, 16, 256, 128, 4), 72_326),
    ],
)
def test_the_gradient_of_a_transposed_kernel_goes_over_no_zeros(
    generation: str, sizes: tuple[int, int, int, int, int], compiled: int
) -> None:
    """The gradient, which is larger, is turned around; the image goes over it in steps of two."""
    assert abs(_estimate(_transposed(*sizes, "kernel"), generation).cycles / compiled - 1) <= _NEAR


def _behind_another(batch: int, size: int, read: int, made: int, window: int) -> Made:
    """The gradient of the kernel of a transposed convolution between two convolutions."""

    def summed(x: Any, first: Any, last: Any, kernel: Any) -> Any:
        y = lax.conv_transpose(vision.conv(x, first), kernel, (2, 2), "SAME")
        return jnp.sum(vision.conv(y, last).astype(F32) ** 2)

    def gradient(x: Any, first: Any, kernel: Any, last: Any) -> Any:
        return jax.grad(functools.partial(summed, x, first, last))(kernel)

    kernels = ((3, 3, read, made), (window, window, made, read), (3, 3, read, read))
    return Made(
        gradient,
        (
            ONE.array((batch, size, size, read), "", BF16),
            *(ONE.array(k, "", BF16) for k in kernels),
        ),
    )


@pytest.mark.parametrize(
    ("generation", "sizes", "compiled", "peak"),
    [
        ("v3", (64, 16, 128, 64, 4), 1_157_329, 42_909_696),
        ("v3", (32, 28, 64, 64, 4), 1_699_187, 65_044_480),
        ("v4", (16, 16, 256, 128, 4), 395_461, 24_969_216),
        ("v5e", (32, 28, 64, 64, 4), 1_045_663, 65_191_936),
        ("v5p", (64, 16, 128, 64, 4), 442_159, 42_909_696),
    ],
)
def test_what_a_convolution_has_written_takes_cycles_to_turn_around(
    generation: str, sizes: tuple[int, int, int, int, int], compiled: int, peak: int
) -> None:
    estimate = _estimate(_behind_another(*sizes), generation)
    assert abs(estimate.cycles / compiled - 1) <= _NEAR
    assert abs(estimate.peak_hbm_bytes / peak - 1) <= _NEAR_PEAK


def _pooled(batch: int, size: int, features: int, window: int, gradient: bool) -> Made:
    def run(x: Any) -> Any:
        return lax.reduce_window(
            x, -jnp.inf, lax.max, (1, window, window, 1), (1, window, window, 1), "VALID"
        )

    x = ONE.array((batch, size, size, features), "", BF16)
    if not gradient:
        return Made(run, (x,))
    back = ONE.array((batch, size // window, size // window, features), "", BF16)
    return Made(lambda x, back: jax.vjp(run, x)[1](back)[0], (x, back))


@pytest.mark.parametrize(
    ("generation", "sizes", "gradient", "peak"),
    [
        # The gradient works on examples and features in tiles: what lies otherwise is copied before
        # and after.
        ("v3", (32, 56, 64, 2), True, 83_493_888),
        ("v3", (64, 32, 256, 2), True, 117_441_536),
        ("v4", (64, 32, 256, 2), True, 150_995_456),
        ("v5e", (64, 32, 256, 2), True, 150_995_456),
        ("v3", (256, 32, 32, 2), True, 37_749_760),
        # Images that lie so are on the chip when a program starts that only pools them, others are
        # not.
        ("v5e", (256, 32, 32, 2), False, 37_748_736),
        ("v5e", (128, 28, 192, 3), False, 81_051_648),
        ("v5e", (32, 56, 64, 2), False, 32_112_640),
    ],
)
def test_pooling_holds_what_was_compiled(
    generation: str, sizes: tuple[int, int, int, int], gradient: bool, peak: int
) -> None:
    assert (
        abs(_estimate(_pooled(*sizes, gradient), generation).peak_hbm_bytes / peak - 1)
        <= _NEAR_PEAK
    )


@pytest.mark.parametrize(
    ("generation", "made", "peak", "share"),
    [
        # Features lie in lanes, with padding; of columns of more than 32 numbers no mask is packed.
        ("v3", functools.partial(vision.vgg, (48, 96), 16, 96), 135_240_704, 0.03),
        ("v3", functools.partial(vision.vgg, (64, 128), 32, 64), 117_373_952, 0.08),
        ("v5e", functools.partial(vision.vgg, (64, 128), 32, 64), 118_305_280, 0.03),
        # What `silu` makes of a convolution is made again by what reads it, but for images on v4.
        ("v3", functools.partial(vision.autoencoder, 24, 96, 48), 91_984_896, 0.05),
        ("v3", functools.partial(vision.autoencoder, 64, 64, 64), 93_479_936, 0.05),
        ("v5e", functools.partial(vision.autoencoder, 24, 96, 48), 99_058_176, 0.06),
        ("v4", functools.partial(vision.autoencoder, 24, 96, 48), 128_008_704, 0.05),
    ],
)
def test_a_training_step_holds_what_was_compiled(
    generation: str, made: Callable[[], Made], peak: int, share: float
) -> None:
    assert abs(_estimate(made(), generation).peak_hbm_bytes / peak - 1) <= share


@pytest.mark.parametrize(
    ("generation", "image", "kernel", "stride", "gradient", "peak"),
    [
        # In groups: two copies of each array whose rows lie in sublanes; examples come into lanes.
        ("v3", (8, 56, 56, 128), (3, 3, 64, 128), 1, "", 40_517_632),
        ("v3", (8, 56, 56, 128), (3, 3, 64, 128), 1, "kernel", 53_362_688),
        ("v3", (128, 40, 40, 128), (7, 7, 64, 128), 1, "", 159_694_848),
        # Which operand is on the chip at the start: never images that are copied while they are
        # read.
        ("v5e", (16, 80, 80, 160), (1, 1, 160, 64), 1, "kernel", 99_647_488),
        ("v5e", (24, 80, 80, 3), (3, 3, 3, 160), 1, "input", 86_708_224),
        ("v5e", (16, 80, 80, 160), (1, 1, 160, 64), 1, "", 99_680_256),
        ("v5e", (256, 28, 28, 160), (7, 7, 160, 24), 2, "", 131_461_120),
    ],
)
def test_a_convolution_holds_what_was_compiled(
    generation: str,
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int,
    gradient: str,
    peak: int,
) -> None:
    made = vision.convolution(image, kernel, stride, gradient)
    assert abs(_estimate(made, generation).peak_hbm_bytes / peak - 1) <= _NEAR_PEAK


@pytest.mark.parametrize(
    ("weights", "peak"),
    [
        (BF16, 17_514_496),
        # Weights that a convolution converts are not on the chip when the program starts.
        (F32, 18_251_776),
    ],
)
def test_two_convolutions_start_with_the_weights_that_were_compiled(
    weights: Any, peak: int
) -> None:
    def run(x: Any, first: Any, second: Any) -> Any:
        return jax.nn.relu(vision.conv(jax.nn.relu(vision.conv(x, first)), second))

    x, kernels = ONE.array((64, 16, 16, 64), "", BF16), ((3, 3, 64, 128), (3, 3, 128, 128))
    made = Made(run, (x, *(ONE.array(kernel, "", weights) for kernel in kernels)))
    assert abs(_estimate(made, "v5e").peak_hbm_bytes / peak - 1) <= 0.01
