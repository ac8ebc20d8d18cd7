"""Collectives for tests: vectors, ways to spread ranks over processes, transports, and what must
come out.

What is expected is computed here, by separate formulas, not by the code under test.
"""

from __future__ import annotations

import functools
import itertools
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from podyard.engine.collectives import futex, ring, shared_memory, transport_tcp
from podyard.engine.collectives.combine import Reduction
from podyard.engine.collectives.ring import run_schedule
from podyard.engine.collectives.schedule import (
    CollectiveKind,
    Schedule,
    dissemination_barrier,
    pairwise_all_to_all,
    pipelined_broadcast,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from podyard.engine.collectives.transport import Transport
from podyard.engine.collectives.transport_tcp import Listener, TcpStream, TcpTransport
from podyard.engine.collectives.wire import Link, Membership

Array = NDArray[Any]
Groups = list[list[int]]

MEMBER = Membership(b"k" * 32, 7, b"r" * 32)
SILENCE_SECONDS = 10.0
FLOATS = [np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)]
WHOLES = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]

lengths = st.one_of(st.sampled_from([0, 1, 2, 3, 7, 97, 251, 509]), st.integers(0, 700))
seeds = st.integers(0, 2**32 - 1)
# Of a block, in bytes: one element of some types, several, all of the vector.
block_sizes = st.sampled_from([8, 24, 56, 200, 1 << 19])
typed = st.one_of(
    st.tuples(st.sampled_from(FLOATS), st.sampled_from(list(Reduction))),
    st.tuples(st.sampled_from(WHOLES), st.sampled_from([Reduction.SUM, Reduction.MAX])),
)
needs_windows = pytest.mark.skipif(not futex.is_supported(), reason="windows need Linux on x86-64")


def spreads(ranks: int) -> st.SearchStrategy[Groups]:
    """Ways to put `ranks` ranks into processes."""

    def grouped(homes: list[int]) -> Groups:
        return [
            [rank for rank, home in enumerate(homes) if home == one] for one in sorted(set(homes))
        ]

    return st.lists(st.integers(0, ranks - 1), min_size=ranks, max_size=ranks).map(grouped)


def vectors_of(ranks: int, length: int, dtype: np.dtype[Any], seed: int) -> list[Array]:
    """Numbers whose sum shows the order of additions: they differ by many powers of ten. None is
    0."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return [
            rng.integers(bounds.min, bounds.max, length, dtype, endpoint=True) for _ in range(ranks)
        ]
    return [
        (rng.standard_normal(length) * 10.0 ** rng.integers(-6, 6)).astype(dtype)
        for _ in range(ranks)
    ]


def combined(vectors: Sequence[Array], reduction: Reduction) -> Array:
    """((first + second) + third) + ..., rounded to the type after each addition; a mean is divided
    once."""
    total = functools.reduce(np.maximum if reduction is Reduction.MAX else np.add, vectors)
    if reduction is Reduction.MEAN:
        total = (total.astype(np.float32) / np.float32(len(vectors))).astype(total.dtype)
    return total


def edges(length: int, parts: int) -> list[slice]:
    return [slice(part * length // parts, (part + 1) * length // parts) for part in range(parts)]


def around(first: int, ranks: int) -> list[int]:
    """All ranks in the order of the ring, from `first` on."""
    return [(first + hop) % ranks for hop in range(ranks)]


def goals(
    kind: CollectiveKind, vectors: Sequence[Array], reduction: Reduction, rank: int
) -> dict[int, tuple[slice, Array]]:
    """Part -> (where it is, what `rank` must have there in the end)."""
    ranks = len(vectors)
    parts = dict(enumerate(edges(len(vectors[0]), ranks)))

    def added(part: int, first: int) -> Array:
        return combined([vectors[one][parts[part]] for one in around(first, ranks)], reduction)

    match kind:
        case CollectiveKind.ALL_REDUCE:  # a part sets out from the rank of its number
            return {part: (where, added(part, part)) for part, where in parts.items()}
        case CollectiveKind.REDUCE_SCATTER:  # and here it ends there
            return {rank: (parts[rank], added(rank, rank + 1))}
        case CollectiveKind.ALL_GATHER:
            return {part: (where, vectors[part][where]) for part, where in parts.items()}
        case CollectiveKind.ALL_TO_ALL:
            return {part: (where, vectors[part][parts[rank]]) for part, where in parts.items()}
        case CollectiveKind.BROADCAST:
            return {part: (where, vectors[0][where]) for part, where in parts.items()}
        case CollectiveKind.BARRIER:
            return {part: (where, vectors[rank][where]) for part, where in parts.items()}


def schedule_of(kind: CollectiveKind, ranks: int, chunks: int) -> Schedule:
    if kind is CollectiveKind.BROADCAST:
        return pipelined_broadcast(ranks, chunks)
    makers: dict[CollectiveKind, Callable[[int], Schedule]] = {
        CollectiveKind.ALL_REDUCE: ring_all_reduce,
        CollectiveKind.REDUCE_SCATTER: ring_reduce_scatter,
        CollectiveKind.ALL_GATHER: ring_all_gather,
        CollectiveKind.ALL_TO_ALL: pairwise_all_to_all,
        CollectiveKind.BARRIER: dissemination_barrier,
    }
    return makers[kind](ranks)


def together(work: Callable[[int], Any], count: int) -> list[Any]:
    """Of each process, a thread here; the first error of any is raised when all have ended."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


