from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives import futex, shared_memory, windows
from podyard.engine.collectives.combine import Reduction
from podyard.engine.collectives.left_over import PREFIX, remove_left_over
from podyard.engine.collectives.ring import ring_sum
from podyard.engine.collectives.shared_memory import SharedSum
from podyard.engine.collectives.windows import Members, WindowFile
from podyard.engine.collectives.wire import Membership

pytestmark = pytest.mark.skipif(not futex.is_supported(), reason="windows need Linux on x86-64")

MEMBER = Membership(b"k" * 32, 7, b"r" * 32)
Ranks = tuple[tuple[int, ...], ...]


def together(work: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def files_of(folder: Path, ranks_of: Ranks, nbytes: int) -> list[WindowFile]:
    return [
        WindowFile.make(folder, MEMBER, process, len(ranks), nbytes)
        for process, ranks in enumerate(ranks_of)
    ]


def gangs_of(
    folder: Path, ranks_of: Ranks, nbytes: int, silence_seconds: float = 20.0, **more: Any
) -> list[Members]:
    """One per process, each opened in a separate thread."""
    files = files_of(folder, ranks_of, nbytes)
    return together(
        lambda process: Members.attach(
            files[process],
            dict(enumerate(ranks_of)),
            silence_seconds=silence_seconds,
            **{"stopping": never, **more},
        ),
        len(ranks_of),
    )


def never() -> bool:
    return False


def vectors_for(ranks: int, length: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(length) * 10.0 ** rng.integers(-6, 6)).astype(np.float32)
        for _ in range(ranks)
    ]


RANKS: list[Ranks] = [
    ((0,),),
    ((0,), (1,)),
    ((0,), (1,), (2,)),
    ((0, 1), (2, 3)),
    ((0, 2), (1,)),
    ((0,), (1,), (2,), (3,), (4,)),
]


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ranks_of=st.sampled_from(RANKS),
    length=st.integers(1, 9000),
    short=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_bits_are_those_of_the_ring_for_all_sizes_and_spreads(
    tmp_path: Path, ranks_of: Ranks, length: int, short: bool, seed: int
) -> None:
    count = sum(map(len, ranks_of))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_memory, "SHORT_BYTES", 10**9 if short else 0)
        patch.setattr(shared_memory, "BLOCK_BYTES", 256)  # many blocks
        gangs = gangs_of(tmp_path, ranks_of, 4 * length)
        sums = [SharedSum(gang, length, np.dtype(np.float32)) for gang in gangs]
        for turn in range(3):  # both windows, and the first one again
            vectors = vectors_for(count, length, seed + turn)
            expected = ring_sum(vectors).tobytes()

            def step(process: int, vectors: list[Any] = vectors) -> bytes:
                for rank in ranks_of[process]:
                    own = sums[process].vector(rank)
                    own[...] = np.nan  # what is not written shows
                    own[...] = vectors[rank]
                return bytes(sums[process].all_reduce().tobytes())

            assert together(step, len(ranks_of)) == [expected] * len(ranks_of)
    for gang in gangs:
        gang.leave()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reduction", list(Reduction))
def test_mean_and_maximum(tmp_path: Path, reduction: Reduction) -> None:
    vectors = vectors_for(3, 5000)
    gangs = gangs_of(tmp_path, ((0,), (1,), (2,)), 20_000)

    def step(process: int) -> Any:
        total = SharedSum(gangs[process], 5000, np.dtype(np.float32), reduction)
        total.vector(process)[...] = vectors[process]
        return total.all_reduce().copy()

    wide = np.stack(vectors).astype(np.float64)
    expected = {"sum": wide.sum(0), "mean": wide.mean(0), "max": wide.max(0)}[reduction.value]
    for result in together(step, 3):
        assert np.allclose(result, expected, rtol=1e-4, atol=1e-3 * np.abs(wide).max() * 1e-3)


def test_a_result_stays_until_its_reader_asks_for_the_next_one(tmp_path: Path) -> None:
    gangs = gangs_of(tmp_path, ((0,), (1,)), 4 * 20_000)
    sums = [SharedSum(gang, 20_000, np.dtype(np.float32)) for gang in gangs]
    results = together(lambda process: sums[process].all_reduce(), 2)
    before = results[1].tobytes()
    # Process 0 runs ahead: it has its next vector ready, and waits.
    sums[0].vector(0)[...] = 3
    ahead = threading.Thread(target=sums[0].all_reduce)
    ahead.start()
    ahead.join(0.05)
    assert results[1].tobytes() == before
    sums[1].vector(1)[...] = 4
    assert (sums[1].all_reduce() == 7).all()
    ahead.join()


