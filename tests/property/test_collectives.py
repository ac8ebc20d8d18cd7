"""Collectives of any size, type and spread over processes: the defined sum in every bit, the least
bytes, and nothing read that nobody wrote."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.engine.collectives import shared_memory
from podyard.engine.collectives.combine import Reduction
from podyard.engine.collectives.schedule import CollectiveKind, Op, Schedule, ring_all_reduce
from podyard.engine.collectives.shared_memory import SharedSum
from podyard.engine.collectives.sums import SumOverMachines
from podyard.engine.collectives.torus import torus_all_reduce
from podyard.engine.collectives.transport import LocalTransport
from podyard.engine.collectives.transport_tcp import TcpStream, TcpTransport
from podyard.engine.collectives.windows import Members, WindowFile
from podyard.engine.collectives.wire import FRAME_BYTES
from tests.property.collectives import (
    FLOATS,
    MEMBER,
    SILENCE_SECONDS,
    WHOLES,
    Array,
    Groups,
    assert_goals,
    block_bytes,
    block_sizes,
    combined,
    edges,
    goals,
    lengths,
    linked,
    needs_windows,
    poison,
    ran,
    ring_of,
    schedule_of,
    seeds,
    spreads,
    together,
    trickling,
    typed,
    vectors_of,
    window_folder,
)
from tests.unit.engine.schedule_check import check

# Those that add are drawn more often: they have types and reductions.
kinds = st.sampled_from(
    [
        *CollectiveKind,
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_REDUCE,
    ]
)


def run_of(
    data: st.DataObject, kind: CollectiveKind, spread: Callable[[int], st.SearchStrategy[Groups]]
) -> Any:
    """(schedule, groups, vectors, reduction) of a collective of `kind`."""
    ranks = data.draw(st.integers(1, 9), "ranks")
    dtype, reduction = data.draw(typed, "type")
    length = data.draw(lengths, "length")
    if kind is CollectiveKind.ALL_TO_ALL:
        length *= ranks
    schedule = schedule_of(kind, ranks, data.draw(st.integers(1, 5), "chunks"))
    check(schedule)
    vectors = vectors_of(ranks, length, dtype, data.draw(seeds, "seed"))
    return schedule, data.draw(spread(ranks), "groups"), vectors, reduction


@pytest.mark.slow
@settings(max_examples=300)
@given(kind=kinds, size=block_sizes, data=st.data())
def test_every_collective_in_one_process_gives_what_is_defined(
    kind: CollectiveKind, size: int, data: st.DataObject
) -> None:
    schedule, groups, vectors, reduction = run_of(
        data, kind, lambda ranks: st.just([list(range(ranks))])
    )
    with block_bytes(size):
        assert_goals(
            kind, ran(schedule, groups, [LocalTransport()], vectors, reduction), vectors, reduction
        )


@pytest.mark.slow
@settings(max_examples=150)
@given(kind=kinds, size=block_sizes, data=st.data())
def test_every_collective_over_connections_gives_what_is_defined(
    kind: CollectiveKind, size: int, data: st.DataObject
) -> None:
    """Also over connections that take little at a time: a sender then goes on while its message
    waits to be written."""
    schedule, groups, vectors, reduction = run_of(data, kind, spreads)
    most = data.draw(st.sampled_from([None, 13, 60]), "most")
    with block_bytes(size), trickling(most), linked(groups, schedule) as transports:
        for sequence in (1, 2):
            held = ran(schedule, groups, transports, vectors, reduction, sequence)
            assert_goals(kind, held, vectors, reduction)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    kind=st.sampled_from(
        [CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER]
    ),
    size=block_sizes,
    data=st.data(),
)
def test_rings_that_met_at_their_doors_give_what_is_defined(
    kind: CollectiveKind, size: int, data: st.DataObject
) -> None:
    schedule, groups, vectors, reduction = run_of(data, kind, spreads)
    with block_bytes(size), ring_of(groups) as transports:
        assert_goals(
            kind, ran(schedule, groups, transports, vectors, reduction), vectors, reduction
        )


def followed(schedule: Schedule, vectors: Sequence[Array], reduction: Reduction) -> list[Array]:
    """Return what a schedule gives, by the letter: in a step, whole messages of what was there
    before it, one by one."""
    held = [vector.copy() for vector in vectors]
    chunks = edges(len(vectors[0]), schedule.chunk_count)
    for step in schedule.steps:
        before = [vector.copy() for vector in held]
        for move in step:
            sent = before[move.sender][chunks[move.first].start : chunks[move.stop - 1].stop]
            own = held[move.receiver][chunks[move.into].start : chunks[move.into_stop - 1].stop]
            own[...] = sent if move.op is Op.COPY else combined([sent, own], reduction)
    return held


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3).filter(
    lambda shape: math.prod(shape) <= 30
)


@pytest.mark.slow
@settings(max_examples=60)
@given(shape=shapes, length=lengths, seed=seeds, data=st.data())
def test_a_torus_of_any_shape_gives_every_rank_the_same_sum(
    shape: list[int], length: int, seed: int, data: st.DataObject
) -> None:
    wrap = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)), "wrap")
    dtype = data.draw(st.sampled_from([*FLOATS, *WHOLES]), "type")
    reduction = data.draw(st.sampled_from([Reduction.SUM, Reduction.MAX]), "reduction")
    schedule = torus_all_reduce(shape, wrap)
    check(schedule)
    chips = math.prod(shape)
    homes = data.draw(st.lists(st.integers(0, 2), min_size=chips, max_size=chips), "processes")
    groups = [
        [rank for rank, home in enumerate(homes) if home == one] for one in sorted(set(homes))
    ]
    vectors = vectors_of(chips, length, dtype, seed)
    with block_bytes(64), linked(groups, schedule) as transports:
        held = ran(schedule, groups, transports, vectors, reduction)
    expected = followed(schedule, vectors, reduction)
    for rank in range(chips):
        assert held[rank].tobytes() == expected[rank].tobytes() == expected[0].tobytes(), rank
    if dtype.kind in "iu" or reduction is Reduction.MAX:  # in any order
        assert held[0].tobytes() == combined(vectors, reduction).tobytes()
    else:
        wide = np.sum([vector.astype(np.float64) for vector in vectors], axis=0)
        largest = (
            max((float(abs(vector.astype(np.float64)).max()) for vector in vectors), default=0.0)
            if length
            else 0
        )
        tolerance = chips * largest * (2.0**-7 if dtype == FLOATS[1] else 2.0**-22)
        assert np.allclose(held[0].astype(np.float64), wide, rtol=0, atol=tolerance)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    ranks=st.integers(2, 9),
    length=lengths,
    size=block_sizes,
    dtype=st.sampled_from([*FLOATS, *WHOLES]),
)
def test_a_ring_sends_the_least_bytes_there_are(
    ranks: int, length: int, size: int, dtype: np.dtype[Any]
) -> None:
    """Counted where they leave for the network: every rank sends 2 (n - 1) chunks, each an n-th of
    the vector up to one element."""
    written: dict[TcpStream, int] = {}

    def counting(write: Callable[..., int]) -> Callable[..., int]:
        def counted(stream: TcpStream, *views: Any) -> int:
            count = write(stream, *views)
            written[stream] = written.get(stream, 0) + count
            return count

        return counted

    groups = [[rank] for rank in range(ranks)]
    vectors = vectors_of(ranks, length, dtype, length)
    with pytest.MonkeyPatch.context() as patch, block_bytes(size), ring_of(groups) as transports:
        patch.setattr(TcpStream, "write_now", counting(TcpStream.write_now))
        patch.setattr(TcpStream, "write_both_now", counting(TcpStream.write_both_now))
        ran(ring_all_reduce(ranks), groups, transports, vectors)
    longest = -(-length // ranks) * dtype.itemsize
    headers = 2 * (ranks - 1) * max(1, -(-longest // size)) * FRAME_BYTES
    sent = [count - headers for count in written.values()]
    assert len(sent) == ranks
    assert sum(sent) == 2 * (ranks - 1) * length * dtype.itemsize
    for payload in sent:
        assert (
            abs(payload - 2 * (ranks - 1) / ranks * length * dtype.itemsize)
            <= 2 * (ranks - 1) * dtype.itemsize
        )


ROUNDS = 5
POISON = 0xFF  # a NaN of float32 and of bfloat16, in every byte


def gangs_of(
    folder: Path, groups: Mapping[int, Sequence[int]], nbytes: int, adders: int | None
) -> list[Members]:
    files = [
        WindowFile.make(folder, MEMBER, process, len(ranks), nbytes)
        for process, ranks in groups.items()
    ]
    return together(
        lambda index: Members.attach(
            files[index],
            groups,
            silence_seconds=SILENCE_SECONDS,
            stopping=lambda: False,
            adders=adders,
        ),
        len(files),
    )


def poison_windows(gang: Members, ranks: Sequence[int], turns: Sequence[int]) -> None:
    for rank in ranks:
        for turn in turns:
            gang.window(rank, turn, np.dtype(np.uint8), gang.window_bytes)[...] = POISON


@needs_windows
@pytest.mark.slow
@settings(max_examples=150)
@given(
    ranks=st.integers(1, 6), length=lengths, slack=st.integers(0, 9), size=block_sizes,
    short=st.booleans(),
    dtype=st.sampled_from(FLOATS), reduction=st.sampled_from(list(Reduction)), seed=seeds,
    data=st.data(),
)  # fmt: skip
def test_shared_memory_reads_nothing_that_nobody_wrote(  # noqa: PLR0913
    ranks: int, length: int, slack: int, size: int, short: bool, dtype: np.dtype[Any],
    reduction: Reduction,
    seed: int, data: st.DataObject,
) -> None:  # fmt: skip
    """Both windows of all ranks are full of NaN, to their ends, and so is whatever is added in."""
    groups = data.draw(spreads(ranks), "groups")
    adders = data.draw(st.sampled_from([None, 1, 2, 3]), "adders")
    rounds = [vectors_of(ranks, length, dtype, (seed + turn) % 2**32) for turn in range(ROUNDS)]
    with block_bytes(size), window_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_memory, "SHORT_BYTES", 1 << 30 if short else 0)
        gangs = gangs_of(folder, dict(enumerate(groups)), (length + slack) * dtype.itemsize, adders)
        poison_windows(gangs[0], range(ranks), (0, 1))

        def run(process: int) -> None:
            gang = gangs[process]
            shared = SharedSum(gang, length, dtype, reduction)
            poison(shared._own)
            try:
                for turn, vectors in enumerate(rounds):
                    poison_windows(gang, groups[process], (turn % 2,))
                    poison(shared._scratch)
                    for rank in groups[process]:
                        shared.vector(rank)[...] = vectors[rank]
                    result = shared.all_reduce()
                    assert not np.isnan(result.astype(np.float32)).any(), turn
                    for where, expected in goals(
                        CollectiveKind.ALL_REDUCE, vectors, reduction, 0
                    ).values():
                        assert result[where].tobytes() == expected.tobytes(), (turn, where)
            except BaseException:
                gang.leave()  # or the others wait
                raise

        together(run, len(groups))
        for rank in range(ranks):
            for turn in (0, 1):
                window = gangs[0].window(rank, turn, np.dtype(np.uint8), gangs[0].window_bytes)
                assert (window[length * dtype.itemsize :] == POISON).all()
        for gang in gangs:
            gang.leave()


@needs_windows
@pytest.mark.slow
@settings(max_examples=60)
@given(hosts=st.integers(2, 6), length=lengths, size=block_sizes, seed=seeds, data=st.data())
def test_machines_that_share_memory_and_connections_read_nothing_that_nobody_wrote(
    hosts: int, length: int, size: int, seed: int, data: st.DataObject
) -> None:
    split = data.draw(st.integers(1, hosts - 1), "split")
    machines = [list(range(split)), list(range(split, hosts))]
    # The processes of each machine, numbered through.
    inside = [data.draw(spreads(len(machine)), "groups") for machine in machines]
    processes = [
        {
            index + (len(inside[0]) if number else 0): [machines[number][place] for place in group]
            for index, group in enumerate(groups)
        }
        for number, groups in enumerate(inside)
    ]
    rounds = [vectors_of(hosts, length, FLOATS[0], (seed + turn) % 2**32) for turn in range(ROUNDS)]
    with (
        block_bytes(size),
        window_folder() as folder,
        linked(machines, ring_all_reduce(hosts)) as transports,
    ):
        members: list[tuple[Members, Sequence[int], TcpTransport | None]] = []
        for number, groups in enumerate(processes):
            gangs = gangs_of(folder, groups, length * 4, 1)
            poison_windows(gangs[0], machines[number], (0, 1))
            for gang, group in zip(gangs, groups.values(), strict=True):
                members.append((gang, group, transports[number] if gang.place == 0 else None))

        def run(index: int) -> None:
            gang, own, transport = members[index]
            total = SumOverMachines(hosts, gang, length, transport)
            try:
                for turn, vectors in enumerate(rounds):
                    poison_windows(gang, own, (turn % 2,))
                    for host in own:
                        total.vector(host)[...] = vectors[host]
                    result = total.all_reduce()
                    for where, expected in goals(
                        CollectiveKind.ALL_REDUCE, vectors, Reduction.SUM, 0
                    ).values():
                        assert result[where].tobytes() == expected.tobytes(), (turn, where)
            except BaseException:
                gang.leave()  # or the others wait
                if transport is not None:
                    transport.close()
                raise

        together(run, len(members))
        for gang, *_ in members:
            gang.leave()


@pytest.mark.slow
@settings(max_examples=80)
@given(
    kind=st.sampled_from(
        [
            CollectiveKind.ALL_REDUCE,
            CollectiveKind.REDUCE_SCATTER,
            CollectiveKind.ALL_GATHER,
            CollectiveKind.BROADCAST,
        ]
    ),
    size=block_sizes,
    data=st.data(),
)
def test_connections_read_nothing_that_nobody_wrote(
    kind: CollectiveKind, size: int, data: st.DataObject
) -> None:
    """Receive buffers are full of NaN, and so is every part of a vector that is to be
    overwritten."""
    schedule, groups, vectors, reduction = run_of(data, kind, spreads)
    ranks, parts = len(vectors), edges(len(vectors[0]), len(vectors))
    given_to_it = [vector.copy() for vector in vectors]
    for rank, vector in enumerate(given_to_it):
        if kind is CollectiveKind.BROADCAST and rank > 0:
            poison(vector)
        if kind is CollectiveKind.ALL_GATHER:
            for part in set(range(ranks)) - {rank}:
                poison(vector[parts[part]])
    with block_bytes(size), linked(groups, schedule) as transports:
        for sequence in range(1, ROUNDS + 1):
            held = ran(schedule, groups, transports, given_to_it, reduction, sequence)
            assert_goals(kind, held, vectors, reduction)
