"""Proves a schedule right without running it: what every rank holds of what was there at the start
is followed
message by message, and compared with what the collective is to give.

- all-reduce: every chunk of every rank is the sum of that chunk of all ranks, each once.
- reduce-scatter: chunk r of rank r is (with several chunks a rank: its r-th equal part).
- all-gather: at the start only the r-th part of rank r is there; at the end all parts are,
  everywhere.
- broadcast: rank 0's vector is everywhere.
- all-to-all: chunk p of rank r has become chunk r of rank p.
- barrier: every rank has heard, directly or not, of the coming of every other.
"""

from __future__ import annotations

from collections import Counter

from podyard.engine.collectives.schedule import CollectiveKind, Move, Op, Schedule, sent_elements

# (rank, chunk) at the start, and how often it is in a sum.
Content = Counter[tuple[int, int]]


def check(schedule: Schedule) -> None:
    """Raises AssertionError naming a step and rank, or chunks that are not what they should be, or
    a total of bytes
    that is more than the least possible: k ranks send 2 (k - 1) vectors for an all-reduce, k - 1
    for a reduce-scatter, all-gather, broadcast or all-to-all."""
    if schedule.kind is CollectiveKind.BARRIER:
        _check_barrier(schedule)
        return
    held = _start(schedule)
    for index, step in enumerate(schedule.steps):
        before = dict(held)
        written: dict[tuple[int, int], Op] = {}
        for move in step:
            _check_move(schedule, index, move)
            for offset in range(move.stop - move.first):
                source, target = (
                    (move.sender, move.first + offset),
                    (move.receiver, move.into + offset),
                )
                # Two sums may meet in one step; what was copied may not be overwritten.
                if target in written and Op.COPY in (move.op, written[target]):
                    raise AssertionError(
                        f"step {index}: chunk {target[1]} of rank {target[0]} is received twice"
                    )
                written[target] = move.op
                if source not in before or (move.op is Op.ADD and target not in before):
                    raise AssertionError(f"step {index}: {move} is of a chunk that a rank lacks")
                held[target] = (
                    before[source] + held[target] if move.op is Op.ADD else before[source]
                )
    wrong = [key for key, content in _goal(schedule).items() if held.get(key) != content]
    if wrong:
        raise AssertionError(
            f"(rank, chunk) without what the {schedule.kind} is to give: {wrong[:4]}"
        )
    _check_total(schedule)


def _check_move(schedule: Schedule, index: int, move: Move) -> None:
    ranks, chunks = range(schedule.rank_count), range(schedule.chunk_count + 1)
    ends = (move.first, move.stop, move.into, move.into_stop)
    known = move.sender in ranks and move.receiver in ranks and all(end in chunks for end in ends)
    if not known or move.sender == move.receiver or move.first >= move.stop:
        raise AssertionError(f"step {index}: {move} is not a message between two ranks")


def _part(schedule: Schedule, rank: int) -> range:
    size = schedule.chunk_count // schedule.rank_count
    return range(rank * size, (rank + 1) * size)


def _start(schedule: Schedule) -> dict[tuple[int, int], Content]:
    ranks, chunks = range(schedule.rank_count), range(schedule.chunk_count)
    if schedule.kind is CollectiveKind.ALL_GATHER:
        return {
            (rank, chunk): Counter([(rank, chunk)])
            for rank in ranks
            for chunk in _part(schedule, rank)
        }
    holders = range(1) if schedule.kind is CollectiveKind.BROADCAST else ranks
    return {(rank, chunk): Counter([(rank, chunk)]) for rank in holders for chunk in chunks}


def _goal(schedule: Schedule) -> dict[tuple[int, int], Content]:
    ranks, chunks = range(schedule.rank_count), range(schedule.chunk_count)
    match schedule.kind:
        case CollectiveKind.ALL_REDUCE:
            return {
                (rank, chunk): Counter([(one, chunk) for one in ranks])
                for rank in ranks
                for chunk in chunks
            }
        case CollectiveKind.REDUCE_SCATTER:
            return {
                (rank, chunk): Counter([(one, chunk) for one in ranks])
                for rank in ranks
                for chunk in _part(schedule, rank)
            }
        case CollectiveKind.ALL_GATHER:
            owners = {chunk: rank for rank in ranks for chunk in _part(schedule, rank)}
            return {
                (rank, chunk): Counter([(owners[chunk], chunk)])
                for rank in ranks
                for chunk in chunks
            }
        case CollectiveKind.BROADCAST:
            return {(rank, chunk): Counter([(0, chunk)]) for rank in ranks for chunk in chunks}
        case _:
            return {(rank, chunk): Counter([(chunk, rank)]) for rank in ranks for chunk in chunks}


def _check_total(schedule: Schedule) -> None:
    k = schedule.rank_count
    vectors = 2 * (k - 1) if schedule.kind is CollectiveKind.ALL_REDUCE else k - 1
    if sum(sent_elements(schedule, schedule.chunk_count)) != vectors * schedule.chunk_count:
        raise AssertionError(
            f"the ranks of this {schedule.kind} do not send {vectors} vectors in all"
        )


def _check_barrier(schedule: Schedule) -> None:
    heard = {rank: {rank} for rank in range(schedule.rank_count)}
    for step in schedule.steps:
        before = {rank: set(known) for rank, known in heard.items()}
        for move in step:
            heard[move.receiver] |= before[move.sender]
    deaf = [rank for rank, known in heard.items() if len(known) != schedule.rank_count]
    if deaf:
        raise AssertionError(f"ranks {deaf[:4]} leave the barrier before all have come")
