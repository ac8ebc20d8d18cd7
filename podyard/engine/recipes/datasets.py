"""Labelled images in a folder, in the formats in which the reference models' data is given out.

What is there decides: `*.tfrecord*` of tf.Example (`image_raw` and `label`, names with "train" and
"test"), MNIST's IDX files under their own names, CIFAR-10's binary batches, or one `.npz` with
Keras' names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from podyard.base.errors import failed_precondition, invalid
from podyard.engine.training.input.augment import Normalise, Resize, Transform
from podyard.engine.training.input.formats import (
    ExampleFeature,
    read_cifar,
    read_idx_set,
    read_npz,
    read_tfrecord,
)
from podyard.engine.training.input.source import Arrays, Examples
from podyard.engine.training.recipe import Input

_BYTE = 255.0
# Part -> file of MNIST and of all sets that keep its names, each possibly with .gz.
_IDX = {
    "train": {"image": "train-images-idx3-ubyte", "label": "train-labels-idx1-ubyte"},
    "test": {"image": "t10k-images-idx3-ubyte", "label": "t10k-labels-idx1-ubyte"},
}
_CIFAR = {"train": "data_batch_*.bin", "test": "test_batch.bin"}
_NPZ = {
    "train": {"image": "x_train", "label": "y_train"},
    "test": {"image": "x_test", "label": "y_test"},
}
_TFRECORD = {"train": "*train*.tfrecord*", "test": "*test*.tfrecord*"}


def images_of(
    folder: str,
    shape: tuple[int, ...],
    augmentation: Transform | None = None,
    offset: float = 0.0,
    *,
    resizes: bool = False,
    classes: int | None = None,
) -> Callable[[], Input]:
    """Return the reader of the images of `folder` as bytes / 255 + `offset`. They are of `shape` (a
    flat one, too), or of any size with `resizes`; labels are below `classes`.

    It raises PodyardError FAILED_PRECONDITION when there is no folder to read or nothing in it that
    is known, INVALID_ARGUMENT for images of another size or labels that are too large, and what the
    readers raise, which names file and record.
    """

    def read() -> Input:
        if not folder:
            raise failed_precondition(
                "this recipe needs data: give it the folder of its files (argument data)"
            )
        parts = _read(Path(folder), shape)
        train, test = (
            _examples(
                parts[part],
                _shape_of(parts[part]["image"], shape[-1]) if resizes else shape,
                f"{folder} ({part})",
                classes,
            )
            for part in ("train", "test")
        )
        resize = (Resize(shape[0], shape[-1]),) if resizes else ()
        normalise = (*resize, Normalise(1 / _BYTE, offset))
        augmented = (augmentation,) if augmentation else ()
        return Input(train, test, (*augmented, *normalise), normalise)

    return read


def _shape_of(image: Any, channels: int) -> tuple[int, ...]:
    """Return the shape of one of the images [n, h, w] or [n, h, w, c]; of rows of bytes, which say
    no size, the square's."""
    if image.ndim > 2:
        return tuple(image.shape[1:]) if image.ndim > 3 else (*image.shape[1:], 1)
    side = math.isqrt(image.shape[1])
    if side * side == image.shape[1]:
        return (side, side, 1)
    side = math.isqrt(image.shape[1] // channels)
    return (side, side, channels)


def _read(folder: Path, shape: tuple[int, ...]) -> Mapping[str, Arrays]:
    if not folder.is_dir():
        raise failed_precondition(f"{folder} is not a folder with data")
    if any(folder.glob(_TFRECORD["train"])):
        pixels = ExampleFeature("uint8", (math.prod(shape),), True)
        features = {"image_raw": pixels, "label": ExampleFeature("int64", ())}
        found = {
            part: read_tfrecord(folder / pattern, features) for part, pattern in _TFRECORD.items()
        }
        return {
            part: {"image": arrays["image_raw"], "label": arrays["label"]}
            for part, arrays in found.items()
        }
    if any(folder.glob(_IDX["train"]["image"] + "*")):
        return {
            part: read_idx_set({feature: folder / f"{name}*" for feature, name in names.items()})
            for part, names in _IDX.items()
        }
    if any(folder.glob(_CIFAR["train"])):
        return {part: read_cifar(folder / pattern) for part, pattern in _CIFAR.items()}
    archives = sorted(folder.glob("*.npz"))
    if len(archives) == 1:
        return {part: read_npz(archives[0], names) for part, names in _NPZ.items()}
    known = (
        "TFRecord (*train*.tfrecord), IDX (train-images-idx3-ubyte), CIFAR-10 "
        "(data_batch_1.bin) "
        "and one .npz"
    )
    raise failed_precondition(f"{folder} has no data that is known; known are {known}")


def _examples(arrays: Arrays, shape: tuple[int, ...], origin: str, classes: int | None) -> Examples:
    image, label = arrays["image"], arrays["label"]
    if math.prod(image.shape[1:]) != math.prod(shape):
        raise invalid(f"{origin}: images are {image.shape[1:]}, the model takes {shape}", "data")
    if image.dtype != np.uint8:
        raise invalid(f"{origin}: images are {image.dtype}, not bytes", "data")
    labels = label.reshape(len(label), -1)
    if labels.shape[1] != 1:
        raise invalid(f"{origin}: labels are {label.shape[1:]}, not one number each", "data")
    if classes is not None and labels.size and labels.max() >= classes:
        raise invalid(
            f"{origin}: a label is {labels.max()}, and the model has {classes} classes", "data"
        )
    return Examples(
        {"image": image.reshape(-1, *shape), "label": labels[:, 0].astype(np.int32)}, origin
    )
