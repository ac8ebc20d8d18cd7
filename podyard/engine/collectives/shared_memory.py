"""All-reduce in shared memory: every rank's vector lies in a window, every process sums one part of
all of them.

Nothing is copied: the sum takes the place of rank 0's vector, part by part, and everybody reads it
there. That is one pass over n vectors and one over the result, the least that memory can do.
Windows alternate between collectives: who has the next one's vector ready has read the last one's
sum, so two waits per collective are enough (one for short vectors, which every process sums whole,
for itself).

The order of every addition is the ring's, per chunk, so the bits are those of `ring_sum` and of
TCP.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from podyard.base.errors import invalid
from podyard.engine.collectives.combine import Array, Combine, Reduction, combiner, finish
from podyard.engine.collectives.ring import ring_orders
from podyard.engine.collectives.schedule import chunk_bounds
from podyard.engine.collectives.windows import Members

# What is added at a time where there are more than two vectors: the running sum stays in the core's
# own cache.
BLOCK_BYTES = 512 * 1024
# Up to here every process sums the whole vector: reading it costs less than waiting a second time.
SHORT_BYTES = 16 * 1024
# Parts of processes begin on cache lines of their own.
_LINE_BYTES = 64


class SharedSum:
    """All-reduces of vectors of one length and type between the processes of a machine that hold
    all ranks."""

    how: ClassVar[str] = "in shared memory"

    def __init__(
        self,
        members: Members,
        length: int,
        dtype: np.dtype[Any],
        reduction: Reduction = Reduction.SUM,
    ) -> None:
        """Raises PodyardError INVALID_ARGUMENT for a vector that does not fit the windows or is not
        reduced."""
        if length * dtype.itemsize > members.window_bytes:
            raise invalid(
                f"{length} x {dtype.name} is more than a window of {members.window_bytes} bytes",
                "length",
            )
        self._members = members
        self._reduction = reduction
        self._combine: Combine = combiner(reduction, dtype)
        self._turn = 0
        ranks = sorted(rank for ranks in members.ranks_of.values() for rank in ranks)
        if ranks != list(range(len(ranks))):
            raise invalid(
                f"the processes of this machine hold ranks {ranks}, not all of them", "ranks"
            )
        self._windows = [
            [members.window(rank, turn, dtype, length) for rank in ranks] for turn in (0, 1)
        ]
        self._is_short = length * dtype.itemsize <= SHORT_BYTES
        self._pieces = self._plan(length, dtype.itemsize)
        # A short sum is its process' own.
        self._own = np.empty(length if self._is_short else 0, dtype)
        self._scratch = np.empty(BLOCK_BYTES // dtype.itemsize, dtype)

    def vector(self, rank: int) -> Array:
        """The window that holds the vector of `rank` in the next collective: written by the process
        that has it."""
        return self._windows[self._turn][rank]

    def all_reduce(self) -> Array:
        """The sum (mean, maximum) over all ranks, valid until this process calls this again. Nobody
        may write to it.

        Raises what `Members.meet` raises; the windows are then spoilt.
        """
        windows = self._windows[self._turn]
        self._members.meet()
        total = self._own if self._is_short else windows[0]
        for start, stop, order in self._pieces:
            self._add(windows, order, start, stop, total[start:stop])
        if not self._is_short:
            self._members.finish()
        self._turn = 1 - self._turn
        return total

    def _add(
        self, windows: list[Array], order: tuple[int, ...], start: int, stop: int, total: Array
    ) -> None:
        """The running sum is kept apart until the last addition, because `total` is one of the
        vectors."""
        if len(order) == 1:
            total[...] = windows[order[0]][start:stop]
        elif len(order) == 2:
            self._combine(windows[order[0]][start:stop], windows[order[1]][start:stop], total)
        else:
            running = self._scratch[: stop - start]
            self._combine(windows[order[0]][start:stop], windows[order[1]][start:stop], running)
            for rank in order[2:-1]:
                self._combine(running, windows[rank][start:stop], running)
            self._combine(running, windows[order[-1]][start:stop], total)
        finish(self._reduction, total, len(order))

    def _plan(self, length: int, itemsize: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """(start, stop, order of the ranks) of the blocks that this process sums."""
        place = self._members.place
        ranks = len(self._windows[0])
        start, stop = 0, length
        if not self._is_short:
            line = _LINE_BYTES // itemsize
            parts = chunk_bounds(-(-length // line), self._members.adders)
            start, stop = (
                min(length, edge * line) for edge in (*parts, (0, 0))[min(place, len(parts))]
            )
        # Two vectors need no running sum, hence no blocks.
        block = max(length, 1) if ranks <= 2 else BLOCK_BYTES // itemsize
        pieces = []
        for (first, last), order in zip(
            chunk_bounds(length, ranks), ring_orders(ranks), strict=True
        ):
            low, high = max(first, start), min(last, stop)
            pieces += [(at, min(at + block, high), order) for at in range(low, high, block)]
        return pieces
