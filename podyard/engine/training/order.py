"""Examples by step and core: a function of seed and step alone, so that a resume is exact."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import failed_precondition
from podyard.base.rng import Streams


@dataclasses.dataclass(frozen=True)
class Position:
    """In the data: `offset` examples of 0-based `epoch` are used up."""

    epoch: int = 0
    offset: int = 0


class DataOrder:
    """Each epoch of the data is a new permutation of (seed, epoch); what does not fill a batch is
    left out.

    `steps_before` steps have been done and have come to `start`: with batches of another size, if
    need be.
    """

    def __init__(
        self,
        seed: int,
        example_count: int,
        global_batch: int,
        steps_before: int = 0,
        start: Position = Position(),
    ) -> None:
        if global_batch > example_count:
            raise failed_precondition(
                f"global batch {global_batch} is larger than the {example_count} training examples"
            )
        self._seed = seed
        self._example_count = example_count
        self._global_batch = global_batch
        self._steps_before = steps_before
        self._start = start
        self._steps_per_epoch = example_count // global_batch
        # Whole batches that the first epoch still has.
        self._steps_of_first = (example_count - start.offset) // global_batch

    def indices(self, step: int) -> NDArray[np.int64]:
        """The examples [global_batch] of 1-based `step`; core c of n has the c-th of n equal
        parts."""
        end = self.position(step)
        return _permutation(self._seed, end.epoch, self._example_count)[
            end.offset - self._global_batch : end.offset
        ]

    def position(self, step: int) -> Position:
        """After `step`."""
        done = step - self._steps_before
        if done <= 0:
            return self._start
        if done <= self._steps_of_first:
            return Position(self._start.epoch, self._start.offset + done * self._global_batch)
        epochs, within = divmod(done - self._steps_of_first - 1, self._steps_per_epoch)
        return Position(self._start.epoch + 1 + epochs, (within + 1) * self._global_batch)


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    order = list(range(count))
    Streams(seed).stream(f"data-order/{epoch}").shuffle(order)
    return np.array(order, np.int64)
