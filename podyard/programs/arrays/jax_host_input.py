"""Host input of a module: arguments that the program hands over as new host arrays at each of its
runs.

A NumPy array is sent by each run that gets it. An array on the devices was sent for one run if it
was put there from the host and no run has had it before: programs that put batches on the devices
ahead of time are fed, and parameters that were put there once are not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from podyard.programs import jax_internals as internals
from podyard.programs.records import ModuleRuns, array_key

# Runs of a module that are looked at: a program that feeds its step does so from the start.
RUNS_MAX = 16
# One run says nothing: everything is new to it.
RUNS_MIN = 2


class HostInput:
    """Arrays that are new on the devices, and those that each module has got in all of its first
    runs."""

    def __init__(self) -> None:
        self._new: dict[int, weakref.ref[Any]] = {}
        self._sent: dict[int, set[str]] = {}

    def after_put(self, array: Any, values: Sequence[Any]) -> None:
        """`values` were put on devices as `array`."""
        if isinstance(array, jax.Array) and not all(
            isinstance(value, jax.Array) for value in values
        ):
            self._new[id(array)] = weakref.ref(array, self._forget(id(array)))

    def after_run(self, module: ModuleRuns, arguments: Any) -> None:
        """A module has run; to be called after it was counted."""
        if module.runs > RUNS_MAX:
            return
        sent = {self._key(leaf) for leaf in jax.tree.leaves(arguments) if self._is_new(leaf)}
        before = self._sent.setdefault(id(module), sent)
        before &= sent
        if module.runs >= RUNS_MIN:
            module.host_input = tuple(sorted(before))

    def _is_new(self, value: Any) -> bool:
        if isinstance(value, np.ndarray):
            return True
        return isinstance(value, jax.Array) and self._new.pop(id(value), None) is not None

    def _key(self, value: Any) -> str:
        array = internals.array_of(value)
        return array_key(array.shape, np.dtype(jax.dtypes.canonicalize_dtype(array.dtype)).itemsize)

    def _forget(self, key: int) -> Callable[[Any], None]:
        def forget(_: Any) -> None:
            self._new.pop(key, None)

        return forget
