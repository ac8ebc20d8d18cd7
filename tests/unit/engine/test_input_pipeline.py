from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError, invalid
from podyard.engine.training.input.augment import Geometry, Normalise, Transform
from podyard.engine.training.input.chance import Chance
from podyard.engine.training.input.formats import read_idx_set
from podyard.engine.training.input.pipeline import PREFETCH_STEPS_MAX, EvaluationInput, Pipeline
from podyard.engine.training.input.source import Arrays, Examples
from podyard.engine.training.order import DataOrder
from tests.unit.engine.input_writers import write_idx

COUNT, BATCH = 22, 8
EXAMPLES = Examples(
    {
        "image": np.random.default_rng(0).integers(0, 256, (COUNT, 6, 5, 3), np.uint8),
        "label": np.arange(COUNT, dtype=np.int32),
    }
)
TRANSFORMS: tuple[Transform, ...] = (Geometry(20, 0.1, 0.1, True, 2), Normalise(1 / 255))


def pipeline(
    shards: int = 2, transforms: tuple[Transform, ...] = TRANSFORMS, depth: int = 2, seed: int = 7
) -> Pipeline:
    return Pipeline(EXAMPLES, DataOrder(seed, COUNT, BATCH), BATCH, shards, transforms, seed, depth)


def bits(arrays: Arrays) -> dict[str, tuple[object, ...]]:
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def refusal(act: Callable[[], object]) -> PodyardError:
    with pytest.raises(PodyardError) as caught:
        act()
    return caught.value


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@dataclasses.dataclass
class Counting:
    """Says which steps it was asked for, after some time; fails at one of them."""

    fails_at: int = 0
    draws: bool = True
    seconds: float = 0.0
    seen: list[int] = dataclasses.field(default_factory=list)

    def __call__(self, batch: Arrays, chance: Chance) -> Arrays:
        time.sleep(self.seconds)
        self.seen.append(chance.step)
        if chance.step == self.fails_at:
            raise invalid("out of step")
        return batch


def test_a_shard_has_the_examples_of_the_data_order() -> None:
    plain = pipeline(transforms=())
    order = DataOrder(7, COUNT, BATCH)
    for step in (1, 2, 3, 9):
        labels = np.concatenate([plain.shard(step, shard)["label"] for shard in range(2)])
        assert labels.tolist() == order.indices(step).tolist()
    image = plain.shard(1, 1)["image"]
    assert np.array_equal(image, EXAMPLES.take(order.indices(1)[4:])["image"])


def test_what_is_in_a_shard_does_not_depend_on_what_was_asked_before() -> None:
    first, second = pipeline(), pipeline()
    forward = {
        (step, shard): bits(first.shard(step, shard)) for step in range(1, 7) for shard in range(2)
    }
    for step, shard in reversed(list(forward)):
        assert bits(second.shard(step, shard)) == forward[step, shard]
    assert len({value["image"] for value in forward.values()}) == len(forward)
    assert bits(pipeline(seed=8).shard(1, 0)) != forward[1, 0]


@pytest.mark.parametrize("depth", [1, 2, 7, PREFETCH_STEPS_MAX])
def test_reading_ahead_changes_no_bit(depth: int) -> None:
    direct = [
        (step, [bits(part) for part in parts])
        for step, parts in pipeline(4, depth=0).prefetch(range(3, 9), [2, 0])
    ]
    ahead = pipeline(4, depth=depth).prefetch(range(3, 9), [2, 0])
    assert [(step, [bits(part) for part in parts]) for step, parts in ahead] == direct
    assert [step for step, _ in direct] == [3, 4, 5, 6, 7, 8]
    assert direct[0][1] == [bits(pipeline(4).shard(3, shard)) for shard in (2, 0)]


def test_no_more_steps_are_read_ahead_than_asked() -> None:
    counting = Counting()
    taken = pipeline(transforms=(counting,), depth=3).prefetch(itertools.count(1), [0])
    for step in range(1, 6):
        assert next(taken)[0] == step
        deadline = time.monotonic() + 10
        while max(counting.seen) < step + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        assert max(counting.seen) == step + 3
    taken.close()  # type: ignore[attr-defined]
    assert prefetch_threads() == []
    assert counting.seen == list(range(1, 9))


def test_closing_leaves_out_what_has_not_begun() -> None:
    slow = Counting(seconds=0.01)
    taken = pipeline(transforms=(slow,), depth=50).prefetch(itertools.count(1), [0])
    assert next(taken)[0] == 1
    taken.close()  # type: ignore[attr-defined]
    assert prefetch_threads() == [] and len(slow.seen) < 10


@pytest.mark.parametrize("depth", [0, 3])
def test_an_error_comes_when_its_step_does_and_ends_the_thread(depth: int) -> None:
    taken = pipeline(transforms=(Counting(fails_at=3),), depth=depth).prefetch(range(1, 9), [0, 1])
    assert [next(taken)[0], next(taken)[0]] == [1, 2]
    assert refusal(lambda: next(taken)).message == "out of step"
    assert prefetch_threads() == []
    assert list(taken) == []


def test_an_error_of_the_consumer_ends_the_thread() -> None:
    def consume() -> None:
        for step, _ in pipeline().prefetch(range(1, 100), [0]):
            assert prefetch_threads()
            if step == 4:
                raise RuntimeError("consumer")

    with pytest.raises(RuntimeError, match="consumer"):
        consume()
    assert prefetch_threads() == []


