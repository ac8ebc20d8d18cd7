"""Runs data-parallel steps for the hosts that one process holds.

The order of every sum is fixed: inside a host by core index, then over the hosts in ring order per chunk, then one
division by the number of cores. None of it depends on which process holds which host, or on how many threads it has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from podyard.engine.collectives.sums import HostSum
from podyard.engine.collectives.transport import Vector
from podyard.engine.training.order import DataOrder
from podyard.engine.training.programs import METRIC_COUNT, TrainPrograms, TrainState, seed_words
from podyard.engine.training.recipe import Batch, Dataset, Recipe


@dataclasses.dataclass(frozen=True, slots=True)
class SliceShape:
    """Hosts of equal size; core c of the slice is core c % cores_per_host of host c // cores_per_host."""

    host_count: int
    core_count: int

    @property
    def cores_per_host(self) -> int:
        return self.core_count // self.host_count


@dataclasses.dataclass(frozen=True, slots=True)
class StepResult:
    """Means over the global batch, in training mode (dropout on)."""

    step: int
    loss: float
    accuracy: float


class Trainer:
    """The steps of one run, from a state."""

    def __init__(
        self,
        recipe: Recipe,
        data: Dataset,
        slice_shape: SliceShape,
        global_batch: int,
        seed: int,
        state: TrainState,
        compilation_cache: str | None = None,
    ) -> None:
        self.train_state = state
        self._data = data
        self._slice = slice_shape
        self._words = seed_words(seed)
        self._order = DataOrder(seed, data.train_count, global_batch)
        self._shard_size = global_batch // slice_shape.core_count
        shard = self._shard(self._order.indices(state.step + 1), core=0)
        self.programs = TrainPrograms(recipe, state.layout, shard, slice_shape.core_count, compilation_cache)

    def run(
        self, last_step: int, hosts: Sequence[int], host_sum: HostSum, thread_count: int, stopping: Callable[[], bool]
    ) -> Iterator[StepResult]:
        """Steps up to `last_step`, each yielded when `state` is after it. Ends early when `stopping()`."""
        cores_per_host = self._slice.cores_per_host
        cores = [host * cores_per_host + core for host in sorted(hosts) for core in range(cores_per_host)]
        with _mapper(min(thread_count, len(cores))) as map_ordered:
            while self.train_state.step < last_step and not stopping():
                step = self.train_state.step + 1
                indices = self._order.indices(step)
                vectors = map_ordered(lambda core, i=indices, s=step: self._core_vector(i, s, core), cores)
                for host, own in _by_host(zip(cores, vectors, strict=True), cores_per_host):
                    add_up(own, host_sum.vector(host))
                yield self._finish(host_sum.all_reduce())

    def _finish(self, total: Vector) -> StepResult:
        loss, accuracy = (total[-METRIC_COUNT:] / np.float32(self._slice.core_count)).tolist()
        self.train_state = self.programs.update(self.train_state, total)
        return StepResult(self.train_state.step, loss, accuracy)

    def _core_vector(self, indices: Any, step: int, core: int) -> Vector:
        return self.programs.core_vector(self.train_state.params, self._shard(indices, core), self._words, step, core)

    def _shard(self, indices: Any, core: int) -> Batch:
        mine = indices[core * self._shard_size : (core + 1) * self._shard_size]
        return {feature: values[mine] for feature, values in self._data.train.items()}


def add_up(vectors: Iterator[Vector], total: Vector) -> None:
    """Their sum in order, into `total`: the first two are added on the way."""
    first = next(vectors)
    second = next(vectors, None)
    if second is None:
        np.copyto(total, first)
        return
    np.add(first, second, out=total)
    for vector in vectors:
        np.add(total, vector, out=total)


def _by_host(vectors: Iterator[tuple[int, Vector]], cores_per_host: int) -> Iterator[tuple[int, Iterator[Vector]]]:
    """(host, vectors of its cores), as they come."""
    for host, own in itertools.groupby(vectors, lambda pair: pair[0] // cores_per_host):
        yield host, (vector for _, vector in own)


@contextlib.contextmanager
def _mapper(thread_count: int) -> Iterator[Callable[..., Iterator[Vector]]]:
    """`map` that keeps the order of its results; with several threads programs run side by side."""
    if thread_count <= 1:
        yield map
        return
    with ThreadPoolExecutor(thread_count, thread_name_prefix="core") as pool:
        yield pool.map
