"""Schedules: which chunks each sends to whom, step by step: a collective as data.

Three readers: the timing model counts it, a transport runs it, and a test proves it without running
it.
A vector is cut into `chunk_count` chunks; a message carries neighbouring ones. No JAX and no I/O in
here.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from enum import StrEnum

from podyard.base.errors import invalid


class CollectiveKind(StrEnum):
    """The result of a collective, for ranks 0 to k - 1 with a vector of chunks each."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"
    ALL_TO_ALL = "all-to-all"
    BARRIER = "barrier"


class Op(StrEnum):
    """The action of a receiver on a chunk: `ADD` replaces the own chunk by received + own, in this
    order (for maxima, by the larger one)."""

    ADD = "add"
    COPY = "copy"


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A message: chunks `first` to `stop` (exclusive) of the sender, as they are before the step.
    The receiver takes them as its chunks from `into` on. Without chunks it only says that the
    sender has come this far."""

    sender: int
    receiver: int
    first: int
    stop: int
    op: Op
    into: int

    @property
    def into_stop(self) -> int:
        return self.into + self.stop - self.first


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """`steps[i]` holds the messages that are under way at the same time."""

    kind: CollectiveKind
    rank_count: int
    chunk_count: int
    steps: tuple[tuple[Move, ...], ...]

    def moves(self) -> Iterator[tuple[int, Move]]:
        """(step, message) of all steps."""
        for index, step in enumerate(self.steps):
            for move in step:
                yield index, move


def chunk_bounds(length: int, chunk_count: int) -> list[tuple[int, int]]:
    """Half-open bounds of each chunk, in elements: sizes differ by one at most, and may be 0."""
    edges = [index * length // chunk_count for index in range(chunk_count + 1)]
    return list(itertools.pairwise(edges))


def _at_least_one(rank_count: int) -> int:
    if rank_count < 1:
        raise invalid(f"a collective has at least one rank, not {rank_count}")
    return rank_count


def _ring_step(k: int, step: int, shift: int, op: Op) -> tuple[Move, ...]:
    """Every rank sends one chunk to the next: rank r the chunk r + shift - step."""
    moves = []
    for rank in range(k):
        chunk = (rank + shift - step) % k
        moves.append(Move(rank, (rank + 1) % k, chunk, chunk + 1, op, chunk))
    return tuple(moves)


def ring_all_reduce(rank_count: int) -> Schedule:
    """Reduce-scatter, then all-gather, around one ring: 2 (k - 1) steps that each send one k-th of
    the vector.

    Chunk c sets out from rank c, is complete at rank c - 1 after k - 1 steps, and goes round once
    more. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations" (2009).
    Raises PodyardError INVALID_ARGUMENT for fewer than one rank.
    """
    k = _at_least_one(rank_count)
    adding = tuple(_ring_step(k, step, 0, Op.ADD) for step in range(k - 1))
    copying = tuple(_ring_step(k, step, 0, Op.COPY) for step in range(k - 1, 2 * (k - 1)))
    return Schedule(CollectiveKind.ALL_REDUCE, k, k, adding + copying)


def ring_reduce_scatter(rank_count: int) -> Schedule:
    """Rank r ends with the sum of chunk r. Raises INVALID_ARGUMENT for fewer than one rank."""
    k = _at_least_one(rank_count)
    return Schedule(
        CollectiveKind.REDUCE_SCATTER,
        k,
        k,
        tuple(_ring_step(k, step, -1, Op.ADD) for step in range(k - 1)),
    )


def ring_all_gather(rank_count: int) -> Schedule:
    """Rank r starts with chunk r, all end with all. Raises INVALID_ARGUMENT for fewer than one
    rank."""
    k = _at_least_one(rank_count)
    return Schedule(
        CollectiveKind.ALL_GATHER,
        k,
        k,
        tuple(_ring_step(k, step, 0, Op.COPY) for step in range(k - 1)),
    )


def pipelined_broadcast(rank_count: int, chunk_count: int) -> Schedule:
    """Rank 0's vector to all, along 0 -> 1 -> ... -> k - 1, chunk after chunk: k - 2 + chunks
    steps.

    Raises INVALID_ARGUMENT for fewer than one rank or chunk.
    """
    k = _at_least_one(rank_count)
    if chunk_count < 1:
        raise invalid(f"a vector is at least one chunk, not {chunk_count}")
    steps = []
    for step in range(k - 2 + chunk_count if k > 1 else 0):
        hops = ((rank, step - rank) for rank in range(k - 1))
        steps.append(
            tuple(
                Move(rank, rank + 1, chunk, chunk + 1, Op.COPY, chunk)
                for rank, chunk in hops
                if 0 <= chunk < chunk_count
            )
        )
    return Schedule(CollectiveKind.BROADCAST, k, chunk_count, tuple(steps))


def pairwise_all_to_all(rank_count: int) -> Schedule:
    """Chunk p of rank r becomes chunk r of rank p. In step s those exchange whose numbers add up to
    s (modulo k): every pair once, and in place, because what comes in is where what went out was.

    Raises INVALID_ARGUMENT for fewer than one rank.
    """
    k = _at_least_one(rank_count)
    steps = []
    for step in range(k):
        pairs = ((rank, (step - rank) % k) for rank in range(k))
        steps.append(
            tuple(
                Move(rank, other, other, other + 1, Op.COPY, rank)
                for rank, other in pairs
                if other != rank
            )
        )
    return Schedule(CollectiveKind.ALL_TO_ALL, k, k, tuple(step for step in steps if step))


def dissemination_barrier(rank_count: int) -> Schedule:
    """Nobody leaves before all have come: in step s, rank r tells r + 2^s. Source: Hensgen, Finkel
    and Manber, "Two algorithms for barrier synchronization" (1988). Raises INVALID_ARGUMENT for
    fewer than one rank."""
    k = _at_least_one(rank_count)
    distances = [1 << power for power in range((k - 1).bit_length())]
    return Schedule(
        CollectiveKind.BARRIER, k, 1,
        tuple(tuple(Move(rank, (rank + far) % k, 0, 0, Op.COPY,
            0) for rank in range(k)) for far in distances),
    )  # fmt: skip


def summation_order(schedule: Schedule, chunk: int) -> tuple[int, ...]:
    """The ranks in the order in which a ring adds `chunk`: ((first + second) + third) + ..."""
    additions = [move for _, move in schedule.moves() if move.op is Op.ADD and move.into == chunk]
    if not additions:
        return tuple(range(schedule.rank_count))
    return (additions[0].sender, *(move.receiver for move in additions))


def sent_elements(schedule: Schedule, length: int) -> list[int]:
    """Elements that each rank sends for a vector of `length` elements."""
    bounds = chunk_bounds(length, schedule.chunk_count)
    totals = [0] * schedule.rank_count
    for _, move in schedule.moves():
        if move.stop > move.first:
            totals[move.sender] += bounds[move.stop - 1][1] - bounds[move.first][0]
    return totals