def test_epochs_are_whole_batches() -> None:
    own = pipeline()
    assert own.steps_per_epoch == 2
    assert list(own.steps(3)) == [1, 2, 3, 4, 5, 6]
    assert list(own.steps(3, after=4)) == [5, 6] and list(own.steps(3, after=6)) == []
    for epoch in range(3):
        seen = [
            label
            for step in (1, 2)
            for s in (0, 1)
            for label in own.shard(2 * epoch + step, s)["label"].tolist()
        ]
        assert len(set(seen)) == 16


def test_a_pipeline_that_cannot_be_is_refused() -> None:
    order = DataOrder(0, COUNT, BATCH)
    for arguments in ((BATCH, 3), (BATCH, 0), (0, 1), (4, 2)):
        assert (
            refusal(lambda a=arguments: Pipeline(EXAMPLES, order, *a)).code is Code.INVALID_ARGUMENT
        )
    assert "read ahead" in refusal(lambda: pipeline(depth=PREFETCH_STEPS_MAX + 1)).message
    assert "read ahead" in refusal(lambda: pipeline(depth=-1)).message
    for step, shard in ((0, 0), (1, 2), (1, -1)):
        assert (
            "there is no shard" in refusal(lambda s=step, i=shard: pipeline().shard(s, i)).message
        )
    more = Pipeline(EXAMPLES, DataOrder(0, 1000, BATCH), BATCH, 1)
    assert f"of {COUNT} examples" in refusal(lambda: more.shard(1, 0)).message


@pytest.mark.parametrize(("drop", "sizes"), [(False, [8, 8, 6]), (True, [8, 8])])
def test_evaluation_has_all_examples_once_in_order(drop: bool, sizes: list[int]) -> None:
    evaluation = EvaluationInput(EXAMPLES, 8, (Normalise(2, 1),), drop)
    batches = list(evaluation)
    assert [len(batch["label"]) for batch in batches] == sizes
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == list(range(sum(sizes)))
    image = EXAMPLES.take(np.arange(8))["image"]
    assert np.array_equal(batches[0]["image"], image.astype(np.float32) * 2 + 1)
    assert [bits(batch) for batch in evaluation] == [bits(batch) for batch in batches]
    shares = [[bits(batch) for batch in evaluation.share(index, 2)] for index in (0, 1)]
    assert shares == [[bits(batch) for batch in batches[index::2]] for index in (0, 1)]
    assert list(evaluation.share(7, 8)) == []


def test_evaluation_refuses_chance_and_sizes_that_leave_nothing() -> None:
    assert "Geometry" in refusal(lambda: EvaluationInput(EXAMPLES, 8, TRANSFORMS)).message
    assert refusal(lambda: EvaluationInput(EXAMPLES, 0)).code is Code.INVALID_ARGUMENT
    assert (
        refusal(lambda: EvaluationInput(EXAMPLES, 23, drop_remainder=True)).code
        is Code.INVALID_ARGUMENT
    )
    assert [len(batch["label"]) for batch in EvaluationInput(EXAMPLES, 23)] == [COUNT]


def test_examples_have_one_count_and_are_numbers() -> None:
    image = np.zeros((3, 2), np.uint8)
    assert EXAMPLES.count == COUNT
    assert EXAMPLES.features["image"] == (np.uint8, (6, 5, 3))
    wrong = [
        ({"image": image, "label": np.zeros(2)}, "'image': 3, 'label': 2"),
        ({"image": image, "label": np.float32(1)}, "label"),
        ({"label": np.array(["a", "b"])}, "label"),
        ({"image": image[:0]}, "no examples"),
        ({}, "no features"),
    ]
    for arrays, said in wrong:
        error = refusal(lambda arrays=arrays: Examples(arrays, "some.npz"))
        assert (
            error.code is Code.INVALID_ARGUMENT
            and error.message.startswith("some.npz: ")
            and said in error.message
        )
    for index in (-1, COUNT):
        assert (
            "of 22 examples"
            in refusal(lambda index=index: EXAMPLES.take(np.array([index]))).message
        )


def test_examples_of_mapped_files_are_taken_as_copies(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    write_idx(tmp_path / "images", images)
    write_idx(tmp_path / "labels", np.arange(4, dtype=np.uint8))
    examples = Examples(read_idx_set({"image": tmp_path / "images", "label": tmp_path / "labels"}))
    taken = examples.take(np.array([3, 0]))
    assert (
        type(taken["image"]) is np.ndarray
        and taken["image"].flags.owndata
        and taken["image"].flags.writeable
    )
    assert np.array_equal(taken["image"], images[[3, 0]]) and taken["label"].tolist() == [3, 0]


def test_chance_is_of_seed_name_step_and_position() -> None:
    def numbers(start: int, stop: int, batch: int, **changes: object) -> np.ndarray:
        own: dict[str, object] = {"seed": 1, "name": "0", "step": 3, **changes}
        return Chance(start=start, stop=stop, global_batch=batch, **own).uniform(5)  # type: ignore[arg-type]

    whole = numbers(0, 12, 12)
    assert (
        whole.shape == (12, 5)
        and whole.min() >= 0
        and whole.max() < 1
        and len(np.unique(whole)) == 60
    )
    assert np.array_equal(numbers(4, 9, 12), whole[4:9])
    assert np.array_equal(numbers(4, 9, 64), whole[4:9])
    for changes in ({"seed": 2}, {"name": "1"}, {"step": 4}):
        assert not np.isin(numbers(0, 12, 12, **changes), whole).any()
