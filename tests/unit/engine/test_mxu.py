from __future__ import annotations

from typing import Any, get_args

import jax
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from podyard import engine
from podyard.base.errors import PodyardError
from podyard.engine.numerics import mxu
from podyard.engine.numerics.bf16 import round_to_bf16
from podyard.engine.numerics.mxu import mxu_matmul, prepare, run_array
from podyard.engine.numerics.tiled import (
    INT8_TILE_DEPTH,
    int8_matmul,
    reference_matmul,
    tiled_matmul,
)
from podyard.engine.timing.systolic import Dataflow, systolic_cycles

DATAFLOWS: tuple[Dataflow, ...] = get_args(Dataflow)
every_dataflow = pytest.mark.parametrize("dataflow", DATAFLOWS)


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scattered(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Numbers of all magnitudes: subnormal, far apart, so large that products overflow; zeros of
    both signs."""
    values = rng.standard_normal(shape) * np.exp2(
        rng.choice([-140, -130, -70, -12, 0, 0, 0, 12, 63, 100, 126], shape)
    )
    return np.where(rng.random(shape) < 0.1, rng.choice([0.0, -0.0], shape), values).astype(
        np.float32
    )


def whole(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    return rng.integers(-128, 128, shape).astype(np.int8)


def shapes(seed: int, count: int) -> list[tuple[int, int, int, int, int]]:
    """(m, k, n, rows, columns)."""
    rng = np.random.default_rng(seed)
    return [
        (*map(int, rng.integers(1, 22, 3)), *map(int, rng.integers(1, 10, 2))) for _ in range(count)
    ]  # type: ignore[misc]


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Equal on the bits; of a NaN only that it is one."""
    kinds = (one.dtype, one.shape) == (other.dtype, other.shape)
    if one.dtype != np.float32:
        return kinds and np.array_equal(one, other)
    nan = np.isnan(one)
    bits = np.array_equal(one.view(np.uint32)[~nan], other.view(np.uint32)[~nan])
    return kinds and bits and np.array_equal(nan, np.isnan(other))


def by_definition(
    x: NDArray[np.float32], w: NDArray[np.float32], depth: int
) -> NDArray[np.float32]:
    """Element by element: down each tile, one float32 addition after another; then over the
    tiles."""
    x, w = round_to_bf16(x), round_to_bf16(w)
    result = np.zeros((x.shape[0], w.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for row, column in np.ndindex(result.shape):
            for first in range(0, x.shape[1], depth):
                total = np.float32(0)
                for k in range(first, min(first + depth, x.shape[1])):
                    total = total + x[row, k] * w[k, column]
                result[row, column] += total
    return result


@every_dataflow
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (5, 4, 3), (3, 9, 10), (7, 8, 8), (2, 17, 5)])
def test_array_equals_its_definition_bit_for_bit(
    m: int, k: int, n: int, dataflow: Dataflow
) -> None:
    x, w = normal(1, m, k), normal(2, k, n)
    expected = by_definition(x, w, k if dataflow == "os" else 4)
    assert same_bits(mxu_matmul(x, w, 4, 4, dataflow).result, expected)


def test_the_order_of_additions_shows_in_the_bits() -> None:
    x, w = normal(1, 20, 40), normal(2, 40, 20)
    deep, flat = tiled_matmul(x, w, 8, "os"), tiled_matmul(x, w, 8, "ws")
    assert not np.array_equal(deep, flat) and not np.array_equal(flat, tiled_matmul(x, w, 16, "ws"))


@every_dataflow
def test_cycles_are_those_of_the_closed_form(dataflow: Dataflow) -> None:
    rng = np.random.default_rng(11)
    for m, k, n, rows, columns in shapes(12, 40):
        run = mxu_matmul(whole(rng, m, k), whole(rng, k, n), rows, columns, dataflow)
        assert run.cycles == systolic_cycles(m, k, n, rows, columns, dataflow), (
            m,
            k,
            n,
            rows,
            columns,
        )
    assert systolic_cycles(256, 256, 256, 128, 128, "os") == 4 * (128 + 128 + 256 - 2) - 1
    assert systolic_cycles(256, 256, 256, 128, 128, "ws") == 4 * (2 * 128 + 128 + 256 - 2) - 1


@pytest.mark.slow
@every_dataflow
def test_the_tiled_path_has_the_bits_of_the_array(dataflow: Dataflow) -> None:
    rng = np.random.default_rng(13)
    seen_nan = seen_infinity = seen_tiny = False
    for m, k, n, rows, columns in shapes(14, 40):
        for x, w in (
            (normal(m, m, k), normal(n, k, n)),
            (scattered(rng, m, k), scattered(rng, k, n)),
            (whole(rng, m, k), whole(rng, k, n)),
        ):
            slow = mxu_matmul(x, w, rows, columns, dataflow).result
            assert same_bits(tiled_matmul(x, w, rows, dataflow), slow), (m, k, n, rows, columns)
            if slow.dtype == np.float32:
                seen_nan |= bool(np.isnan(slow).any())
                seen_infinity |= bool(np.isinf(slow).any())
                seen_tiny |= bool(((slow != 0) & (np.abs(slow) < np.finfo(np.float32).tiny)).any())
    assert seen_nan and seen_infinity and seen_tiny


@every_dataflow
def test_infinities_and_nan_stay_where_they_belong(dataflow: Dataflow) -> None:
    x, w = np.ones((6, 6), np.float32), np.ones((6, 6), np.float32)
    x[1, 2], x[3, 5], w[4, 0] = np.inf, np.nan, -np.inf
    result = mxu_matmul(x, w, 4, 4, dataflow).result
    assert same_bits(result, by_definition(x, w, 6 if dataflow == "os" else 4))
    assert np.isnan(result[1, 0]) and np.isposinf(result[1, 1:]).all() and np.isneginf(result[0, 0])
    assert np.isnan(result[3]).all() and (result[[0, 2, 4, 5], 1:] == 6).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "dataflow", "kind"),
    [
        (128, "ws", "float32"),
        (256, "ws", "float32"),
        (256, "ws", "int8"),
        (128, "is", "int8"),
        (128, "os", "float32"),
    ],
)
def test_arrays_of_the_real_sizes(side: int, dataflow: Dataflow, kind: str) -> None:
    rng = np.random.default_rng(15)
    m, k, n = 70, side + 44, 90
    x, w = (
        (whole(rng, m, k), whole(rng, k, n))
        if kind == "int8"
        else (normal(1, m, k), normal(2, k, n))
    )
    run = mxu_matmul(x, w, side, side, dataflow)
    assert run.cycles == systolic_cycles(m, k, n, side, side, dataflow)
    assert same_bits(run.result, tiled_matmul(x, w, side, dataflow))


