"""Batches: for training by (step, shard), read ahead in a thread; for evaluation all examples once,
in order."""

from __future__ import annotations

import collections
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from podyard.base.errors import invalid
from podyard.engine.training.input.augment import Transform
from podyard.engine.training.input.chance import Chance
from podyard.engine.training.input.source import Arrays, Examples
from podyard.engine.training.order import DataOrder

# Each step ahead holds its batch in memory; more than a few help only when single steps take much
# longer than others.
PREFETCH_STEPS_MAX = 64


class Pipeline:
    """The input of training. What is in a shard is a function of (seed, step, shard) alone,
    whatever was asked for before, by which process or thread; so a resumed run goes on with the
    same batches.

    An epoch is as many steps as there are whole batches: the examples that are left over are left
    out (`order` leaves out others in every epoch), because programs are compiled for one size.
    """

    def __init__(
        self,
        examples: Examples,
        order: DataOrder,
        global_batch: int,
        shard_count: int,
        transforms: Sequence[Transform] = (),
        seed: int = 0,
        prefetch_depth: int = 2,
    ) -> None:
        """`order` has to be of as many examples and of the same global batch. Raises PodyardError
        INVALID_ARGUMENT when it is of another batch, when the shards are not of one size, or for a
        depth out of 0..`PREFETCH_STEPS_MAX`."""
        if shard_count < 1 or global_batch < 1 or global_batch % shard_count:
            raise invalid(
                f"a global batch of {global_batch} cannot be cut into {shard_count} equal shards"
            )
        if not 0 <= prefetch_depth <= PREFETCH_STEPS_MAX:
            raise invalid(
                f"0 to {PREFETCH_STEPS_MAX} steps can be read ahead, not {prefetch_depth}",
                "prefetchDepth",
            )
        if len(order.indices(1)) != global_batch:
            raise invalid(
                f"the order is of batches of {len(order.indices(1))}, not of {global_batch}"
            )
        self._examples = examples
        self._order = order
        self._global_batch = global_batch
        self._shard_count = shard_count
        self._transforms = tuple(transforms)
        self._seed = seed
        self._prefetch_depth = prefetch_depth

    @property
    def steps_per_epoch(self) -> int:
        return self._examples.count // self._global_batch

    def steps(self, epochs: int, after: int = 0) -> range:
        """The 1-based steps of the first `epochs` epochs that come after step `after` (of a
        checkpoint)."""
        return range(after + 1, epochs * self.steps_per_epoch + 1)

    def shard(self, step: int, shard: int) -> Arrays:
        """Features [global_batch / shard_count, ...] of 0-based `shard` of 1-based `step`. Raises
        PodyardError INVALID_ARGUMENT for a step or a shard that there is not, and what the
        transforms raise."""
        if step < 1 or not 0 <= shard < self._shard_count:
            raise invalid(
                f"there is no shard {shard} of step {step}: steps begin at 1, shards are "
                f"{self._shard_count}"
            )
        size = self._global_batch // self._shard_count
        start, stop = shard * size, (shard + 1) * size
        batch = self._examples.take(self._order.indices(step)[start:stop])
        for index, transform in enumerate(self._transforms):
            batch = transform(
                batch, Chance(self._seed, str(index), step, start, stop, self._global_batch)
            )
        return batch

    def prefetch(
        self, steps: Iterable[int], shards: Sequence[int]
    ) -> Generator[tuple[int, list[Arrays]]]:
        """(step, its `shards` in order) for each step, the same as `shard` gives, up to
        `prefetch_depth` steps ahead in one thread. An error in preparing a step is raised when its
        turn comes; the thread ends with the iterator, also when that is closed early."""
        if self._prefetch_depth == 0:
            for step in steps:
                yield step, self._step(step, shards)
            return
        waiting: collections.deque[tuple[int, Future[list[Arrays]]]] = collections.deque()
        pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        try:
            for step in steps:
                waiting.append((step, pool.submit(self._step, step, shards)))
                if len(waiting) > self._prefetch_depth:
                    yield _result(waiting)
            while waiting:
                yield _result(waiting)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _step(self, step: int, shards: Sequence[int]) -> list[Arrays]:
        return [self.shard(step, shard) for shard in shards]


def _result(
    waiting: collections.deque[tuple[int, Future[list[Arrays]]]],
) -> tuple[int, list[Arrays]]:
    step, prepared = waiting.popleft()
    return step, prepared.result()


class EvaluationInput:
    """All examples once, in their order, without chance; may be iterated over any number of
    times."""

    def __init__(
        self,
        examples: Examples,
        batch: int,
        transforms: Sequence[Transform] = (),
        drop_remainder: bool = False,
    ) -> None:
        """The last batch is smaller, or left out with `drop_remainder`. Raises PodyardError
        INVALID_ARGUMENT for a
        batch below 1, one that leaves out everything, and a transform that draws."""
        if batch < 1 or (drop_remainder and batch > examples.count):
            raise invalid(f"batches of {batch} cannot be made of {examples.count} examples")
        drawing = [type(transform).__name__ for transform in transforms if transform.draws]
        if drawing:
            raise invalid(f"{drawing[0]} changes examples at random; it has no place in evaluation")
        self._examples = examples
        self._batch = batch
        self._transforms = tuple(transforms)
        self._stop = examples.count - examples.count % batch if drop_remainder else examples.count

    def __iter__(self) -> Iterator[Arrays]:
        return self.share(0, 1)

    def share(self, index: int, count: int) -> Iterator[Arrays]:
        """The batches of the one with 0-based `index` of `count` who take turns."""
        for start in range(index * self._batch, self._stop, count * self._batch):
            stop = min(start + self._batch, self._stop)
            batch = self._examples.slice(start, stop)
            for transform in self._transforms:
                batch = transform(batch, Chance(0, "evaluation", 0, start, stop, stop))
            yield batch
