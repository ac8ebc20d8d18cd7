"""Tables whose rows are looked up and updated in a step: cycles and bytes of compiled programs
(libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from podyard.engine.timing.estimate import Estimate
from tests.unit.engine.compiled import estimate_of


def _step(on: str, rows: int, width: int) -> Estimate:
    def step(table: Any, places: Any) -> Any:
        def loss(one: Any) -> Any:
            return jnp.mean(jnp.square(jnp.tanh(one[places])))

        value, gradient = jax.value_and_grad(loss)(table)
        return table - 0.01 * gradient, value

    shapes = (
        jax.ShapeDtypeStruct((rows, width), jnp.float32),
        jax.ShapeDtypeStruct((4096,), jnp.int32),
    )
    return estimate_of(step, on, *shapes, donated=(0,))


@pytest.mark.parametrize(
    ("on", "rows", "width", "cycles"),
    [
        ("v3-8", 160_000, 64, 1_372_362),
        ("v3-8", 250_000, 32, 1_973_116),
        ("v4-8", 120_000, 64, 518_603),
        ("v5litepod-1", 80_000, 64, 575_422),
        ("v5p-8", 120_000, 96, 661_635),
        ("v6e-1", 80_000, 64, 305_516),
        ("v6e-1", 250_000, 64, 2_089_024),
    ],
)
def test_a_table_is_updated_with_its_rows_in_lanes(
    on: str, rows: int, width: int, cycles: int
) -> None:
    assert _step(on, rows, width).cycles == pytest.approx(cycles, rel=0.15)


def test_a_table_of_many_narrow_rows_is_left_as_it_lies() -> None:
    """Rows in lanes would take 256 MB for 32: 303,821 cycles on v3, 64,311,296 bytes."""
    estimate = _step("v3-8", 500_000, 16)
    assert estimate.cycles == pytest.approx(303_821, rel=0.05)
    assert estimate.peak_hbm_bytes == pytest.approx(64_311_296, rel=0.01)


def test_sparse_cores_turn_large_tables() -> None:
    """The compiler counts no cycles for that, and one more array: 700,734 and 448,046,624 bytes on
    v5p."""
    estimate = _step("v5p-8", 250_000, 64)
    assert estimate.cycles == pytest.approx(700_734, rel=0.1)
    assert estimate.peak_hbm_bytes == pytest.approx(448_046_624, rel=0.01)
