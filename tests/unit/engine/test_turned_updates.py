"""Gradients that lie turned, and numbers that are spread over rows: cycles as libtpu 0.0.42.1 gives
them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.corpus.layout import ONE, Layout
from benchmarks.corpus.others import perceptron
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

_DATA = Layout((("data", 8),), ("data",))
_BOTH = Layout((("data", 2), ("model", 4)), ("data", "tensor"))
_FSDP = Layout((("data", 8),), ("fsdp",))


@pytest.mark.parametrize(
    ("layout", "widths", "batch", "optimizer", "cycles", "within"),
    [
        (ONE, (768, 512, 1024), 1024, "adam", 89_082, 0.1),
        (ONE, (1024, 4096, 2048, 256), 2048, "momentum", 506_189, 0.1),
        (_DATA, (1024, 1024, 1024, 1024), 2048, "sgd", 91_293, 0.1),
        (_BOTH, (1024, 4096, 2048, 256), 2048, "adam", 179_615, 0.1),
        # Turned, these weights have no whole tiles: 784 numbers, and 80 on each of eight devices.
        (ONE, (784, 512, 256, 128), 1024, "momentum", 55_453, 0.15),
        (_FSDP, (640, 2560, 640), 4096, "sgd", 77_548, 0.1),
    ],
)
def test_the_first_weights_of_a_network_are_turned_to_be_updated(
    layout: Layout, widths: tuple[int, ...], batch: int, optimizer: str, cycles: int, within: float
) -> None:
    text = perceptron(widths, batch, optimizer, layout).text()
    estimate = estimate_program(parse_stablehlo(text), parse("v6e-1" if layout is ONE else "v6e-8"))
    assert estimate.cycles == pytest.approx(cycles, rel=within)


def _scaled(x: Any, *numbers: Any) -> Any:
    for place, one in enumerate(numbers):
        x = x * one[..., None] if place % 2 else x - one[..., None]
    return x


@pytest.mark.parametrize(
    ("on", "shape", "count", "cycles"),
    [
        ("v6e-1", (64, 128, 128), 4, 37_652),
        ("v6e-1", (64, 128, 256), 6, 56_724),
        ("v6e-1", (128, 96, 96), 4, 14_310),
        ("v6e-1", (8192, 128), 4, 37_603),
        ("v5litepod-1", (64, 128, 128), 6, 54_322),
        ("v5litepod-1", (64, 128, 512), 2, 82_535),
    ],
)
def test_each_number_of_a_row_takes_a_cycle_to_be_spread(
    on: str, shape: tuple[int, ...], count: int, cycles: int
) -> None:
    struct: Any = jax.ShapeDtypeStruct
    arrays = struct(shape, jnp.float32), *[struct(shape[:-1], jnp.float32)] * count
    text = jax.jit(_scaled).trace(*arrays).lower(lowering_platforms=("tpu",)).as_text()
    assert estimate_program(parse_stablehlo(text), parse(on)).cycles == pytest.approx(
        cycles, rel=0.08
    )
