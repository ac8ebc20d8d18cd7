"""v5p: what the compiler copies to the chip before it is read, and what products write over. The
bytes are those of compiled programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podyard.engine.timing.copies import Fetched, fetched, off_hbm
from podyard.engine.timing.schedule import Run, Step
from podyard.hardware.generations import cost_model
from tests.unit.engine.compiled import estimate_of

_SIZE = 8 << 20


def _steps(count: int) -> list[Step]:
    """A value that the first step makes, kernels of 5,000 cycles that do not read it, and one that
    does."""
    between = [
        Step((), (2 + place,), 0, False, is_fetched=True, run=Run(5000.0)) for place in range(count)
    ]
    first, last = (Step(reads, makes, 0, False, is_fetched=True, run=Run(5000.0)) for reads,
        makes in
                   (((), (1,)), ((1,), (99,))))  # fmt: skip
    return [first, *between, last]


def _fetched(steps: list[Step]) -> Fetched:
    program = SimpleNamespace(body=SimpleNamespace(results=()), donated={})
    pricer: Any = SimpleNamespace(costs=cost_model("v5p"), first=None, program=program)
    return fetched(steps, (), {1: _SIZE}, np.zeros(len(steps)), pricer)


def test_what_is_read_late_has_left_memory_for_the_chip() -> None:
    steps = _steps(4)
    found = _fetched(steps)
    assert found.left == {1: 5}
    # fetched while the two kernels before run
    assert found.loads.tolist() == [0, 0, 0, _SIZE, _SIZE, _SIZE]
    assert [step.reads for step in off_hbm(steps, found.left)] == [(), (), (), (), (1,), ()]


def test_what_is_read_early_is_read_in_memory() -> None:
    steps = _steps(1)
    found = _fetched(steps)
    assert not found.left
    assert off_hbm(steps, found.left) == steps


def test_a_product_writes_over_its_arguments_in_memory() -> None:
    """Adam next to the gradient of one layer: 41,947,168 bytes, all of them in HBM."""

    def step(w: Any, m: Any, v: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return jnp.mean(
                jnp.square(
                    (x.astype(jnp.bfloat16) @ weights.astype(jnp.bfloat16)).astype(jnp.float32)
                )
            )

        value, gradient = jax.value_and_grad(loss)(w)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient
        return w - 0.001 * m / (jnp.sqrt(v) + 1e-8), m, v, value

    state, batch = (
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 2048), (2048, 1024))
    )
    estimate = estimate_of(step, "v5p-8", state, state, state, batch, donated=(0, 1, 2))
    assert estimate.peak_hbm_bytes == pytest.approx(41_947_168, rel=0.05)
