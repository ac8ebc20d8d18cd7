"""Runs a schedule, and computes what it would give.

The one summation order over hosts is the schedule's: per chunk, in ring order. `ring_sum` follows it without moving
anything, so a process that holds all hosts gets the same bits as one process per host.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from podyard.engine.collectives.schedule import (
    Op,
    Schedule,
    chunk_bounds,
    ring_all_reduce,
    summation_order,
)
from podyard.engine.collectives.transport import Tag, Transport, Vector


def run_schedule(schedule: Schedule, transport: Transport, vectors: Mapping[int, Vector], sequence: int) -> None:
    """All-reduces in place: `vectors` maps each rank that this process holds to its float32 vector, all of one length.

    `sequence` numbers the collectives of one transport. Raises what the transport raises; the vectors are then spoilt.
    """
    length = next(iter(vectors.values())).shape[0]
    bounds = chunk_bounds(length, schedule.chunk_count)
    scratch = np.empty(max(stop - start for start, stop in bounds), np.float32)
    for index, step in enumerate(schedule.steps):
        mine = [exchange for exchange in step if exchange.rank in vectors]
        # All sends of a step come before its first receive: they do not block, so no ring of waiting ranks can form.
        for exchange in mine:
            start, stop = bounds[exchange.send_chunk]
            tag = Tag(sequence, index, exchange.send_chunk)
            transport.send(exchange.rank, exchange.send_to, tag, vectors[exchange.rank][start:stop])
        for exchange in mine:
            start, stop = bounds[exchange.receive_chunk]
            own = vectors[exchange.rank][start:stop]
            received = scratch[: stop - start]
            tag = Tag(sequence, index, exchange.receive_chunk)
            transport.receive(exchange.rank, exchange.receive_from, tag, received)
            if exchange.op is Op.ADD:
                np.add(received, own, out=own)
            else:
                own[...] = received
    transport.flush()


@functools.cache
def _orders(rank_count: int) -> tuple[tuple[int, ...], ...]:
    schedule = ring_all_reduce(rank_count)
    return tuple(summation_order(schedule, chunk) for chunk in range(schedule.chunk_count))


def ring_sum(host_vectors: Sequence[Vector]) -> Vector:
    """The sum of one float32 vector per host, bit for bit as the ring over all of them gives it."""
    result = np.empty_like(host_vectors[0])
    bounds = chunk_bounds(result.shape[0], len(host_vectors))
    for (start, stop), order in zip(bounds, _orders(len(host_vectors)), strict=True):
        total = result[start:stop]
        total[...] = host_vectors[order[0]][start:stop]
        for rank in order[1:]:
            np.add(total, host_vectors[rank][start:stop], out=total)
    return result
