"""What is fetched while other kernels run, and what leaves the chip and comes back: cycles of
libtpu 0.0.42.1."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.corpus.others import adam_tree
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse


@pytest.mark.parametrize(("on", "cycles"), [("v6e-1", 462_800), ("v5litepod-1", 939_200)])
def test_an_optimizer_finds_only_what_the_kernel_before_left_time_for(on: str, cycles: int) -> None:
    text = adam_tree([(2048, 2048), (2048, 4096), (4096, 1024)]).text()
    assert estimate_program(parse_stablehlo(text), parse(on)).cycles == pytest.approx(
        cycles, rel=0.16
    )


def _twice(x: Any, into: Any, out: Any) -> Any:
    first = jnp.tanh(x @ into)
    second = jnp.tanh((first @ out) @ into)
    return second @ out, jnp.sum((first * second).astype(jnp.float32), -1)


@pytest.mark.parametrize(
    ("on", "rows", "width", "inner", "cycles"),
    [
        ("v5litepod-1", 4096, 512, 8192, 1_412_767),
        ("v5litepod-1", 8192, 256, 4096, 1_156_284),
        ("v6e-1", 8192, 256, 4096, 457_867),
    ],
)
def test_two_values_of_more_than_half_of_the_chip_are_both_written_there(
    on: str, rows: int, width: int, inner: int, cycles: int
) -> None:
    struct: Any = jax.ShapeDtypeStruct
    arrays = [
        struct(shape, jnp.bfloat16) for shape in ((rows, width), (width, inner), (inner, width))
    ]
    text = jax.jit(_twice).trace(*arrays).lower(lowering_platforms=("tpu",)).as_text()
    assert estimate_program(parse_stablehlo(text), parse(on)).cycles == pytest.approx(
        cycles, rel=0.18
    )
