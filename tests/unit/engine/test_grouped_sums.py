"""Sums over groups of features, and sums alone. The cycles and bytes in here are those of compiled
programs (libtpu 0.0.42.1)."""

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

_F32, _BF16 = jnp.float32, jnp.bfloat16
_array: Any = jax.ShapeDtypeStruct


def _estimate(function: Callable[..., Any], on: str, *shapes: Any) -> Estimate:
    text = jax.jit(function).trace(*shapes).lower(lowering_platforms=("tpu",)).as_text()
    return estimate_program(parse_stablehlo(text), parse(on))


def _written_out(parts: Any) -> Any:
    return jnp.square(parts - parts.mean((1, 3), keepdims=True)).mean((1, 3), keepdims=True)


def _called(parts: Any) -> Any:
    return parts.var((1, 3), keepdims=True)


def _norm(x: Any, own: Any, groups: int, variance: Callable[[Any], Any]) -> Any:
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups).astype(_F32)
    mean = parts.mean((1, 3), keepdims=True)
    scaled = (parts - mean) * lax.rsqrt(variance(parts) + 1e-5)
    return (scaled.reshape(x.shape) * own[0] + own[1]).astype(x.dtype)


def _chain(norms: int, groups: int, variance: Callable[[Any], Any]) -> Callable[..., Any]:
    """A convolution, and as often as that a group norm and a convolution."""

    def run(x: Any, first: Any, own: Any, kernels: Any) -> Any:
        for kernel in (first, *kernels):
            x = x if kernel is first else jax.nn.silu(_norm(x, own, groups, variance))
            numbers = ("NHWC", "HWIO", "NHWC")
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
        return x

    return run


def _shapes(batch: int, size: int, features: int, norms: int) -> tuple[Any, ...]:
    kernel = _array((3, 3, features, features), _BF16)
    own = (_array((features,), _F32), _array((features,), _F32))
    first = _array((3, 3, 128, features), _BF16)
    return _array((batch, size, size, 128), _BF16), first, own, [kernel] * norms


@pytest.mark.parametrize(
    ("on", "shape", "groups", "cycles", "peak"),
    [
        ("v3-8", (8, 32, 128), 8, 373_442, 30_252_032),  # rows of images fill the lanes best
        ("v3-8", (8, 16, 256), 8, 301_603, 16_067_584),  # features of a group
        ("v3-8", (64, 16, 128), 8, 732_178, 34_479_104),  # examples
        ("v4-8", (8, 16, 256), 8, 141_636, 17_246_720),
        ("v5litepod-1", (8, 32, 256), 8, 1_068_957, 56_568_320),
        ("v5p-8", (8, 32, 128), 8, 165_581, 30_252_032),
        ("v6e-1", (8, 32, 256), 8, 567_616, 56_568_320),
    ],
)
def test_a_variance_that_is_called_twice_cuts_and_copies_its_array(
    on: str, shape: tuple[int, int, int], groups: int, cycles: int, peak: int
) -> None:
    made = _estimate(_chain(2, groups, _called), on, *_shapes(*shape, 2))
    assert made.cycles == pytest.approx(cycles, rel=0.12)
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.15)


@pytest.mark.parametrize(
    ("variance", "norms", "cycles"),
    [(_written_out, 2, 184_456), (_called, 1, 123_949)],
    ids=["written out", "once"],
)
def test_what_is_written_out_or_called_once_keeps_the_arrays_own_shape(
    variance: Callable[[Any], Any], norms: int, cycles: int
) -> None:
    made = _estimate(_chain(norms, 8, variance), "v3-8", *_shapes(8, 32, 128, norms))
    assert made.cycles == pytest.approx(cycles, rel=0.08)


@pytest.mark.parametrize(
    ("shape", "cycles", "peak"),
    [((8, 32, 128), 253_469, 9_594_880), ((32, 16, 64), 226_540, 9_053_184)],
)
def test_the_gradient_of_a_group_norm_keeps_the_shape(
    shape: tuple[int, int, int], cycles: int, peak: int
) -> None:
    run = _chain(1, 8, _called)

    def gradient(x: Any, first: Any, own: Any, kernels: Any) -> Any:
        def loss(first: Any, own: Any, kernels: Any) -> Any:
            return jnp.sum(jnp.square(run(x, first, own, kernels).astype(_F32)))

        return jax.grad(loss, (0, 1, 2))(first, own, kernels)

    made = _estimate(gradient, "v3-8", *_shapes(*shape, 1))
    assert made.cycles == pytest.approx(cycles, rel=0.08)
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.1)


def test_channels_in_front_are_cut_as_those_behind() -> None:
    def run(x: Any, first: Any, scale: Any, last: Any) -> Any:
        x = lax.conv(x, first, (1, 1), "SAME")
        parts = x.reshape(12, 8, 12, 40, 40).astype(_F32)
        mean, variance = (
            getattr(parts, name)((2, 3, 4), keepdims=True) for name in ("mean", "var")
        )
        scaled = ((parts - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape) * scale[
            :, None, None
        ]
        return lax.conv(jax.nn.silu(scaled.astype(x.dtype)), last, (1, 1), "SAME")

    kernels = [_array((96, features, 3, 3), _BF16) for features in (128, 96)]
    made = _estimate(
        run, "v3-8", _array((12, 128, 40, 40), _BF16), kernels[0], _array((96,), _F32), kernels[1]
    )
    assert made.cycles == pytest.approx(347_639, rel=0.08)
    assert made.peak_hbm_bytes == pytest.approx(23_398_400, rel=0.1)


def test_a_function_that_is_called_twice_is_seen_in_a_jaxpr_too() -> None:
    run, shapes = _chain(2, 8, _called), _shapes(8, 32, 128, 2)
    read = estimate_program(program_of_jaxpr(jax.make_jaxpr(run)(*shapes)), parse("v3-8"))
    parsed = _estimate(run, "v3-8", *shapes)
    assert read.cycles == pytest.approx(parsed.cycles, rel=0.01)
    assert read.peak_hbm_bytes == pytest.approx(parsed.peak_hbm_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("on", "cycles"),
    [
        ("v3-8", 324_736),
        ("v4-8", 181_888),
        ("v5litepod-1", 505_376),
        ("v5p-8", 235_360),
        ("v6e-1", 350_752),
    ],
)
def test_a_sum_that_is_all_a_kernel_does_is_worked_out_in_small_windows(
    on: str, cycles: int
) -> None:
    made = _estimate(lambda x: x.sum(0), on, _array((4096, 4096), _F32))
    assert made.cycles == pytest.approx(cycles, rel=0.05)
    fused = _estimate(lambda x: (x * x).sum(0), on, _array((4096, 4096), _F32))
    assert fused.cycles < made.cycles
