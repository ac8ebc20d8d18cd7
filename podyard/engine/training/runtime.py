"""Runs data-parallel steps for the hosts that one process holds.

The order of every sum is fixed: inside a host by core (and by part of the core's batch, see `parts`), then over the
hosts in ring order per chunk, then one division by the number of all parts. None of it depends on which process holds
which host, or on how many threads it has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from podyard.engine.collectives.sums import HostSum
from podyard.engine.collectives.transport import Vector
from podyard.engine.training.input.pipeline import Pipeline
from podyard.engine.training.order import DataOrder
from podyard.engine.training.parts import parts_of
from podyard.engine.training.programs import Layouts, TrainPrograms, TrainState, seed_words
from podyard.engine.training.recipe import Input, Trainable

# Steps whose batches are ready before they are asked for.
PREFETCH_STEPS = 2


@dataclasses.dataclass(frozen=True, slots=True)
class SliceShape:
    """Hosts of equal size; core c of the slice is core c % cores_per_host of host c // cores_per_host."""

    host_count: int
    core_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepResult:
    """`metrics` are means over the global batch, in training mode (dropout on), "loss" first."""

    step: int
    metrics: Mapping[str, float]


class Trainer:
    """The steps of one run, from a state."""

    def __init__(
        self,
        model: Trainable,
        layouts: Layouts,
        data: Input,
        slice_shape: SliceShape,
        global_batch: int,
        seed: int,
        state: TrainState,
        compilation_cache: str | None = None,
    ) -> None:
        self.train_state = state
        self._words = seed_words(seed)
        order = DataOrder(seed, data.train.count, global_batch)

        def pipeline(shard_count: int) -> Pipeline:
            return Pipeline(data.train, order, global_batch, shard_count, data.train_transforms, seed, PREFETCH_STEPS)

        of_a_core = pipeline(slice_shape.core_count).shard(state.step + 1, 0)
        self._shard_count = slice_shape.core_count * parts_of(model, layouts, of_a_core)
        self._shards_per_host = self._shard_count // slice_shape.host_count
        self._pipeline = pipeline(self._shard_count)
        shard = self._pipeline.shard(state.step + 1, 0)
        self.programs = TrainPrograms(model, layouts, shard, self._shard_count, global_batch, compilation_cache)

    def run(
        self, last_step: int, hosts: Sequence[int], host_sum: HostSum, thread_count: int, stopping: Callable[[], bool]
    ) -> Iterator[StepResult]:
        """Steps up to `last_step`, each yielded when `state` is after it. Ends early when `stopping()`."""
        per_host = self._shards_per_host
        shards = [host * per_host + shard for host in sorted(hosts) for shard in range(per_host)]
        steps = range(self.train_state.step + 1, last_step + 1)
        batches = self._pipeline.prefetch(steps, shards)
        with _mapper(min(thread_count, len(shards))) as map_ordered, contextlib.closing(batches):
            while self.train_state.step < last_step and not stopping():
                step, prepared = next(batches)
                vectors = map_ordered(lambda shard, batch, s=step: self._vector(shard, batch, s), shards, prepared)
                for host, own in _by_host(zip(shards, vectors, strict=True), per_host):
                    add_up(own, host_sum.vector(host))
                yield self._finish(host_sum.all_reduce())

    def _finish(self, total: Vector) -> StepResult:
        names = self.programs.metrics
        means = (total[-len(names) :] / np.float32(self._shard_count)).tolist()
        self.train_state = self.programs.update(self.train_state, total)
        return StepResult(self.train_state.step, dict(zip(names, means, strict=True)))

    def _vector(self, shard: int, batch: Any, step: int) -> Vector:
        return self.programs.shard_vector(self.train_state, batch, self._words, step, shard)


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


def _by_host(vectors: Iterator[tuple[int, Vector]], shards_per_host: int) -> Iterator[tuple[int, Iterator[Vector]]]:
    """(host, vectors of its shards), as they come."""
    for host, own in itertools.groupby(vectors, lambda pair: pair[0] // shards_per_host):
        yield host, (vector for _, vector in own)


@contextlib.contextmanager
def _mapper(thread_count: int) -> Iterator[Callable[..., Iterator[Vector]]]:
    """`map` that keeps the order of its results; with several threads programs run side by side."""
    if thread_count <= 1:
        yield map
        return
    with ThreadPoolExecutor(thread_count, thread_name_prefix="core") as pool:
        yield pool.map
