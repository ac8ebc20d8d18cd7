"""Real handwritten digits that a package carries, so that a demo needs no download.

Scikit-learn's copy of UCI "Optical Recognition of Handwritten Digits", 1,797 images of 8 x 8,
values 0 to 16.
"""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import failed_precondition
from podyard.base.rng import Streams
from podyard.engine.training.input.augment import Normalise, Resize
from podyard.engine.training.input.source import Examples
from podyard.engine.training.recipe import Input

SIDE_PIXELS = 8
_LEVELS = 16.0
# The split belongs to the data set, not to a run: every training seed is judged on the same
# held-out images.
_SPLIT_SEED = 0
_TEST_SHARE = 0.2


def load_digits() -> Input:
    """All images scaled to 0..1 and cut into the fixed parts. Raises PodyardError
    FAILED_PRECONDITION when
    scikit-learn is not installed."""
    table = _read_table()
    images = (table[:, :-1] / _LEVELS).astype(np.float32).reshape(-1, SIDE_PIXELS, SIDE_PIXELS, 1)
    labels = table[:, -1].astype(np.int32)
    train, test = stratified_split(labels.tolist(), _TEST_SHARE, _SPLIT_SEED)
    check_split(train, test, len(labels))
    return Input(
        Examples({"image": images[train], "label": labels[train]}, "digits"),
        Examples({"image": images[test], "label": labels[test]}, "digits"),
    )


def digits_of(side: int) -> Callable[[], Input]:
    """Return the reader of the digits as images [side, side, 3] of -0.5 to 0.5."""

    def read() -> Input:
        digits = load_digits()
        transforms = (Resize(side, 3), Normalise(1.0, -0.5))
        return Input(digits.train, digits.test, transforms, transforms)

    return read


def _read_table() -> NDArray[np.float64]:
    """[1797, 65]: 64 pixels, label. Read from the package's data file: importing scikit-learn for
    it takes as long as
    a hundred training steps."""
    path = datasets_of_sklearn() / "data" / "digits.csv.gz"
    if not path.is_file():
        from sklearn import datasets

        digits = datasets.load_digits()
        return np.column_stack([digits.data, digits.target])
    with gzip.open(path, "rt", encoding="ascii") as file:
        return np.loadtxt(file, delimiter=",")


def datasets_of_sklearn() -> Path:
    """Return the folder of data sets that scikit-learn carries. Raises PodyardError
    FAILED_PRECONDITION when it is not installed."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise failed_precondition(
            "this recipe's data comes with scikit-learn: pip install 'podyard[demo]'"
        )
    return Path(spec.origin).parent / "datasets"


def stratified_split(
    labels: Sequence[int], test_share: float, seed: int
) -> tuple[list[int], list[int]]:
    """Indices (training, test), shuffled; each class gives the share `test_share` of its examples,
    rounded."""
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
    """Refuses a split whose accuracy would mean nothing. Raises PodyardError FAILED_PRECONDITION
    when an index is in both parts, twice in one part, or not an example."""
    overlap = sorted(set(train) & set(test))
    if overlap:
        raise failed_precondition(
            f"training and test data overlap in {len(overlap)} examples, first {overlap[0]}"
        )
    indices = [*train, *test]
    if len(set(indices)) != len(indices):
        raise failed_precondition("an example is twice in the split")
    if any(not 0 <= index < example_count for index in indices):
        raise failed_precondition(f"the split names an example outside of 0..{example_count - 1}")
