from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.errors import PodyardError
from podyard.engine.collectives import ring
from podyard.engine.collectives.combine import Reduction, combiner
from podyard.engine.collectives.ring import ring_sum, run_schedule
from podyard.engine.collectives.schedule import (
    CollectiveKind,
    Move,
    Op,
    Schedule,
    chunk_bounds,
    dissemination_barrier,
    pairwise_all_to_all,
    pipelined_broadcast,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    sent_elements,
    summation_order,
)
from podyard.engine.collectives.torus import colour_orders, phases_of, torus_all_reduce
from podyard.engine.collectives.transport import LocalTransport
from tests.unit.engine.schedule_check import check

MAKERS: list[Callable[[int], Schedule]] = [
    ring_all_reduce, ring_reduce_scatter, ring_all_gather, pairwise_all_to_all,
    dissemination_barrier,
    lambda ranks: pipelined_broadcast(ranks, 3),
]  # fmt: skip
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).filter(
    lambda shape: math.prod(shape) <= 30
)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: getattr(maker, "__name__", "maker"))
def test_every_collective_gives_what_its_name_says(
    maker: Callable[[int], Schedule], ranks: int
) -> None:
    check(maker(ranks))


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_each_rank_of_a_ring_sends_the_least(ranks: int) -> None:
    assert sent_elements(ring_all_reduce(ranks), 6 * ranks) == [12 * (ranks - 1)] * ranks
    assert sent_elements(ring_all_gather(ranks), 6 * ranks) == [6 * (ranks - 1)] * ranks
    assert len(pipelined_broadcast(ranks, 7).steps) == (0 if ranks == 1 else ranks - 2 + 7)
    assert len(dissemination_barrier(ranks).steps) == math.ceil(math.log2(ranks))


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(shape=SHAPES, data=st.data())
def test_a_torus_of_any_shape_sums_with_the_least_bytes(
    shape: list[int], data: st.DataObject
) -> None:
    wrap = [data.draw(st.booleans()) for _ in shape]
    schedule = torus_all_reduce(shape, wrap)
    check(schedule)
    orders = colour_orders(shape, wrap)
    phases = phases_of(shape, wrap, orders[0], 1.0)
    assert len(schedule.steps) == 2 * sum(phase.steps for phase in phases)
    chips = math.prod(shape)
    assert math.isclose(
        sum(phase.sent_share for phase in phases), (chips - 1) / chips, abs_tol=1e-12
    )


def test_only_neighbours_of_a_torus_speak() -> None:
    shape = (4, 3)
    for wrap in ((True, True), (False, False)):
        for _, move in torus_all_reduce(shape, wrap).moves():
            (a, b), (c, d) = divmod(move.sender, 3), divmod(move.receiver, 3)
            far = (abs(a - c), abs(b - d))
            assert (
                far in ((1, 0), (0, 1))
                or (wrap[0] and far == (3, 0))
                or (wrap[1] and far == (0, 2))
            )


def test_checker_finds_what_is_wrong() -> None:
    good = ring_all_reduce(3)
    first = good.steps[0]
    changes: list[dict[str, Any]] = [
        {"op": Op.COPY}, {"receiver": 0}, {"first": 1, "stop": 2}, {"into": 2}, {"stop": 4},
        {"sender": 3},
    ]  # fmt: skip
    for change in changes:
        step = (dataclasses.replace(first[0], **change), *first[1:])
        with pytest.raises(AssertionError):
            check(Schedule(CollectiveKind.ALL_REDUCE, 3, 3, (step, *good.steps[1:])))
    for steps in (
        good.steps[:-1],
        good.steps[1:],
        (*good.steps, good.steps[-1]),
        (first[1:], *good.steps[1:]),
    ):
        with pytest.raises(AssertionError):
            check(Schedule(CollectiveKind.ALL_REDUCE, 3, 3, tuple(steps)))
    twice = (Move(0, 1, 0, 1, Op.COPY, 0), Move(2, 1, 0, 1, Op.COPY, 0))
    with pytest.raises(AssertionError, match="received twice"):
        check(Schedule(CollectiveKind.ALL_REDUCE, 3, 3, (twice,)))
    with pytest.raises(AssertionError, match="lacks"):
        check(dataclasses.replace(ring_all_gather(3), steps=ring_all_gather(3).steps[1:]))
    with pytest.raises(AssertionError, match="leave the barrier"):
        check(
            dataclasses.replace(dissemination_barrier(5), steps=dissemination_barrier(5).steps[:-1])
        )
    for make in (*MAKERS[:5], lambda ranks: pipelined_broadcast(ranks, 1)):
        with pytest.raises(PodyardError, match="at least one rank"):
            make(0)
    with pytest.raises(PodyardError, match="at least one chunk"):
        pipelined_broadcast(2, 0)
    with pytest.raises(PodyardError, match="not a shape of a torus"):
        torus_all_reduce((2, 0), (True, True))


