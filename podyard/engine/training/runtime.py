"""Runs data-parallel steps for the hosts that one process holds.

The order of every sum is fixed: inside a host by core (and by part of the core's batch: those that
its job asks for, cut further by `parts`), then over the hosts in ring order per chunk, then one
division by the number of all parts. None of it depends on which process holds which host, or on how
many threads it has.

Behind what is summed there is one number more, the vote: the process that holds host 0 says there
that the gang is to leave, and so all leave after the same step.
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
from podyard.engine.training.optimizers import Scaled
from podyard.engine.training.order import DataOrder
from podyard.engine.training.parts import parts_of
from podyard.engine.training.programs import Layouts, TrainPrograms, TrainState, seed_words
from podyard.engine.training.recipe import Input, Trainable

# Steps whose batches are ready before they are asked for.
PREFETCH_STEPS = 2
_VOTES = 1


@dataclasses.dataclass(frozen=True, slots=True)
class SliceShape:
    """Hosts of equal size; core c of the slice is core c % cores_per_host of host c //
    cores_per_host."""

    host_count: int
    core_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepResult:
    """`metrics` are means over the global batch, in training mode (dropout on), "loss" first."""

    step: int
    metrics: Mapping[str, float]


class Trainer:
    """The steps of one run, from a state. `accumulation_steps` are the parts of a core's batch that
    are computed one after the other. `learning_rate_scale` is for batches of another size than the
    model's rate is for."""

    def __init__(  # noqa: PLR0913
        self,
        model: Trainable,
        layouts: Layouts,
        data: Input,
        slice_shape: SliceShape,
        global_batch: int,
        seed: int,
        state: TrainState,
        compilation_cache: str | None = None,
        *,
        accumulation_steps: int = 1,
        learning_rate_scale: float = 1.0,
    ) -> None:
        self.train_state = state
        self.is_leaving = False
        self._words = seed_words(seed)
        self._order = DataOrder(seed, data.train.count, global_batch, state.step, state.position)

        def pipeline(shard_count: int) -> Pipeline:
            return Pipeline(
                data.train,
                self._order,
                global_batch,
                shard_count,
                data.train_transforms,
                seed,
                PREFETCH_STEPS,
            )

        self._shard_count = slice_shape.core_count * accumulation_steps
        together = pipeline(self._shard_count).shard(state.step + 1, 0)
        self._shard_count *= parts_of(model, layouts, together)
        self._shards_per_host = self._shard_count // slice_shape.host_count
        self._pipeline = pipeline(self._shard_count)
        shard = self._pipeline.shard(state.step + 1, 0)
        optimizer = model.optimizer(global_batch)
        if learning_rate_scale != 1.0:
            optimizer = Scaled(optimizer, learning_rate_scale)
        self.programs = TrainPrograms(
            model, layouts, optimizer, shard, self._shard_count, _VOTES, compilation_cache
        )

    @property
    def length(self) -> int:
        """Of the vectors that are summed."""
        return self.programs.length + _VOTES

    @property
    def epoch(self) -> int:
        """1-based, of the last step that was done."""
        return self.train_state.position.epoch + 1

    def run(
        self,
        last_step: int,
        hosts: Sequence[int],
        host_sum: HostSum,
        thread_count: int,
        stopping: Callable[[], bool],
        steps_per_loop: int = 1,
        leaving: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[StepResult]]:
        """Steps up to `last_step`, `steps_per_loop` at a time, yielded when `train_state` is after
        them. Ends early
        when `stopping()`, which is this process' affair, and, in all processes, after the loop in
        which host 0's found itself `leaving()`."""
        per_host = self._shards_per_host
        shards = [host * per_host + shard for host in sorted(hosts) for shard in range(per_host)]
        steps = range(self.train_state.step + 1, last_step + 1)
        batches = self._pipeline.prefetch(steps, shards)
        with _mapper(min(thread_count, len(shards))) as map_ordered, contextlib.closing(batches):
            while self.train_state.step < last_step and not self.is_leaving and not stopping():
                done = []
                for step, prepared in itertools.islice(batches, steps_per_loop):
                    vectors = map_ordered(
                        lambda shard, batch, s=step: self._vector(shard, batch, s), shards, prepared
                    )
                    for host, own in _by_host(zip(shards, vectors, strict=True), per_host):
                        total = host_sum.vector(host)[: self.length]
                        add_up(own, total[:-_VOTES])
                        total[-_VOTES:] = host == 0 and leaving()
                    done.append(self._finish(host_sum.all_reduce()[: self.length]))
                yield done

    def _finish(self, total: Vector) -> StepResult:
        names = self.programs.metrics
        means = (total[-len(names) - _VOTES : -_VOTES] / np.float32(self._shard_count)).tolist()
        self.is_leaving = self.is_leaving or bool(total[-_VOTES:].any())
        step = self.train_state.step + 1
        self.train_state = self.programs.update(self.train_state, total, self._order.position(step))
        return StepResult(step, dict(zip(names, means, strict=True)))

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


def _by_host(
    vectors: Iterator[tuple[int, Vector]], shards_per_host: int
) -> Iterator[tuple[int, Iterator[Vector]]]:
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
