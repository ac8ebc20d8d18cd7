"""resnet-50 and transformer-lm as jobs train them, at sizes that compile in seconds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.base.rng import Streams
from podyard.domain.recipes import check_arguments
from podyard.engine.executor import run_replica
from podyard.engine.recipes.programs import model_of
from podyard.engine.recipes.resnet import ResNet
from podyard.engine.recipes.tensors import init_tensor
from podyard.engine.recipes.texts import tokens_of
from podyard.engine.training.input.chance import Chance
from podyard.engine.training.recipe import Input
from podyard.engine.training.store import FileStore
from tests.unit.engine.pictures import as_cifar, as_idx, as_npz, pictures
from tests.unit.engine.replica_gang import Alone, Recorder, spec_of

SMALL_LM = {"layers": 2, "width": 32, "heads": 2, "sequence": 32, "vocabulary": 256}


def _train(folder: Path, resume: int | None = None, stop_after: int | None = None) -> Recorder:
    recorder = Recorder(stop_after)
    arguments = check_arguments("transformer-lm", SMALL_LM | {"learningRate": 0.003})
    spec = spec_of(
        recipe="transformer-lm",
        arguments=arguments,
        steps=50,
        global_batch=16,
        checkpoint_every_steps=10,
        data_folder=str(folder),
    )
    run_replica(spec, Alone(), recorder, FileStore(folder), resume, "127.0.0.1:0", OsClock())
    return recorder


@pytest.mark.slow
def test_the_loss_of_a_language_model_falls_and_a_resumed_run_has_the_same_bits(
    tmp_path: Path,
) -> None:
    whole = _train(tmp_path / "whole")
    losses = [loss for _, loss, *_ in whole.steps]
    assert losses[0] == pytest.approx(math.log(256), abs=0.3)
    assert np.mean(losses[-5:]) < 0.75 * losses[0]
    assert whole.result is not None
    assert float(whole.result["testLoss"]) < 0.75 * losses[0]
    assert _train(tmp_path / "cut", stop_after=23).result is None
    resumed = _train(tmp_path / "cut", resume=20)
    assert resumed.params_sha256 == whole.params_sha256
    assert resumed.result == whole.result


def _batches(data: Input) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two transformed examples of both parts."""
    parts = []
    for examples, transforms in (
        (data.train, data.train_transforms),
        (data.test, data.test_transforms),
    ):
        batch = examples.slice(0, 2)
        for transform in transforms:
            batch = transform(batch, Chance(0, "", 0, 0, 2, 2))
        parts.append(batch)
    return parts[0], parts[1]


def test_texts_are_windows_of_bytes_and_those_to_judge_by_do_not_overlap(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abcdefghij" * 50)
    (tmp_path / "b.txt").write_bytes(b"0123456789" * 50)
    data = tokens_of(str(tmp_path), 8, 256, 3)()
    train, test = _batches(data)
    assert bytes(train["tokens"][0].tolist()) == b"abcdefghi"
    assert bytes(train["tokens"][1].tolist()) == b"bcdefghij"  # a short text: windows overlap
    assert test["tokens"].dtype == np.int32 and data.judged_at_once == 3
    assert test["tokens"][0][-1] == test["tokens"][1][0]  # they share an edge alone


def test_tokens_of_16_bits_are_read_as_they_are(tmp_path: Path) -> None:
    np.arange(40_000, 40_100, dtype="<u2").tofile(tmp_path / "train.bin")
    np.arange(50_000, 50_050, dtype="<u2").tofile(tmp_path / "val.bin")
    train, test = _batches(tokens_of(str(tmp_path), 4, 50_257, 1)())
    assert train["tokens"][1].tolist() == [40_001, 40_002, 40_003, 40_004, 40_005]
    assert test["tokens"][1].tolist() == [50_004, 50_005, 50_006, 50_007, 50_008]


def _refusal(folder: Path, sequence: int = 8, vocabulary: int = 256) -> str:
    with pytest.raises(PodyardError) as caught:
        tokens_of(str(folder), sequence, vocabulary, 1)()
    assert caught.value.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION)
    return caught.value.message