@contextmanager
def linked(groups: Groups, schedule: Schedule) -> Iterator[list[TcpTransport]]:
    """A transport per group, with a connection for every two ranks of different groups that
    speak."""
    home = {rank: index for index, ranks in enumerate(groups) for rank in ranks}
    found = [TcpTransport(MEMBER, SILENCE_SECONDS, lambda: False) for _ in groups]
    links = {Link(move.sender, move.receiver) for _, move in schedule.moves()}
    with socket.create_server(("127.0.0.1", 0)) as server:
        for link in sorted(links, key=lambda link: (link.sender, link.receiver)):
            sender, receiver = home[link.sender], home[link.receiver]
            if sender != receiver:
                leaving = TcpStream(
                    socket.create_connection(server.getsockname()), "receiver", SILENCE_SECONDS
                )
                entering = TcpStream(server.accept()[0], "sender", SILENCE_SECONDS)
                leaving.stop_blocking()
                entering.stop_blocking()
                found[sender]._outgoing[link] = transport_tcp._Outgoing(leaving)
                found[receiver]._readers[link] = entering
    try:
        yield found
    finally:
        for transport in found:
            transport.close()


@contextmanager
def ring_of(
    groups: Groups, members: Sequence[Membership] | None = None
) -> Iterator[list[TcpTransport]]:
    """A transport per group, opened as replicas open theirs."""
    listeners = [Listener("127.0.0.1:0") for _ in groups]
    addresses = {
        rank: listeners[index].address for index, ranks in enumerate(groups) for rank in ranks
    }

    def opened(index: int) -> TcpTransport:
        member = MEMBER if members is None else members[index]
        ranks = frozenset(groups[index])
        return TcpTransport.open_ring(
            member, listeners[index], addresses, ranks, silence_seconds=SILENCE_SECONDS
        )

    try:
        found = together(opened, len(groups))
    finally:
        for listener in listeners:
            listener.close()
    try:
        yield found
    finally:
        for transport in found:
            transport.close()


class PoisonedRun(ring._Run):
    """What is received into holds NaN before (-1 where there is none)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        poison(self.scratch)


def poison(array: Array) -> None:
    array[...] = np.array(np.nan if array.dtype in FLOATS else -1).astype(array.dtype)


def ran(
    schedule: Schedule,
    groups: Groups,
    transports: Sequence[Transport],
    vectors: Sequence[Array],
    reduction: Reduction = Reduction.SUM,
    sequence: int = 1,
) -> dict[int, Array]:
    """Return what each rank has in the end. `vectors` stay as they are."""

    def run(index: int) -> dict[int, Array]:
        transport, held = transports[index], {rank: vectors[rank].copy() for rank in groups[index]}
        try:
            run_schedule(schedule, transport, held, sequence, reduction)
        except BaseException:
            if isinstance(transport, TcpTransport):
                transport.close()  # or the others wait
            raise
        return held

    return {rank: vector for held in together(run, len(groups)) for rank, vector in held.items()}


def assert_goals(
    kind: CollectiveKind, held: Mapping[int, Array], vectors: Sequence[Array], reduction: Reduction
) -> None:
    assert sorted(held) == list(range(len(vectors)))
    for rank, vector in held.items():
        for part, (where, expected) in goals(kind, vectors, reduction, rank).items():
            assert vector[where].tobytes() == expected.tobytes(), (rank, part)


@contextmanager
def block_bytes(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring, "BLOCK_BYTES", size)
        patch.setattr(shared_memory, "BLOCK_BYTES", size)
        patch.setattr(ring, "_Run", PoisonedRun)
        yield


@contextmanager
def window_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def trickling(most: int | None) -> Iterator[None]:
    """With connections that take `most` bytes at once, and nothing every second time; None leaves
    them as they are."""
    with pytest.MonkeyPatch.context() as patch:
        if most is not None:
            write, turns = TcpStream.write_now, itertools.count()

            def some(stream: TcpStream, view: memoryview) -> int:
                return 0 if next(turns) % 2 else write(stream, view[:most])

            def of_both(stream: TcpStream, header: bytes, payload: memoryview) -> int:
                return some(stream, memoryview(header + bytes(payload)))

            patch.setattr(TcpStream, "write_now", some)
            patch.setattr(TcpStream, "write_both_now", of_both)
        yield