def test_int8_is_exact_in_every_path() -> None:
    rng = np.random.default_rng(16)
    for m, k, n in [
        (1, 1, 1),
        (3, INT8_TILE_DEPTH, 5),
        (9, INT8_TILE_DEPTH + 1, 7),
        (20, 1000, 30),
    ]:
        x, w = whole(rng, m, k), whole(rng, k, n)
        exact = x.astype(np.int64) @ w.astype(np.int64)
        for result in (int8_matmul(x, w), tiled_matmul(x, w), mxu_matmul(x, w, 64, 32).result):
            assert result.dtype == np.int32 and np.array_equal(result, exact)


def test_int8_extremes_do_not_overflow() -> None:
    lowest = np.full((2, mxu.INT8_DEPTH_MAX), -128, np.int8)
    expected = 128 * 128 * mxu.INT8_DEPTH_MAX
    assert expected < 2**31 <= expected + 128 * 128
    assert (int8_matmul(lowest, lowest.T) == expected).all()
    # Inside a tile the sums are float32: the largest must still be a whole number that float32
    # holds.
    assert INT8_TILE_DEPTH * 128 * 128 < 2**24
    with pytest.raises(PodyardError, match="at most 131071 deep, not 131072"):
        int8_matmul(np.ones((1, 131072), np.int8), np.ones((131072, 1), np.int8))


