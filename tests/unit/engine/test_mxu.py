from __future__ import annotations

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from podyard import engine
from podyard.base.errors import PodyardError
from podyard.engine.numerics.bf16 import round_to_bf16
from podyard.engine.numerics.mxu import mxu_matmul
from podyard.engine.timing.systolic import systolic_cycles


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def by_definition(x: NDArray[np.float32], w: NDArray[np.float32], rows: int) -> NDArray[np.float32]:
    """Sums down the rows of each tile, one float32 addition after another; then over the tiles."""
    x, w = round_to_bf16(x), round_to_bf16(w)
    result = np.zeros((x.shape[0], w.shape[1]), np.float32)
    for first in range(0, x.shape[1], rows):
        tile = np.zeros_like(result)
        for k in range(first, min(first + rows, x.shape[1])):
            tile = tile + x[:, k : k + 1] * w[k]
        result = result + tile
    return result


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (5, 4, 3), (3, 9, 10), (7, 8, 8), (2, 17, 5)])
def test_array_equals_its_definition_bit_for_bit(m: int, k: int, n: int) -> None:
    x, w = normal(1, m, k), normal(2, k, n)
    assert np.array_equal(mxu_matmul(x, w, rows=4, columns=4).result, by_definition(x, w, 4))


@pytest.mark.parametrize(("m", "k", "n"), [(5, 4, 3), (3, 9, 10), (20, 40, 7)])
def test_fast_path_is_held_to_the_array(m: int, k: int, n: int) -> None:
    x, w = normal(3, m, k), normal(4, k, n)
    slow = mxu_matmul(x, w, rows=8, columns=8).result
    fast = np.asarray(engine.mxu_jit(lambda a, b: a @ b)(x, w))
    # The order of additions differs; the operands do not.
    bound = np.abs(round_to_bf16(x)) @ np.abs(round_to_bf16(w)) * k * np.finfo(np.float32).eps
    assert np.all(np.abs(fast - slow) <= bound)
    plain = x @ w
    assert np.abs(slow - plain).max() > 10 * bound.max()


def test_fast_path_is_exact_where_order_cannot_matter() -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, (6, 30)).astype(np.float32)
    w = rng.integers(-9, 9, (30, 11)).astype(np.float32)
    fast = np.asarray(engine.mxu_jit(lambda a, b: a @ b)(x, w))
    assert np.array_equal(mxu_matmul(x, w, rows=8, columns=4).result, fast)
    assert np.array_equal(fast, x @ w)


def test_cycles_are_those_of_the_closed_form() -> None:
    for m, k, n in [(1, 1, 1), (5, 4, 3), (3, 9, 10)]:
        run = mxu_matmul(normal(1, m, k), normal(2, k, n), rows=4, columns=4)
        # SCALE-Sim counts from zero: its last cycle has the number one below the count.
        assert run.cycles - 1 == systolic_cycles(m, k, n, 4, 4)
    assert systolic_cycles(256, 256, 256, 128, 128, "os") == 4 * (128 + 128 + 256 - 2) - 1


def test_misfits_are_refused() -> None:
    with pytest.raises(PodyardError, match="not \\(2, 3\\) by \\(2, 3\\)"):
        mxu_matmul(normal(0, 2, 3), normal(0, 2, 3))
    with pytest.raises(PodyardError, match="positive"):
        systolic_cycles(0, 1, 1)
    with pytest.raises(PodyardError, match="dataflow"):
        systolic_cycles(1, 1, 1, dataflow="xs")  # type: ignore[arg-type]


def test_precision_passes_come_nearer_to_float32() -> None:
    x, w = normal(6, 32, 64), normal(7, 64, 16)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    errors = [
        float(np.abs(np.asarray(engine.mxu_jit(lambda a, b: a @ b, precision)(x, w)) - exact).max())
        for precision in ("default", "high", "highest")
    ]
    assert errors[0] > 100 * errors[1] > 1000 * errors[2] / 100
    assert errors[2] < 1e-4
    asked = engine.mxu_jit(lambda a, b: jax.numpy.matmul(a, b, precision="highest"))(x, w)
    assert np.abs(np.asarray(asked) - exact).max() == errors[2]
