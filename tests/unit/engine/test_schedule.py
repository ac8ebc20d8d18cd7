from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.errors import PodyardError
from podyard.engine.collectives.ring import ring_sum, run_schedule
from podyard.engine.collectives.schedule import (
    Op,
    Schedule,
    check_all_reduce,
    chunk_bounds,
    ring_all_reduce,
    sent_elements,
    summation_order,
)
from podyard.engine.collectives.transport import LocalTransport


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 16])
def test_ring_is_an_all_reduce_with_the_least_bytes(ranks: int) -> None:
    schedule = ring_all_reduce(ranks)
    check_all_reduce(schedule)
    assert sent_elements(schedule, 6 * ranks) == [12 * (ranks - 1)] * ranks


def test_checker_finds_what_is_wrong() -> None:
    good = ring_all_reduce(3)
    first = good.steps[0]
    lost = dataclasses.replace(first[0], receive_from=1)
    copied = dataclasses.replace(first[0], op=Op.COPY)
    for step in [(lost, *first[1:]), (copied, *first[1:]), first[1:]]:
        with pytest.raises(AssertionError):
            check_all_reduce(Schedule(3, 3, (step, *good.steps[1:])))
    with pytest.raises(AssertionError, match="without the whole sum"):
        check_all_reduce(Schedule(3, 3, good.steps[:-1]))
    twice = Schedule(2, 2, (*ring_all_reduce(2).steps, ring_all_reduce(2).steps[1], ring_all_reduce(2).steps[1]))
    with pytest.raises(AssertionError, match="2 \\(k - 1\\) vectors"):
        check_all_reduce(twice)
    with pytest.raises(PodyardError, match="at least one rank"):
        ring_all_reduce(0)


@given(length=st.integers(0, 10_000), chunks=st.integers(1, 64))
def test_chunks_cover_the_vector_evenly(length: int, chunks: int) -> None:
    bounds = chunk_bounds(length, chunks)
    assert bounds[0][0] == 0 and bounds[-1][1] == length
    assert all(left[1] == right[0] for left, right in itertools.pairwise(bounds))
    sizes = {stop - start for start, stop in bounds}
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(ranks=st.integers(1, 9), length=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
def test_running_the_schedule_gives_the_bits_of_ring_sum(ranks: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = [(rng.standard_normal(length) * 10.0 ** rng.integers(-9, 9)).astype(np.float32) for _ in range(ranks)]
    expected = ring_sum(vectors)
    assert np.allclose(expected, np.sum(vectors, axis=0, dtype=np.float64), rtol=1e-4, atol=1e-4 * 10.0**9)
    held = {rank: vector.copy() for rank, vector in enumerate(vectors)}
    run_schedule(ring_all_reduce(ranks), LocalTransport(), held, sequence=1)
    assert all(vector.tobytes() == expected.tobytes() for vector in held.values())


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