@given(length=st.integers(0, 10_000), chunks=st.integers(1, 64))
def test_chunks_cover_the_vector_evenly(length: int, chunks: int) -> None:
    bounds = chunk_bounds(length, chunks)
    assert bounds[0][0] == 0 and bounds[-1][1] == length
    assert all(left[1] == right[0] for left, right in itertools.pairwise(bounds))
    sizes = {stop - start for start, stop in bounds}
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(
    ranks=st.integers(1, 9), length=st.integers(1, 50), seed=st.integers(0, 2**32 - 1),
    block_bytes=st.sampled_from([4, 8, 512]),
)  # fmt: skip
def test_running_the_schedule_gives_the_bits_of_ring_sum(
    ranks: int, length: int, seed: int, block_bytes: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = [
        (rng.standard_normal(length) * 10.0 ** rng.integers(-9, 9)).astype(np.float32)
        for _ in range(ranks)
    ]
    expected = ring_sum(vectors)
    assert np.allclose(
        expected, np.sum(vectors, axis=0, dtype=np.float64), rtol=1e-4, atol=1e-4 * 10.0**9
    )
    held = {rank: vector.copy() for rank, vector in enumerate(vectors)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring, "BLOCK_BYTES", block_bytes)  # many blocks of a short vector
        run_schedule(ring_all_reduce(ranks), LocalTransport(), held, sequence=1)
    assert all(vector.tobytes() == expected.tobytes() for vector in held.values())


@settings(deadline=None, max_examples=30)
@given(shape=SHAPES, length=st.integers(1, 40), seed=st.integers(0, 99))
def test_a_torus_sums_whole_numbers_exactly(shape: list[int], length: int, seed: int) -> None:
    schedule = torus_all_reduce(shape, [True] * len(shape))
    rng = np.random.default_rng(seed)
    vectors = {
        rank: rng.integers(-1000, 1000, length, np.int32) for rank in range(schedule.rank_count)
    }
    expected = np.sum(list(vectors.values()), axis=0)
    run_schedule(schedule, LocalTransport(), vectors, sequence=1)
    assert all((vector == expected).all() for vector in vectors.values())


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_the_other_collectives_move_what_they_should(ranks: int) -> None:
    length = 5 * ranks
    start = {rank: np.arange(length, dtype=np.int64) + 1000 * rank for rank in range(ranks)}
    everything = np.stack(list(start.values())).reshape(ranks, ranks, 5)

    def run(schedule: Schedule) -> dict[int, Any]:
        held = {rank: vector.copy() for rank, vector in start.items()}
        run_schedule(schedule, LocalTransport(), held, sequence=3)
        return {rank: vector.reshape(ranks, 5) for rank, vector in held.items()}

    for rank, held in run(pairwise_all_to_all(ranks)).items():
        assert (held == everything[:, rank]).all()
    for held in run(ring_all_gather(ranks)).values():
        assert (held == np.stack([everything[rank, rank] for rank in range(ranks)])).all()
    for rank, held in run(ring_reduce_scatter(ranks)).items():
        assert (held[rank] == everything[:, rank].sum(0)).all()
    for held in run(pipelined_broadcast(ranks, 4)).values():
        assert (held == everything[0]).all()
    for rank, held in run(dissemination_barrier(ranks)).items():
        assert (held == everything[rank]).all()
    if ranks > 1:
        with pytest.raises(PodyardError, match="equal parts"):
            run_schedule(
                pairwise_all_to_all(ranks),
                LocalTransport(),
                {0: np.zeros(5 * ranks + 1)},
                sequence=1,
            )


@pytest.mark.parametrize("reduction", list(Reduction))
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_sum_mean_and_maximum_of_each_type(reduction: Reduction, dtype: Any) -> None:
    vectors = {
        rank: np.array([1.5, -2.0, np.nan, 1e30, 256.0], dtype) * dtype(rank + 1)
        for rank in range(3)
    }
    wide = np.stack([vector.astype(np.float32) for vector in vectors.values()])
    run_schedule(ring_all_reduce(3), LocalTransport(), vectors, 1, reduction)
    expected = {"sum": wide.sum(0), "mean": wide.mean(0), "max": wide.max(0)}[
        reduction.value
    ].astype(dtype)
    for vector in vectors.values():
        assert np.allclose(
            vector.astype(np.float32), expected.astype(np.float32), rtol=1e-2, equal_nan=True
        )
        assert np.isnan(vector[2])


def test_bfloat16_is_rounded_after_every_addition() -> None:
    # 256 + 1 is a tie and goes back to 256, as often as it is tried.
    vectors = {
        rank: np.array([256.0 if rank == 0 else 1.0], ml_dtypes.bfloat16) for rank in range(4)
    }
    run_schedule(ring_all_reduce(4), LocalTransport(), vectors, 1)
    assert [float(vector[0]) for vector in vectors.values()] == [256.0] * 4


def test_what_cannot_be_reduced_is_refused() -> None:
    with pytest.raises(PodyardError, match="complex64 is not reduced"):
        combiner(Reduction.SUM, np.dtype(np.complex64))
    with pytest.raises(PodyardError, match="the mean of int32"):
        combiner(Reduction.MEAN, np.dtype(np.int32))


def test_each_chunk_is_added_around_the_ring_from_its_own_rank() -> None:
    assert [summation_order(ring_all_reduce(4), chunk) for chunk in range(4)] == [
        (0, 1, 2, 3),
        (1, 2, 3, 0),
        (2, 3, 0, 1),
        (3, 0, 1, 2),
    ]
    # 1 + 1e8 - 1e8 shows the order: float32 loses the 1 when it is added to 1e8.
    vectors = [np.full(3, value, np.float32) for value in (1.0, 1e8, -1e8)]
    assert ring_sum(vectors).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("extent", [4, 5, 8])
def test_on_a_ring_of_chips_both_links_of_a_chip_carry_as_much(extent: int) -> None:
    carried = dict.fromkeys(
        ((rank, (rank + way) % extent) for rank in range(extent) for way in (1, -1)), 0
    )
    for _, move in torus_all_reduce((extent,), (True,)).moves():
        carried[move.sender, move.receiver] += move.stop - move.first
    assert set(carried.values()) == {2 * (extent - 1)}