def test_texts_that_cannot_be_read_name_what_is_wrong(tmp_path: Path) -> None:
    assert "is not a folder with data" in _refusal(tmp_path / "missing")
    assert "known are *.txt, and train.bin with val.bin" in _refusal(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"abcdefghij" * 50)
    assert "450 tokens; a window of sequence 1000 needs 1001" in _refusal(tmp_path, 1000)
    assert "a token is 106, and the vocabulary has 100" in _refusal(tmp_path, vocabulary=100)


def _images(folder: Path, classes: int = 10) -> tuple[dict[str, Any], dict[str, Any]]:
    arguments = {"imageSize": 64, "classes": classes, "data": str(folder)}
    return _batches(model_of("resnet-50", arguments).input())


def test_images_of_every_format_are_scaled_to_the_size_of_the_model(tmp_path: Path) -> None:
    for name, write, sets in (
        ("cifar", as_cifar, pictures(32, 3, 20, 8)),
        ("mnist", as_idx, pictures(28, 1, 20, 8)),
        ("npz", as_npz, pictures(28, 1, 20, 8)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, sets)
        train, test = _images(folder)
        for batch in (train, test):
            assert batch["image"].shape == (2, 64, 64, 3) and batch["image"].dtype == np.float32
            assert -0.5 <= batch["image"].min() < batch["image"].max() <= 0.5
    # the nearest pixel: each of the 32 stands twice
    image = np.asarray(_images(tmp_path / "cifar")[0]["image"][0])
    assert np.array_equal(image[::2, ::2], image[1::2, 1::2])
    with pytest.raises(PodyardError, match=r"a label is \d, and the model has 2 classes"):
        _images(tmp_path / "npz", classes=2)


def test_v1_has_the_weights_of_keras_applications() -> None:
    model = model_of("resnet-50", {"variant": "v1"})
    # keras.applications.ResNet50().summary()
    assert sum(math.prod(tensor.shape) for tensor in model.params.values()) == 25_583_592
    assert sum(math.prod(tensor.shape) for tensor in model.statistics.values()) == 53_120
    assert model.params["conv4_block6_2_conv/kernel"].shape == (3, 3, 256, 256)
    assert model.params["conv5_block1_0_bn/gamma"].shape == (2048,)
    assert "conv1_conv/bias" not in model_of("resnet-50", {}).params


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["v1", "v1.5"])
def test_statistics_of_a_batch_normalize_it_when_it_is_judged_as_when_it_is_trained(
    variant: str,
) -> None:
    network = ResNet((1, 1), 4, 10, jnp.dtype("float32"), 1, variant)
    streams = Streams(0)
    params = {
        # Not zero, so that all branches count.
        name: np.ones(tensor.shape, np.float32)
        if name.endswith("gamma")
        else init_tensor(streams, name, tensor)
        for name, tensor in network.params().items()
    }
    start = {
        name: np.zeros(tensor.shape, np.float32) for name, tensor in network.statistics().items()
    }
    pixels = np.frombuffer(Streams(1).stream("image").randbytes(8 * 64 * 64 * 3), np.uint8)
    batch = {
        "image": pixels.reshape(8, 64, 64, 3).astype(np.float32) / 255 - 0.5,
        "label": np.arange(8, dtype=np.int32),
    }
    params["predictions/kernel"] *= 100
    loss, (metrics, moved) = jax.jit(network.loss)(params, start, batch, None)
    statistics = {name: value / 0.1 for name, value in moved.items()}  # a step takes a tenth
    judged = jax.jit(network.evaluate)(params, statistics, batch)
    assert float(judged["accuracy"]) == float(metrics["accuracy"])
    # Training spreads a tenth of the target over all classes.
    spread = -jnp.mean(jax.nn.log_softmax(network.logits(params, statistics, batch["image"])))
    assert abs(float(judged["loss"]) - float(loss)) > 0.01
    assert float(loss) == pytest.approx(0.9 * float(judged["loss"]) + 0.1 * float(spread), rel=1e-4)
