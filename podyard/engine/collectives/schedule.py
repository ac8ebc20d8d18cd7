"""Who sends which chunk to whom, step by step: a collective as data.

Two readers: the timing model counts it, `collectives.ring` runs it. `check_all_reduce` proves a schedule without
running it. No JAX and no I/O in here.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from podyard.base.errors import invalid


class Op(StrEnum):
    """What a receiver does with a chunk: `ADD` puts received + own, in this order, in place of its own."""

    ADD = "add"
    COPY = "copy"


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """What one rank does in one step. The chunk it sends is as it was before the step."""

    rank: int
    send_to: int
    send_chunk: int
    receive_from: int
    receive_chunk: int
    op: Op


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """`steps[i]` holds one exchange per rank, in rank order. A vector is cut into `chunk_count` chunks."""

    rank_count: int
    chunk_count: int
    steps: tuple[tuple[Exchange, ...], ...]

    def moves(self) -> Iterator[tuple[int, Exchange]]:
        """(step, exchange) of all steps."""
        for index, step in enumerate(self.steps):
            for exchange in step:
                yield index, exchange


def chunk_bounds(length: int, chunk_count: int) -> list[tuple[int, int]]:
    """Half-open bounds of each chunk, in elements: sizes differ by one at most, and may be 0."""
    edges = [index * length // chunk_count for index in range(chunk_count + 1)]
    return list(itertools.pairwise(edges))


def ring_all_reduce(rank_count: int) -> Schedule:
    """Reduce-scatter, then all-gather, around one ring: 2 (k - 1) steps that each send one k-th of the vector.

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
    Raises PodyardError INVALID_ARGUMENT for fewer than one rank.
    """
    if rank_count < 1:
        raise invalid(f"a ring has at least one rank, not {rank_count}")
    k = rank_count
    steps = []
    for step in range(2 * (k - 1)):
        # Chunk c sets out from rank c, is complete at rank c - 1 after k - 1 steps, and goes round once more.
        op = Op.ADD if step < k - 1 else Op.COPY
        steps.append(
            tuple(
                Exchange(rank, (rank + 1) % k, (rank - step) % k, (rank - 1) % k, (rank - step - 1) % k, op)
                for rank in range(k)
            )
        )
    return Schedule(k, k, tuple(steps))


def summation_order(schedule: Schedule, chunk: int) -> tuple[int, ...]:
    """The ranks in the order in which a ring adds `chunk`: ((first + second) + third) + ..."""
    additions = [e for _, e in schedule.moves() if e.op is Op.ADD and e.receive_chunk == chunk]
    if not additions:
        return tuple(range(schedule.rank_count))
    return (additions[0].receive_from, *(e.rank for e in additions))


def sent_elements(schedule: Schedule, length: int) -> list[int]:
    """Elements that each rank sends for a vector of `length` elements."""
    bounds = chunk_bounds(length, schedule.chunk_count)
    totals = [0] * schedule.rank_count
    for _, exchange in schedule.moves():
        start, stop = bounds[exchange.send_chunk]
        totals[exchange.rank] += stop - start
    return totals


def check_all_reduce(schedule: Schedule) -> None:
    """Proves that every rank ends with each rank's contribution exactly once, over matching sends and receives, and
    that all ranks together send 2 (k - 1) vectors, which is the least possible. Raises AssertionError if not."""
    k = schedule.rank_count
    held = {(rank, chunk): Counter([rank]) for rank in range(k) for chunk in range(schedule.chunk_count)}
    for index, step in enumerate(schedule.steps):
        by_rank = {exchange.rank: exchange for exchange in step}
        if len(by_rank) != k or len(step) != k:
            raise AssertionError(f"step {index} does not have one exchange per rank")
        before = dict(held)
        for exchange in step:
            sender = by_rank[exchange.receive_from]
            if sender.send_to != exchange.rank or sender.send_chunk != exchange.receive_chunk:
                raise AssertionError(f"step {index}: rank {exchange.rank} waits for what nobody sends")
            key = (exchange.rank, exchange.receive_chunk)
            received = before[exchange.receive_from, exchange.receive_chunk]
            held[key] = received + before[key] if exchange.op is Op.ADD else received
    everyone = Counter(range(k))
    wrong = [key for key, contributions in held.items() if contributions != everyone]
    if wrong:
        raise AssertionError(f"(rank, chunk) without the whole sum: {wrong[:4]}")
    if sum(sent_elements(schedule, schedule.chunk_count)) != 2 * (k - 1) * schedule.chunk_count:
        raise AssertionError("the ranks do not send 2 (k - 1) vectors in all")
