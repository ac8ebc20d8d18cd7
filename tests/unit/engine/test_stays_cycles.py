"""v6e: what kernels do not touch for long leaves the chip for HBM. Bytes are those of compiled
programs
(libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from podyard.engine.timing.copies import leaving
from podyard.engine.timing.estimate import Estimate
from podyard.engine.timing.schedule import Run, Step
from tests.unit.engine.compiled import estimate_of

_LIMIT = 10_000.0


def _steps(cycles: float) -> list[Step]:
    """A value that is made, read at once, read after a kernel of so many cycles, and read at once
    again."""
    run = Run(1000.0)
    read = Step((1,), (), 0, False, run=run)
    return [
        Step((), (1,), 0, False, run=run),
        read,
        Step((), (2,), 0, False, run=Run(cycles)),
        read,
        read,
    ]


def test_what_is_read_soon_stays() -> None:
    steps = _steps(9000.0)
    assert leaving(steps, {1, 2}, _LIMIT) == (steps, {})


def test_what_is_read_late_is_written_after_it_was_read_before() -> None:
    steps, copies = leaving(_steps(11_000.0), {1, 2}, _LIMIT)
    assert copies == {3: 1}
    assert [(step.reads, step.makes) for step in steps] == [
        ((), (1,)),
        ((1,), ()),
        ((1,), (3,)),
        ((), (2,)),
        ((3,), ()),
        ((3,), ()),
    ]


def test_what_is_not_on_the_chip_does_not_leave_it() -> None:
    steps = _steps(11_000.0)
    assert leaving(steps, {2}, _LIMIT) == (steps, {})


def _products(count: int, is_again: bool) -> Estimate:
    """Four products that wait for so many others; they are multiplied one by one, with products in
    between, or all."""

    def products(x: Any, weights: Any) -> Any:
        kept = [x @ weights]
        for _ in range(3):
            kept.append(kept[-1] @ weights)
        result = kept[-1]
        for _ in range(count):
            result = result @ weights
        for one in reversed(kept):
            result = (result @ weights if is_again else result) * one
        return result

    rows = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    return estimate_of(products, "v6e-1", rows, rows)


def test_values_that_wait_for_twelve_products_are_on_the_chip() -> None:
    assert _products(12, False).peak_hbm_bytes == 83_886_080


def test_values_that_wait_for_many_products_are_in_memory() -> None:
    """All four are in HBM with the arguments; the peak has those that are fetched next to the last
    products."""
    found = _products(24, True)
    assert found.peak_hbm_bytes - found.on_chip_bytes == 6 * 2 * 2048 * 2048
    assert found.peak_hbm_bytes == pytest.approx(75_497_472, rel=0.12)
