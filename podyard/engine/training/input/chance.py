"""The random numbers of a step's examples: a function of (seed, step, position in the global batch)
alone."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from podyard.base.rng import Streams

_WORD_BYTES = 4
# Tables of several steps (reading ahead) and of several transforms.
_TABLES_KEPT = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Chance:
    """The random numbers that one transform may draw for the examples `start` <= position < `stop`
    of a step's global batch. `name` tells the transforms of a pipeline apart."""

    seed: int
    name: str
    step: int
    start: int
    stop: int
    global_batch: int

    def uniform(self, columns: int) -> NDArray[np.float64]:
        """[stop - start, columns] in [0, 1), of 32 bits. The same numbers at every call."""
        table = _table(self.seed, f"augment/{self.name}/{self.step}", self.global_batch, columns)
        return table[self.start : self.stop]


# The shards of a step share one.
@functools.lru_cache(maxsize=_TABLES_KEPT)
def _table(seed: int, stream: str, rows: int, columns: int) -> NDArray[np.float64]:
    words = np.frombuffer(
        Streams(seed).stream(stream).randbytes(_WORD_BYTES * rows * columns), "<u4"
    )
    table = (words / 2.0**32).reshape(rows, columns)
    table.flags.writeable = False
    return table