def test_the_reference_is_rounding_and_one_float32_product() -> None:
    rng = np.random.default_rng(17)
    for m, k, n in [(1, 1, 1), (33, 200, 47), (64, 64, 64)]:
        x, w = normal(m, m, k) * np.float32(1e3), rng.standard_normal((k, n)).astype(np.float32)
        rounded = [operand.astype(ml_dtypes.bfloat16).astype(np.float32) for operand in (x, w)]
        assert same_bits(reference_matmul(x, w), np.matmul(*rounded))
    assert not np.array_equal(reference_matmul(x, w), x @ w)


@pytest.mark.parametrize(("m", "k", "n"), [(5, 4, 3), (3, 9, 10), (20, 40, 7)])
def test_fast_path_is_held_to_the_array_and_the_reference(m: int, k: int, n: int) -> None:
    x, w = normal(3, m, k), normal(4, k, n)
    slow = mxu_matmul(x, w, rows=8, columns=8).result
    fast = np.asarray(engine.mxu_jit(lambda a, b: a @ b)(x, w))
    # The order of additions differs; the operands do not.
    bound = np.abs(round_to_bf16(x)) @ np.abs(round_to_bf16(w)) * k * np.finfo(np.float32).eps
    assert np.all(np.abs(fast - slow) <= bound)
    assert np.all(np.abs(fast - reference_matmul(x, w)) <= bound)
    assert np.abs(slow - x @ w).max() > 10 * bound.max()


def test_fast_path_is_exact_where_order_cannot_matter() -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, (6, 30)).astype(np.float32)
    w = rng.integers(-9, 9, (30, 11)).astype(np.float32)
    fast = np.asarray(engine.mxu_jit(lambda a, b: a @ b)(x, w))
    assert np.array_equal(mxu_matmul(x, w, rows=8, columns=4).result, fast)
    assert np.array_equal(fast, x @ w)


@every_dataflow
def test_registers_move_one_cell_a_cycle(dataflow: Dataflow) -> None:
    x, w = prepare(normal(8, 5, 7), normal(9, 7, 6))
    before = None
    for tick in run_array(x, w, 3, 4, dataflow):
        assert np.array_equal(tick.across[:, 0], tick.left_edge)
        if before is not None:
            assert np.array_equal(tick.across[:, 1:], before.across[:, :-1])
            moved = tick.top_edge is not None
            assert (
                np.array_equal(tick.held[1:], before.held[:-1])
                if moved
                else np.array_equal(tick.held, before.held)
            )
            assert (tick.number, tick.fold.index - before.fold.index in (0, 1)) == (
                before.number + 1,
                True,
            )
        if tick.top_edge is not None:
            assert np.array_equal(tick.held[0], tick.top_edge)
        before = tick


def test_misfits_are_refused() -> None:
    x = normal(0, 2, 2)
    refused: list[tuple[tuple[Any, ...], str]] = [
        ((normal(0, 2, 3), normal(0, 2, 3)), "not \\(2, 3\\) by \\(2, 3\\)"),
        ((normal(0, 2), x), "not \\(2,\\) by"),
        ((normal(0, 0, 2), x), "positive"),
        ((x, x.astype(np.int8)), "not float32 by int8"),
        ((x.astype(np.float64), x.astype(np.float64)), "not float64"),
    ]
    for operands, words in refused:
        for path in (mxu_matmul, tiled_matmul):
            with pytest.raises(PodyardError, match=words):
                path(*operands)
    with pytest.raises(PodyardError, match="not 0x4"):
        mxu_matmul(x, x, 0, 4)
    with pytest.raises(PodyardError, match="not 0"):
        tiled_matmul(x, x, 0)
    for wrong in (lambda: mxu_matmul(x, x, 4, 4, "xs"), lambda: tiled_matmul(x, x, 4, "xs")):  # type: ignore[arg-type]
        with pytest.raises(PodyardError, match="'xs' is not one of"):
            wrong()
    with pytest.raises(PodyardError, match="8-bit"):
        int8_matmul(x, x)  # type: ignore[arg-type]
    with pytest.raises(PodyardError, match="float32"):
        reference_matmul(x.astype(np.int8), x.astype(np.int8))
    with pytest.raises(PodyardError, match="positive"):
        systolic_cycles(0, 1, 1)
    with pytest.raises(PodyardError, match="dataflow"):
        systolic_cycles(1, 1, 1, dataflow="xs")  # type: ignore[arg-type]


@pytest.mark.slow
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
