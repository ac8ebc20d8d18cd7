"""Digits CNN: real handwritten digits that a package carries, so that a demo needs no download.

The layers are our own. Data: scikit-learn's copy of UCI "Optical Recognition of Handwritten
Digits", 1,797 images of 8 x 8, values 0 to 16.
"""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.rng import Streams
from podyard.engine.recipes.layers import conv_same, dropout, init_glorot, max_pool_2x2, softmax_cross_entropy
from podyard.engine.training.recipe import Batch, Dataset, Tensors

CLASS_COUNT = 10
SIDE_PIXELS = 8
_LEVELS = 16.0
# The split belongs to the data set, not to a run: every training seed is judged on the same held-out images.
_SPLIT_SEED = 0
_TEST_SHARE = 0.2

SHAPES: Mapping[str, tuple[int, ...]] = {
    "conv1/kernel": (3, 3, 1, 32),
    "conv1/bias": (32,),
    "conv2/kernel": (3, 3, 32, 64),
    "conv2/bias": (64,),
    "dense1/kernel": (4 * 4 * 64, 128),
    "dense1/bias": (128,),
    "dense2/kernel": (128, CLASS_COUNT),
    "dense2/bias": (CLASS_COUNT,),
}


@dataclasses.dataclass(frozen=True)
class DigitsCnn:
    learning_rate: float
    dropout_rate: float

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, object]) -> DigitsCnn:
        return cls(_number(arguments, "learningRate", 1e-3), _number(arguments, "dropout", 0.25))

    def data(self) -> Dataset:
        return load_digits()

    def init(self, streams: Streams) -> dict[str, NDArray[np.float32]]:
        return init_glorot(SHAPES, streams)

    def loss(self, params: Tensors, batch: Batch, dropout_key: Any) -> tuple[Any, Any]:
        hidden = dropout(_hidden(params, batch), self.dropout_rate, dropout_key)
        return softmax_cross_entropy(_logits(params, hidden), batch["label"])

    def evaluate(self, params: Tensors, batch: Batch) -> tuple[Any, Any]:
        return softmax_cross_entropy(_logits(params, _hidden(params, batch)), batch["label"])

    def predict(self, params: Tensors, batch: Batch) -> Any:
        return jax.numpy.argmax(_logits(params, _hidden(params, batch)), axis=1)


def _hidden(params: Tensors, batch: Batch) -> Any:
    """image [n, 8, 8, 1] -> [n, 128]."""
    x = jax.nn.relu(conv_same(batch["image"], params["conv1/kernel"], params["conv1/bias"]))
    x = jax.nn.relu(conv_same(x, params["conv2/kernel"], params["conv2/bias"]))
    x = max_pool_2x2(x).reshape(x.shape[0], -1)
    return jax.nn.relu(x @ params["dense1/kernel"] + params["dense1/bias"])


def _logits(params: Tensors, hidden: Any) -> Any:
    return hidden @ params["dense2/kernel"] + params["dense2/bias"]


def _number(arguments: Mapping[str, object], name: str, default: float) -> float:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PodyardError(Code.INVALID_ARGUMENT, f"{name} is a number, not {value!r}")
    return float(value)


def load_digits() -> Dataset:
    """All images scaled to 0..1 and cut into the fixed parts. Raises PodyardError FAILED_PRECONDITION when
    scikit-learn is not installed."""
    table = _read_table()
    images = (table[:, :-1] / _LEVELS).astype(np.float32).reshape(-1, SIDE_PIXELS, SIDE_PIXELS, 1)
    labels = table[:, -1].astype(np.int32)
    train, test = stratified_split(labels.tolist(), _TEST_SHARE, _SPLIT_SEED)
    check_split(train, test, len(labels))
    return Dataset(
        train={"image": images[train], "label": labels[train]},
        test={"image": images[test], "label": labels[test]},
    )


def _read_table() -> NDArray[np.float64]:
    """[1797, 65]: 64 pixels, label. Read from the package's data file: importing scikit-learn for it takes as long as
    a hundred training steps."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise failed_precondition("the recipe digits-cnn needs scikit-learn: pip install 'podyard[demo]'")
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        from sklearn import datasets

        digits = datasets.load_digits()
        return np.column_stack([digits.data, digits.target])
    with gzip.open(path, "rt", encoding="ascii") as file:
        return np.loadtxt(file, delimiter=",")


def stratified_split(labels: Sequence[int], test_share: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices (training, test), shuffled; each class gives the share `test_share` of its examples, rounded."""
    streams = Streams(seed)
    train: list[int] = []
    test: list[int] = []
    for label in sorted(set(labels)):
        indices = [index for index, own in enumerate(labels) if own == label]
        streams.stream(f"split/{label}").shuffle(indices)
        test_count = round(test_share * len(indices))
        test += indices[:test_count]
        train += indices[test_count:]
    streams.stream("split/train").shuffle(train)
    streams.stream("split/test").shuffle(test)
    return train, test


def check_split(train: Sequence[int], test: Sequence[int], example_count: int) -> None:
    """Refuses a split whose accuracy would mean nothing. Raises PodyardError FAILED_PRECONDITION when an index is in
    both parts, twice in one part, or not an example."""
    overlap = sorted(set(train) & set(test))
    if overlap:
        raise failed_precondition(f"training and test data overlap in {len(overlap)} examples, first {overlap[0]}")
    indices = [*train, *test]
    if len(set(indices)) != len(indices):
        raise failed_precondition("an example is twice in the split")
    if any(not 0 <= index < example_count for index in indices):
        raise failed_precondition(f"the split names an example outside of 0..{example_count - 1}")
