"""Small generated sets of labelled images, in the file formats of the real ones."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.unit.engine.input_writers import encode_example, write_idx, write_tfrecord

Sets = dict[str, tuple[NDArray[Any], NDArray[Any]]]


def pictures(side: int, channels: int, train: int, test: int, noise: float = 40.0) -> Sets:
    """Ten bars, one for each label, at an angle of their own, in noise: easy, but not for a model
    that does nothing."""
    rng = np.random.default_rng(5)
    rows, columns = np.mgrid[:side, :side] - (side - 1) / 2
    angles = np.arange(10) * np.pi / 10
    bars = np.stack([np.abs(rows * np.cos(a) + columns * np.sin(a)) < side / 9 for a in angles])

    def part(count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        labels = np.arange(count) % 10
        images = 160.0 * bars[labels][..., None] + rng.normal(
            40, noise, (count, side, side, channels)
        )
        return np.clip(images, 0, 255).astype(np.uint8), labels.astype(np.uint8)

    return {"train": part(train), "test": part(test)}


def as_tfrecord(folder: Path, sets: Sets) -> None:
    for part, (images, labels) in sets.items():
        records = (
            encode_example({"image_raw": image.tobytes(), "label": np.array([label], np.int64)})
            for image, label in zip(images, labels, strict=True)
        )
        write_tfrecord(folder / f"mnist-{part}.tfrecord", records)


def as_idx(folder: Path, sets: Sets) -> None:
    for part, name in (("train", "train"), ("test", "t10k")):
        images, labels = sets[part]
        write_idx(folder / f"{name}-images-idx3-ubyte", images[..., 0])
        write_idx(folder / f"{name}-labels-idx1-ubyte", labels)
        path = folder / f"{name}-images-idx3-ubyte"
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def as_npz(folder: Path, sets: Sets) -> None:
    (x_train, y_train), (x_test, y_test) = sets["train"], sets["test"]
    np.savez(folder / "set.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def as_cifar(folder: Path, sets: Sets) -> None:
    for part, name in (("train", "data_batch_1.bin"), ("test", "test_batch.bin")):
        images, labels = sets[part]
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        (folder / name).write_bytes(np.column_stack([labels, planes]).tobytes())
