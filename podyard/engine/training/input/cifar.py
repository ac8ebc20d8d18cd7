"""CIFAR-10's binary version: records of a label byte and three planes (red, green, blue) of 32 x 32
bytes.

Source: the data set's page, "Binary version".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.engine.training.input.files import (
    InputFile,
    bad_file,
    concatenate,
    data_loss,
    expand_all,
    known_format,
)

CLASS_COUNT = 10
SIDE_PIXELS = 32
_CHANNELS = 3
RECORD_BYTES = 1 + _CHANNELS * SIDE_PIXELS**2
# CIFAR-100 has a coarse and a fine label.
_CIFAR_100_RECORD_BYTES = RECORD_BYTES + 1


def read_cifar(patterns: Path | str | list[Path | str]) -> dict[str, NDArray[Any]]:
    """{"image": [n, 32, 32, 3] uint8, "label": [n] uint8} of the files in order; wildcards
    ("data_batch_*.bin").

    Raises PodyardError NOT_FOUND; INVALID_ARGUMENT for another format (the version of pickles among
    them: reading a pickle runs what is in it); DATA_LOSS when a file is not whole records or a
    label is not below 10. A file that is cut between two records cannot be told from a shorter one.
    """
    return concatenate([(path, _read_one(path)) for path in expand_all(patterns)])


def _read_one(path: Path) -> dict[str, NDArray[Any]]:
    with InputFile(path) as file:
        beginning = file.read(InputFile.BEGINNING_BYTES)
        found = known_format(beginning)
        if found in ("a pickle", "a tar archive"):
            raise bad_file(
                path,
                f"is {found}. Pickles are not read, because reading one runs what is in it, and "
                "archives have to be"
                " unpacked: take the *.bin files of cifar-10-binary.tar.gz",
            )
        if found is not None:
            raise bad_file(path, f"is {found}, not a binary batch of CIFAR-10")
        data = beginning + file.read_rest()
    count, rest = divmod(len(data), RECORD_BYTES)
    if rest and len(data) % _CIFAR_100_RECORD_BYTES == 0:
        raise bad_file(path, "has the record size of CIFAR-100, not of CIFAR-10")
    if rest or not count:
        raise data_loss(path, f"record {count}", f"has {rest} of {RECORD_BYTES} bytes")
    table = np.frombuffer(data, np.uint8).reshape(count, RECORD_BYTES)
    labels = table[:, 0]
    wrong = np.flatnonzero(labels >= CLASS_COUNT)
    if wrong.size:
        raise data_loss(
            path,
            f"record {wrong[0]}",
            f"label {labels[wrong[0]]} is not one of 0 to {CLASS_COUNT - 1}",
        )
    planes = table[:, 1:].reshape(count, _CHANNELS, SIDE_PIXELS, SIDE_PIXELS)
    return {"image": np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), "label": labels.copy()}