@pytest.mark.parametrize(
    "change", [{"epoch": 6}, {"agreement": b"s" * 32}, {"key": b"x" * 32}], ids=str
)
def test_a_member_of_another_gang_finds_no_windows(tmp_path: Path, change: dict[str, Any]) -> None:
    other = dataclasses.replace(MEMBER, **change)
    WindowFile.make(tmp_path, MEMBER, 0, 1, 64)
    stranger = WindowFile.make(tmp_path, other, 1, 1, 64)
    with pytest.raises(PodyardError, match="process 0 of this machine has no windows") as caught:
        Members.attach(stranger, {0: (0,), 1: (1,)}, silence_seconds=0.2, stopping=never)
    assert caught.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize(
    ("made_by", "code"),
    [(MEMBER, Code.ABORTED), (dataclasses.replace(MEMBER, key=b"x" * 32), Code.UNAUTHENTICATED)],
    ids=["another size", "another key under our name"],
)
def test_windows_that_do_not_fit_or_are_not_ours_are_refused(
    tmp_path: Path, made_by: Membership, code: Code
) -> None:
    WindowFile.make(tmp_path, made_by, 0, 1, 8192)
    windows._path(tmp_path, made_by, 0).rename(windows._path(tmp_path, MEMBER, 0))
    own = WindowFile.make(tmp_path, MEMBER, 1, 1, 64)
    with pytest.raises(PodyardError) as caught:
        Members.attach(own, {0: (0,), 1: (1,)}, silence_seconds=0.2, stopping=never)
    assert caught.value.code is code


def test_who_leaves_and_who_is_silent_is_named(tmp_path: Path) -> None:
    gangs = gangs_of(tmp_path, ((0,), (1,), (2,)), 64, silence_seconds=0.3)
    with pytest.raises(
        PodyardError, match=r"processes \[1, 2\] of this machine are silent for 0\.3 s"
    ):
        gangs[0].meet()
    gangs[2].leave()
    with pytest.raises(PodyardError, match="process 2 of this machine is gone") as caught:
        gangs[1].meet()
    assert caught.value.code is Code.UNAVAILABLE


def test_told_to_stop_ends_the_wait(tmp_path: Path) -> None:
    stop = threading.Event()
    gangs = gangs_of(tmp_path, ((0,), (1,)), 64, stopping=stop.is_set)
    stop.set()
    with pytest.raises(PodyardError) as caught:
        gangs[0].meet()
    assert caught.value.code is Code.CANCELLED


def test_no_room_is_said_before_anything_is_written(tmp_path: Path) -> None:
    for folder, nbytes in ((tmp_path, 2**60), (tmp_path / "not there", 64)):
        with pytest.raises(PodyardError, match="no room for windows") as caught:
            WindowFile.make(folder, MEMBER, 0, 1, nbytes)
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert list(tmp_path.iterdir()) == []
    gangs = gangs_of(tmp_path, ((0,),), 64)
    with pytest.raises(PodyardError, match="more than a window of 64 bytes"):
        SharedSum(gangs[0], 17, np.dtype(np.float32))
    gangs = gangs_of(tmp_path, ((0,), (2,)), 64)
    with pytest.raises(PodyardError, match="not all of them"):
        SharedSum(gangs[0], 16, np.dtype(np.float32))


def _sum_for_ever(folder: str, process: int, ready: Any) -> None:
    own = WindowFile.make(Path(folder), MEMBER, process, 1, 4 * 20_000)
    ready.wait()
    gang = Members.attach(own, {0: (0,), 1: (1,)}, silence_seconds=600, stopping=never)
    total = SharedSum(gang, 20_000, np.dtype(np.float32))
    try:
        while True:
            total.vector(process)[...] = 1
            assert (total.all_reduce() == 2).all()
    except PodyardError as error:
        os._exit(error.code.value if "is gone" in error.message else 99)


@pytest.mark.slow
def test_a_killed_process_is_noticed_at_once_and_its_windows_are_no_ones(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    workers = [
        context.Process(target=_sum_for_ever, args=(str(tmp_path), process, ready))
        for process in (0, 1)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    # Windows have no names as soon as all have mapped all.
    while list(tmp_path.iterdir()):
        workers[0].join(0.01)
    os.kill(workers[1].pid or 0, signal.SIGKILL)
    workers[0].join(60)  # a tenth of the silence that it would bear
    assert workers[0].exitcode == Code.UNAVAILABLE.value
    for worker in workers:
        worker.join()


def _make_and_die(folder: str) -> None:
    WindowFile.make(Path(folder), MEMBER, 1, 1, 64)
    os._exit(0)


@pytest.mark.slow
def test_the_agent_removes_what_the_dead_have_left(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    dead = context.Process(target=_make_and_die, args=(str(tmp_path),))
    dead.start()
    dead.join()
    alive = WindowFile.make(tmp_path, MEMBER, 0, 1, 64)
    assert len(list(tmp_path.glob(PREFIX + "*"))) == 2
    assert remove_left_over(tmp_path) == 1
    assert [path.name[-2:] for path in tmp_path.iterdir()] == ["-0"]
    assert alive.process == 0
