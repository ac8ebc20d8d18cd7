"""Large products on v5p: what is written, and what is done with it, waits for the last window where
both operands are
in HBM. The cycles in here are those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

# Cycles that the matrix units need for 8 rows of 128 x 128 weights, each of eight units.
_ROWS, _UNIT = 8, 128


def _cycles(fn: Any, *shapes: tuple[int, ...]) -> float:
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    text = jax.jit(fn).trace(*arrays).lower(lowering_platforms=("tpu",)).as_text()
    return estimate_program(parse_stablehlo(text), parse("v5p-8")).cycles


def _product(x: Any, w: Any) -> Any:
    return x @ w


def _gated(x: Any, w: Any, up: Any) -> Any:
    return jax.nn.silu(x @ w) * up


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "cycles"),
    [
        (8192, 4096, 11008, 3418292),
        (65536, 4096, 11008, 27198500),
        (65536, 11008, 4096, 24865896),
        (65536, 8192, 8192, 37001008),
        (24576, 6144, 10240, 13230516),
    ],
)
def test_a_result_is_not_hidden_where_both_operands_are_far(
    rows: int, depth: int, columns: int, cycles: int
) -> None:
    assert _cycles(_product, (rows, depth), (depth, columns)) == pytest.approx(cycles, rel=0.03)


@pytest.mark.parametrize(
    ("rows", "columns", "cycles"),
    [(8192, 11008, 3765723), (65536, 11008, 29558024), (40960, 14336, 23257121)],
)
def test_what_a_gate_reads_is_not_hidden_either(rows: int, columns: int, cycles: int) -> None:
    gated = _cycles(_gated, (rows, 4096), (4096, columns), (rows, columns))
    assert gated == pytest.approx(cycles, rel=0.06)
    assert gated > 1.03 * _cycles(_product, (rows, 4096), (4096, columns))


@pytest.mark.parametrize(("rows", "cycles"), [(16384, 2148970), (65536, 8558016)])
def test_with_weights_on_the_chip_the_result_is_hidden(rows: int, cycles: int) -> None:
    made = _cycles(_product, (rows, 4096), (4096, 4096))
    assert made == pytest.approx(cycles, rel=0.03)
    assert made < 1.05 * rows * (4096 / _UNIT) ** 2 / _ROWS


def test_sums_of_a_gradient_wait_little() -> None:
    made = _cycles(lambda x, g: x.T @ g, (65536, 4096), (65536, 11008))
    assert made == pytest.approx(23995596, rel=0.03)
