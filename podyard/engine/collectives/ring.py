"""Runs a schedule, and computes what it would give.

The one summation order over hosts is the schedule's: per chunk, in ring order. `ring_sum` follows
it without moving anything, so a process that holds all hosts gets the same bits as one process per
host.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from podyard.base.errors import invalid
from podyard.engine.collectives.combine import Array, Combine, Reduction, combiner, finish
from podyard.engine.collectives.schedule import (
    CollectiveKind,
    Move,
    Op,
    Schedule,
    chunk_bounds,
    ring_all_reduce,
    summation_order,
)
from podyard.engine.collectives.transport import Tag, Transport, Vector

# What is sent while the next piece is being added: small enough to be in the cache when it is,
# large enough that a message costs little compared with it.
BLOCK_BYTES = 512 * 1024
# Blocks that a rank sends before it receives: what the connections hold without being copied aside.
BLOCKS_AHEAD = 2


def run_schedule(
    schedule: Schedule,
    transport: Transport,
    vectors: Mapping[int, Array],
    sequence: int,
    reduction: Reduction = Reduction.SUM,
) -> None:
    """Runs a collective in place: `vectors` maps each rank that this process holds to its vector,
    all of one length
    and type. `sequence` numbers the collectives of one transport.

    Raises PodyardError INVALID_ARGUMENT for a type that is not reduced and an all-to-all of parts
    that are not equal, and what the transport raises; the vectors are then spoilt.
    """
    first = next(iter(vectors.values()))
    if schedule.kind is CollectiveKind.ALL_TO_ALL and len(first) % schedule.chunk_count:
        raise invalid(f"{len(first)} elements are not {schedule.chunk_count} equal parts", "length")
    adds = schedule.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)
    combine = combiner(reduction, first.dtype) if adds else None
    run = _Run(schedule, transport, vectors, sequence, combine)
    run.steps()
    transport.flush()
    if adds:
        for vector in vectors.values():
            finish(reduction, vector, schedule.rank_count)


class _Run:
    """A message goes in blocks where it is one chunk, as in rings: then a block of one step is all
    that the same block of the next one needs. Where it is several chunks, whose bounds change from
    step to step, there is one block."""

    def __init__(
        self,
        schedule: Schedule,
        transport: Transport,
        vectors: Mapping[int, Array],
        sequence: int,
        combine: Combine | None,
    ) -> None:
        first = next(iter(vectors.values()))
        self.transport = transport
        self.vectors = vectors
        self.sequence = sequence
        self.combine = combine
        self.bounds = chunk_bounds(len(first), schedule.chunk_count)
        longest = max(stop - start for start, stop in self.bounds)
        single = all(move.stop - move.first <= 1 for _, move in schedule.moves())
        self.blocks = max(1, -(-longest * first.itemsize // BLOCK_BYTES)) if single else 1
        largest = max((self._size(move) for _, move in schedule.moves()), default=0)
        self.scratch = np.empty(-(-largest // self.blocks) + 1, first.dtype)
        # Of each step: (index, messages from ranks of this process, messages to them).
        self.mine = [
            (
                index,
                [m for m in step if m.sender in vectors],
                [m for m in step if m.receiver in vectors],
            )
            for index, step in enumerate(schedule.steps)
        ]

    def steps(self) -> None:
        """Messages go out and come in in one order, by step and block; sends are a few blocks ahead
        of receives, but never of what they depend on, which is the same block of the step before.
        Sends do not block, so no ring of waiting ranks can form."""
        ahead = min(self.blocks, BLOCKS_AHEAD)
        count, sent = len(self.mine) * self.blocks, 0
        for index in range(count):
            while sent < min(index + ahead, count):
                self._send(*divmod(sent, self.blocks))
                sent += 1
            self._receive(*divmod(index, self.blocks))

    def _send(self, index: int, block: int) -> None:
        step, leaving, _ = self.mine[index]
        for move in leaving:
            start, stop = self._range(move.first, move.stop, block)
            tag = Tag(self.sequence, step, move.into, block)
            self.transport.send(
                move.sender, move.receiver, tag, self.vectors[move.sender][start:stop]
            )

    def _receive(self, index: int, block: int) -> None:
        step, _, entering = self.mine[index]
        for move in entering:
            start, stop = self._range(move.into, move.into_stop, block)
            own = self.vectors[move.receiver][start:stop]
            tag = Tag(self.sequence, step, move.into, block)
            if move.op is Op.COPY:
                self.transport.receive(move.receiver, move.sender, tag, own)
                continue
            received = self.scratch[: stop - start]
            self.transport.receive(move.receiver, move.sender, tag, received)
            assert self.combine is not None
            self.combine(received, own, own)

    def _range(self, first: int, stop: int, block: int) -> tuple[int, int]:
        """Elements of a block of chunks `first` to `stop`."""
        if stop == first:
            return 0, 0
        start, end = self.bounds[first][0], self.bounds[stop - 1][1]
        length = end - start
        return start + block * length // self.blocks, start + (block + 1) * length // self.blocks

    def _size(self, move: Move) -> int:
        return (
            self.bounds[move.stop - 1][1] - self.bounds[move.first][0]
            if move.stop > move.first
            else 0
        )


@functools.cache
def ring_orders(rank_count: int) -> tuple[tuple[int, ...], ...]:
    """Of each chunk, the order in which a ring adds the ranks."""
    schedule = ring_all_reduce(rank_count)
    return tuple(summation_order(schedule, chunk) for chunk in range(schedule.chunk_count))


def ring_sum(host_vectors: Sequence[Vector]) -> Vector:
    """The sum of one float32 vector per host, bit for bit as the ring over all of them gives it."""
    result = np.empty_like(host_vectors[0])
    bounds = chunk_bounds(result.shape[0], len(host_vectors))
    for (start, stop), order in zip(bounds, ring_orders(len(host_vectors)), strict=True):
        total = result[start:stop]
        total[...] = host_vectors[order[0]][start:stop]
        for rank in order[1:]:
            np.add(total, host_vectors[rank][start:stop], out=total)
    return result
