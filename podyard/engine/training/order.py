"""Which examples belong to which step and core: a function of seed and step alone, so that a resume is exact."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import failed_precondition
from podyard.base.rng import Streams


class DataOrder:
    """Each epoch of the data is a new permutation of (seed, epoch); what does not fill a batch is left out."""

    def __init__(self, seed: int, example_count: int, global_batch: int) -> None:
        if global_batch > example_count:
            raise failed_precondition(
                f"global batch {global_batch} is larger than the {example_count} training examples"
            )
        self._seed = seed
        self._example_count = example_count
        self._global_batch = global_batch
        self._steps_per_epoch = example_count // global_batch

    def indices(self, step: int) -> NDArray[np.int64]:
        """The examples [global_batch] of 1-based `step`; core c of n has the c-th of n equal parts."""
        epoch, position = divmod(step - 1, self._steps_per_epoch)
        start = position * self._global_batch
        return _permutation(self._seed, epoch, self._example_count)[start : start + self._global_batch]


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    order = list(range(count))
    Streams(seed).stream(f"data-order/{epoch}").shuffle(order)
    return np.array(order, np.int64)
