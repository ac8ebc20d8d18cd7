"""What the bus to HBM moves while kernels run: operands that are fetched ahead, results that
leave."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from podyard.engine.timing.graph import Fused


class Ahead:
    """The room on the chip during each kernel, and what the bus can still move then. Kernels are
    added one by one."""

    def __init__(
        self, fused: Fused, near: Collection[int], size_of: Callable[[int], float], room: float
    ) -> None:
        self._kernels = fused.kernels
        spans: dict[int, tuple[int, int]] = {}
        for place, kernel in enumerate(fused.kernels):
            for value in (*kernel.inputs, *kernel.outputs):
                if value in near:
                    spans[value] = spans.get(value, (place, place))[0], place
        self._room = np.full(len(fused.kernels), room, dtype=np.float64)
        for value, (first, last) in spans.items():
            self._room[first : last + 1] -= size_of(value)
        self._free: list[float] = []
        # What is still to leave.
        self._leaving = 0.0

    def start(self, value: int, nbytes: float) -> bool:
        """Return whether an argument can be there from the start until it is read; if so, it is."""
        last = next(
            (place for place, kernel in enumerate(self._kernels) if value in kernel.inputs), 0
        )
        if self._room[: last + 1].min() < nbytes:
            return False
        self._room[: last + 1] -= nbytes
        return True

    def fetch(self, nbytes: float, place: int) -> bool:
        """Return whether so many bytes can be fetched while the kernels before run, the nearest
        first; if so, they are."""
        left, first = nbytes, place
        while left > 0 and first > 0 and self._room[first] >= nbytes:
            first -= 1
            left -= min(left, self._free[first])
        if left > 0 or self._room[first : place + 1].min() < nbytes:
            return False
        left = nbytes
        for other in range(place - 1, first - 1, -1):
            moved = min(left, self._free[other])
            self._free[other] -= moved
            left -= moved
        self._room[first : place + 1] -= nbytes
        return True

    def hold(self, nbytes: float, first: int, last: int) -> bool:
        """Return whether so many bytes can lie on the chip from one kernel to another; if so, they
        do."""
        if self._room[first : last + 1].min() < nbytes:
            return False
        self._room[first : last + 1] -= nbytes
        return True

    def leave(self, nbytes: float) -> None:
        """A result lies in the place of what was fetched until it has left."""
        self._leaving += nbytes

    def ran(self, moved: float) -> None:
        """The next kernel has run, and the bus had time for so many bytes."""
        left = min(self._leaving, moved)
        self._leaving -= left
        self._free.append(moved - left)
        if len(self._free) < len(self._room):
            self._room[len(self._free)] -= self._leaving
