from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.recipes.digits import check_split, load_digits, stratified_split


def test_overlapping_parts_are_refused() -> None:
    check_split([0, 1, 2], [3, 4], 5)
    with pytest.raises(PodyardError, match="overlap in 2 examples, first 1") as caught:
        check_split([0, 1, 2], [2, 1], 5)
    assert caught.value.code is Code.FAILED_PRECONDITION
    with pytest.raises(PodyardError, match="twice"):
        check_split([0, 0], [1], 5)
    with pytest.raises(PodyardError, match=r"outside of 0\.\.4"):
        check_split([0, 5], [1], 5)


def test_split_is_stratified_and_fixed() -> None:
    labels = [index % 3 for index in range(90)] + [7] * 10
    train, test = stratified_split(labels, 0.2, seed=0)
    assert sorted(train + test) == list(range(100))
    assert Counter(labels[index] for index in test) == {0: 6, 1: 6, 2: 6, 7: 2}
    assert (train, test) == stratified_split(labels, 0.2, seed=0)
    assert train != stratified_split(labels, 0.2, seed=1)[0]
    assert train != sorted(train)


@pytest.mark.slow
def test_all_digits_are_there_once() -> None:
    data = load_digits()
    assert (data.train.count, data.test.count) == (1438, 359)
    train, test = data.train.slice(0, 1438), data.test.slice(0, 359)
    images = np.concatenate([train["image"], test["image"]])
    labels = np.concatenate([train["label"], test["label"]])
    assert images.shape == (1797, 8, 8, 1) and images.min() == 0 and images.max() == 1
    from sklearn.datasets import load_digits as original

    expected = original()
    theirs = sorted(
        (row.tobytes(), int(y)) for row, y in zip(expected.data / 16, expected.target, strict=True)
    )
    ours = sorted(
        (row.astype(np.float64).tobytes(), int(y)) for row, y in zip(images, labels, strict=True)
    )
    assert ours == theirs
