"""The user documents' models on their own file formats, through the training runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.base.rng import Streams
from podyard.engine.executor import run_replica
from podyard.engine.recipes.model import Model
from podyard.engine.recipes.programs import model_of
from podyard.engine.training.parts import parts_of
from podyard.engine.training.programs import layouts_of, seed_words
from podyard.engine.training.store import FileStore
from tests.unit.engine.pictures import Sets, as_cifar, as_idx, as_npz, as_tfrecord, pictures
from tests.unit.engine.replica_gang import Alone, Recorder, spec_of


def trained(tmp_path: Path, **changes: Any) -> Recorder:
    recorder = Recorder()
    run_replica(
        spec_of(**changes),
        Alone(),
        recorder,
        FileStore(tmp_path / "objects"),
        None,
        "127.0.0.1:0",
        OsClock(),
    )
    return recorder


def trained_on_mnist(folder: Path, cache: str) -> Recorder:
    how = {"steps": 30, "global_batch": 64, "compilation_cache": cache}
    return trained(folder, recipe="mlp", arguments={"data": str(folder)}, **how)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def digest_of_mnist(tmp_path_factory: pytest.TempPathFactory, cache: str) -> str:
    expected = tmp_path_factory.mktemp("expected")
    as_npz(expected, pictures(28, 1, 320, 80))
    return trained_on_mnist(expected, cache).params_sha256


@pytest.mark.slow
@pytest.mark.parametrize("write", [as_tfrecord, as_idx, as_npz], ids=["tfrecord", "idx", "npz"])
def test_mnist_files_of_every_format_train_the_same(
    tmp_path: Path, write: Any, cache: str, digest_of_mnist: str
) -> None:
    write(tmp_path, pictures(28, 1, 320, 80))
    recorder = trained_on_mnist(tmp_path, cache)
    assert recorder.result is not None and recorder.result["testAccuracy"] >= 0.9
    assert recorder.params_sha256 == digest_of_mnist  # whatever the format is: the same bits


@pytest.mark.slow
def test_a_mnist_set_is_learned_as_well_as_in_plain_jax(tmp_path: Path) -> None:
    sets = pictures(28, 1, 640, 200)
    as_idx(tmp_path, sets)
    arguments = {"data": str(tmp_path), "learningRate": 0.05}
    recorder = trained(tmp_path, recipe="mnist-cnn", arguments=arguments, steps=60, global_batch=64)
    model = model_of("mnist-cnn", arguments)
    plain = accuracy_in_plain_jax(model, sets, 60, 64)
    assert recorder.result is not None
    assert plain >= 0.9
    assert recorder.result["testAccuracy"] >= plain - 0.03


def accuracy_in_plain_jax(model: Model, sets: Sets, steps: int, batch: int) -> float:
    """Of the same model and optimizer, without the matrix unit's numerics, in one program."""
    step, state = jax.jit(model.step), model.first_state(Streams(7))
    data = {
        part: (images / np.float32(255) - np.float32(0.5), labels)
        for part, (images, labels) in sets.items()
    }
    images, labels = data["train"]
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chosen = rng.choice(len(labels), batch, replace=False)
        state, _ = step(
            state,
            {"image": images[chosen], "label": labels[chosen].astype(np.int32)},
            seed_words(7),
        )
    test_images, test_labels = data["test"]
    judged = model.evaluate(
        state["params"], {}, {"image": test_images, "label": test_labels.astype(np.int32)}
    )
    return float(judged["accuracy"])


@pytest.mark.slow
def test_cifar_trains_augmented_and_resumes_in_the_same_bits(tmp_path: Path) -> None:
    as_cifar(tmp_path, pictures(32, 3, 64, 32))
    base = {
        "recipe": "cifar10-cnn",
        "arguments": {"data": str(tmp_path)},
        "global_batch": 16,
        "steps": 6,
    }
    whole = trained(tmp_path, **base, checkpoint_every_steps=3)
    store, again = FileStore(tmp_path / "objects"), Recorder()
    run_replica(spec_of(**base), Alone(), again, store, 3, "127.0.0.1:0", OsClock())
    assert [step for step, *_ in again.steps] == [4, 5, 6]
    assert again.params_sha256 == whole.params_sha256


@pytest.mark.slow
def test_fashion_trains_on_batches_that_are_cut_into_parts(tmp_path: Path) -> None:
    as_idx(tmp_path, pictures(28, 1, 800, 100))
    arguments = {"data": str(tmp_path)}
    model = model_of("fashion-cnn", arguments)
    layouts = layouts_of(model, 0)

    def parts(count: int) -> int:
        shard = {
            "image": np.zeros((count, 28, 28, 1), np.float32),
            "label": np.zeros(count, np.int32),
        }
        return parts_of(model, layouts, shard)

    # 26 x 26 x 64 numbers of 4 bytes each, at most 6 MiB at once: 36 examples.
    assert [parts(count) for count in (1, 25, 36, 37, 74, 100, 125)] == [1, 1, 1, 37, 37, 4, 5]
    recorder = trained(
        tmp_path, recipe="fashion-cnn", arguments=arguments, steps=6, global_batch=800
    )
    losses = [loss for _, loss, *_ in recorder.steps]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.slow
def test_batch_statistics_are_those_of_a_whole_core() -> None:
    model = model_of("resnet-50", {"imageSize": 64})
    shard = {"image": np.zeros((64, 64, 64, 3), np.float32), "label": np.zeros(64, np.int32)}
    assert parts_of(model, layouts_of(model, 0), shard) == 1


@pytest.mark.parametrize(
    ("spoil", "message", "code"),
    [
        (
            lambda folder: (folder / "set.npz").unlink(),
            "has no data that is known",
            Code.FAILED_PRECONDITION,
        ),
        (
            lambda folder: as_npz(folder, pictures(27, 1, 8, 8)),
            "images are \\(27, 27, 1\\)",
            Code.INVALID_ARGUMENT,
        ),
        (lambda folder: (folder / "set.npz").write_bytes(b"PK nothing"), "set.npz", Code.DATA_LOSS),
    ],
    ids=["nothing there", "another size", "damaged"],
)
def test_data_that_cannot_be_used_is_an_error_that_names_it(
    tmp_path: Path, spoil: Any, message: str, code: Code
) -> None:
    as_npz(tmp_path, pictures(28, 1, 8, 8))
    model_of("mnist-cnn", {"data": str(tmp_path)}).input()
    spoil(tmp_path)
    with pytest.raises(PodyardError, match=message) as caught:
        model_of("mnist-cnn", {"data": str(tmp_path)}).input()
    assert caught.value.code is code
