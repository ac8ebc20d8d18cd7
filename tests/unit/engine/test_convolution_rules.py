"""Rules of convolutions against cycles that the TPU compiler gave (libtpu 0.0.42.1), shapes that no
record has."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from benchmarks.corpus import vision
from benchmarks.corpus.data import slice_for
from benchmarks.corpus.layout import BF16, F32, ONE, train
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import TensorType
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.convolutions import Convolution
from podyard.engine.timing.kernels import relayout_price
from podyard.engine.timing.packed_taps import packing_cycles
from podyard.hardware.accelerator_types import parse
from podyard.hardware.generations import cost_model

_NEAR = 0.12


@pytest.mark.parametrize(
    ("generation", "shape", "minor", "compiled"),
    [
        # Turned: both ends are moved twice on v2 and v3, examples or features come into lanes.
        ("v3", (24, 40, 40, 24), (3, 0), 76_280),
        ("v3", (16, 72, 72, 128), (0, 3), 996_840),
        ("v3", (200, 36, 36, 128), (0, 3), 721_548),
        # The same axis stays in lanes; a tile of few features is not a whole one.
        ("v3", (128, 4, 4, 128), (3, 0), 8_134),
        ("v3", (160, 40, 40, 3), (0, 2), 25_172),
        # One end stays on the chip.
        ("v4", (16, 80, 80, 64), (3, 0), 90_656),
    ],
)
def test_a_copy_has_the_axis_in_lanes_that_it_is_for(
    generation: str, shape: tuple[int, ...], minor: tuple[int, int], compiled: int
) -> None:
    cycles = relayout_price(TensorType(shape, "bf16"), minor, cost_model(generation)).cycles
    assert abs(cycles / compiled - 1) <= _NEAR


@pytest.mark.parametrize(
    ("generation", "image", "kernel", "stride", "gradient", "compiled"),
    [
        # Each feature by itself, examples in lanes: it is worked on in rows of features all the
        # same.
        ("v3", (160, 36, 36, 32), (5, 5, 1, 32), 1, "", 1_354_194),
        ("v3", (32, 20, 20, 16), (3, 3, 1, 16), 1, "", 34_210),
        ("v4", (96, 20, 20, 80), (7, 7, 1, 80), 1, "", 254_138),
        ("v6e", (160, 36, 36, 32), (5, 5, 1, 32), 1, "", 1_306_726),
        ("v3", (8, 56, 56, 384), (5, 5, 1, 384), 1, "kernel", 388_045),
        ("v6e", (8, 28, 28, 128), (3, 3, 1, 128), 1, "kernel", 8_506),
        # In groups: copies with examples in lanes; padded groups that are read; two copies where
        # rows lie in sublanes.
        ("v3", (24, 20, 20, 128), (3, 3, 8, 128), 1, "kernel", 391_778),
        ("v4", (24, 20, 20, 128), (3, 3, 64, 128), 1, "", 97_768),
        ("v3", (24, 56, 56, 128), (1, 1, 32, 128), 1, "", 2_608_892),
        ("v3", (24, 20, 20, 128), (3, 3, 64, 128), 1, "kernel", 101_298),
        # A long row of taps of few features; equal numbers of examples and features.
        ("v3", (24, 40, 40, 24), (7, 7, 24, 160), 1, "", 808_251),
        ("v3", (24, 40, 40, 24), (7, 7, 24, 160), 1, "kernel", 470_072),
        # With other weights at every position whole tiles are loaded on v4.
        ("v4", (16, 56, 56, 384), (7, 7, 384, 80), 2, "input", 1_346_929),
        ("v4", (8, 40, 40, 64), (7, 7, 64, 32), 2, "input", 101_062),
        # Two groups on v2 and v3, and gradients by what groups were given: no taps share a pass.
        ("v3", (32, 36, 36, 128), (7, 7, 64, 128), 1, "", 2_602_608),
        ("v3", (16, 28, 28, 128), (7, 7, 64, 128), 1, "kernel", 653_408),
        ("v3", (16, 40, 40, 256), (3, 3, 64, 256), 1, "input", 857_491),
        ("v4", (16, 40, 40, 256), (3, 3, 64, 256), 1, "input", 366_050),
        # A unit of two tiles: a tap takes half of its depth, and taps of several rows share it.
        ("v6e", (64, 14, 14, 384), (3, 3, 384, 192), 1, "", 57_863),
        ("v6e", (24, 56, 56, 80), (3, 3, 80, 48), 1, "", 193_705),
        ("v6e", (24, 72, 72, 64), (5, 5, 64, 32), 1, "", 689_724),
        ("v6e", (8, 36, 36, 48), (7, 7, 48, 48), 1, "input", 77_176),
        ("v6e", (96, 17, 17, 128), (5, 5, 128, 256), 1, "", 192_182),
        # In groups: copies share the room on the chip, and one that finds none is made of what was
        # fetched.
        ("v6e", (32, 26, 26, 256), (3, 3, 8, 256), 1, "kernel", 320_742),
        ("v6e", (40, 28, 28, 248), (3, 3, 8, 248), 1, "kernel", 515_137),
        ("v5e", (48, 28, 28, 256), (3, 3, 8, 256), 1, "kernel", 804_961),
        ("v5e", (32, 30, 30, 256), (3, 3, 8, 256), 1, "kernel", 1_028_244),
        # Groups of four features that come from outside are filled up by nobody.
        ("v5e", (64, 10, 10, 128), (1, 1, 4, 128), 1, "kernel", 20_847),
        ("v6e", (64, 10, 10, 128), (1, 1, 4, 128), 1, "", 31_028),
        # The gradient of a kernel of each feature by itself waits for what it reads on v5e and v5p.
        ("v5e", (96, 36, 36, 128), (3, 3, 1, 128), 2, "kernel", 37_577),
        ("v5p", (128, 20, 20, 256), (5, 5, 1, 256), 1, "kernel", 91_383),
        # That of a kernel of few features loads weights for every tap.
        ("v4", (32, 56, 56, 2), (1, 1, 2, 128), 1, "kernel", 44_120),
        ("v5e", (128, 36, 36, 3), (3, 3, 3, 64), 1, "kernel", 21_075),
        # Every place of an image is moved to the lanes of its tap where taps share a pass.
        ("v6e", (32, 64, 64, 3), (8, 8, 3, 128), 2, "kernel", 32_305),
    ],
)
def test_a_convolution_has_the_cycles_that_were_compiled(
    generation: str,
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int,
    gradient: str,
    compiled: int,
) -> None:
    program = parse_stablehlo(vision.convolution(image, kernel, stride, gradient).text())
    assert (
        abs(estimate_program(program, parse(slice_for(generation, 1))).cycles / compiled - 1)
        <= _NEAR
    )


@pytest.mark.parametrize(
    ("generation", "channels", "examples", "side", "compiled"),
    [
        # What the gradient of a kernel of patches takes more than its passes, of the images of so
        # many examples.
        ("v5e", 3, 8, 64, 4_807),
        ("v5e", 3, 32, 64, 5_914),
        ("v5e", 4, 32, 64, 3_148),
        ("v5e", 6, 32, 64, 5_654),
        ("v5e", 3, 32, 128, 24_515),
        ("v5e", 3, 64, 64, 0),
        ("v5e", 16, 32, 64, 0),
        ("v6e", 3, 32, 64, 4_327),
        ("v6e", 3, 32, 128, 17_184),
        ("v6e", 8, 32, 64, 4_400),
        ("v6e", 3, 64, 64, 0),
    ],
)
def test_places_of_few_features_are_moved_to_the_lanes_of_their_taps(
    generation: str, channels: int, examples: int, side: int, compiled: int
) -> None:
    packed = packing_cycles(channels, examples, 64, side * side, cost_model(generation))
    assert abs(packed - compiled) <= _NEAR * compiled


@pytest.mark.parametrize(
    ("generation", "examples", "side", "features", "compiled"),
    [
        # Images are converted as a whole, or in windows, and copied on the chip.
        ("v5e", 16, 128, 256, 76_965),
        ("v5e", 32, 128, 256, 112_919),
        ("v5e", 16, 192, 256, 186_476),
        ("v5e", 32, 192, 256, 262_977),
        ("v6e", 8, 128, 256, 39_328),
        ("v6e", 64, 128, 256, 100_400),
        ("v6e", 16, 192, 256, 126_536),
        # With more columns the images are packed meanwhile.
        ("v6e", 8, 224, 768, 133_031),
    ],
)
def test_a_step_of_patches_has_the_cycles_that_were_compiled(
    generation: str, examples: int, side: int, features: int, compiled: int
) -> None:
    def loss(params: Any, x: Any) -> Any:
        y = vision.conv(x.astype(BF16), params[0].astype(BF16), 16, padding="VALID")
        return jnp.mean(jnp.square(jnp.tanh(y).astype(F32)))

    given = (ONE.array((examples, side, side, 3)),)
    program = parse_stablehlo(
        train(loss, [ONE.array((16, 16, 3, features))], given, ONE, "sgd").text()
    )
    assert (
        abs(estimate_program(program, parse(slice_for(generation, 1))).cycles / compiled - 1)
        <= _NEAR / 2
    )


@pytest.mark.parametrize(
    ("image", "kernel", "compiled"),
    [((64, 128, 128, 3), (8, 8, 3, 256), 5_376), ((64, 128, 128, 3), (16, 16, 3, 256), 4_256)],
)
def test_loads_of_more_columns_are_hidden_where_rows_are_few(
    image: tuple[int, ...], kernel: tuple[int, ...], compiled: int
) -> None:
    """Cycles of the matrix unit in the gradient of a kernel of patches, without the kernel's fixed
    cost."""
    program, costs = (
        parse_stablehlo(vision.convolution(image, kernel, kernel[0], "kernel").text()),
        cost_model("v6e"),
    )
    anchor = next(one for one in program.body.operations if one.opcode == "convolution")
    assert (
        abs(Convolution.of(program, anchor, costs.tiling).mxu_cycles(costs) / compiled - 1) <= _NEAR
    )
