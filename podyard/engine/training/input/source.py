"""Examples in memory, by index. Arrays that a reader has mapped stay in their file until they are
taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid

# Feature name -> array whose leading axis counts examples.
Arrays = dict[str, NDArray[Any]]


class Examples:
    """Named arrays [count, ...]; `origin` says in errors where they are from (a file's name).
    Raises PodyardError INVALID_ARGUMENT for arrays of several counts, of something else than
    numbers, or when there is no example."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], origin: str = "examples") -> None:
        if not arrays:
            raise invalid(f"{origin}: no features")
        for name, array in arrays.items():
            if array.ndim == 0 or array.dtype.kind not in "biuf":
                raise invalid(
                    f"{origin}: {name} is {array.dtype} {array.shape}, not one number or "
                    "more per example"
                )
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            raise invalid(f"{origin}: the features have different numbers of examples: {counts}")
        self.count = next(iter(counts.values()))
        if not self.count:
            raise invalid(f"{origin}: no examples")
        self._arrays = dict(arrays)
        self._origin = origin

    @property
    def features(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Name -> (type, shape of one example)."""
        return {name: (array.dtype, array.shape[1:]) for name, array in self._arrays.items()}

    def take(self, indices: NDArray[np.int64]) -> Arrays:
        """Copies [len(indices), ...] of these examples. Raises PodyardError INVALID_ARGUMENT for an
        index that is not one of 0 to count - 1."""
        if indices.size and not 0 <= indices.min() <= indices.max() < self.count:
            raise invalid(
                f"{self._origin}: an index of {indices.min()} to {indices.max()}, of "
                f"{self.count} examples"
            )
        return {name: array[indices] for name, array in self._arrays.items()}

    def slice(self, start: int, stop: int) -> Arrays:
        """The examples start <= i < stop, as views where the arrays allow it."""
        return {name: array[start:stop] for name, array in self._arrays.items()}
