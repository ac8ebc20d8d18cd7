"""Text as windows of tokens: a folder's `*.txt`, one token a byte, or `train.bin` and `val.bin` of
16-bit tokens, as nanoGPT's and llm.c's preparation scripts write them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import failed_precondition, invalid
from podyard.base.training_settings import TEXTS
from podyard.engine.recipes.digits import datasets_of_sklearn
from podyard.engine.training.input.chance import Chance
from podyard.engine.training.input.files import DATA_BYTES_MAX
from podyard.engine.training.input.source import Arrays, Examples
from podyard.engine.training.recipe import Input

FEATURE = "tokens"
_TRAIN_SHARE = 0.9  # of a text that is not cut yet
# Windows of short texts overlap, so that an epoch has about as many.
_WINDOWS = 4096
_BINARY = ("train.bin", "val.bin")


@dataclasses.dataclass(frozen=True, slots=True)
class AsInt32:
    """Tokens of any type as 32-bit numbers."""

    @property
    def draws(self) -> bool:
        return False

    def __call__(self, batch: Arrays, chance: Chance) -> Arrays:  # noqa: ARG002
        return batch | {FEATURE: batch[FEATURE].astype(np.int32)}


def tokens_of(
    folder: str, sequence: int, vocabulary: int, judged_at_once: int
) -> Callable[[], Input]:
    """Return the reader of windows of `sequence` + 1 tokens below `vocabulary`: those to judge by
    do not overlap.

    It raises PodyardError FAILED_PRECONDITION when there is nothing to read, INVALID_ARGUMENT for a
    text that is shorter than a window or has other tokens.
    """

    def read() -> Input:
        train, test = _read(folder)
        stride = min(max(1, len(train) // _WINDOWS), sequence)
        transforms = (AsInt32(),)
        return Input(
            _windows(train, sequence, stride, vocabulary, f"{folder} (train)"),
            _windows(test, sequence, sequence, vocabulary, f"{folder} (test)"),
            transforms,
            transforms,
            judged_at_once,
        )

    return read


def _windows(
    tokens: NDArray[Any], sequence: int, stride: int, vocabulary: int, origin: str
) -> Examples:
    if len(tokens) <= sequence:
        raise invalid(
            f"{origin}: {len(tokens)} tokens; a window of sequence {sequence} needs "
            f"{sequence + 1}: use a smaller sequence, or a longer text",
            "data",
        )
    if (largest := int(tokens.max())) >= vocabulary:
        raise invalid(
            f"{origin}: a token is {largest}, and the vocabulary has {vocabulary}", "data"
        )
    views = np.lib.stride_tricks.sliding_window_view(tokens, sequence + 1)[::stride]
    return Examples({FEATURE: views}, origin)


def _read(data: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the tokens to train with and those to judge by."""
    if not data:
        raise failed_precondition(
            "this recipe needs data: give it the folder of its files (argument data)"
        )
    if data == TEXTS:
        return _cut(sorted((datasets_of_sklearn() / "descr").glob("*.rst")))
    folder = Path(data)
    if not folder.is_dir():
        raise failed_precondition(f"{folder} is not a folder with data")
    binary = [folder / name for name in _BINARY]
    if all(path.is_file() for path in binary):
        train, test = (np.memmap(path, "<u2", "r").view(np.ndarray) for path in binary)
        return train, test
    if texts := sorted(folder.glob("*.txt")):
        return _cut(texts)
    raise failed_precondition(
        f"{folder} has no data that is known; known are *.txt, and {' with '.join(_BINARY)}"
    )


def _cut(paths: list[Path]) -> tuple[NDArray[Any], NDArray[Any]]:
    if sum(path.stat().st_size for path in paths) > DATA_BYTES_MAX:
        raise invalid(f"texts have more than {DATA_BYTES_MAX} bytes", "data")
    tokens = np.frombuffer(b"\n".join(path.read_bytes() for path in paths), np.uint8)
    at = int(len(tokens) * _TRAIN_SHARE)
    return tokens[:at], tokens[at:]
