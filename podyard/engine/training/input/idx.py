"""IDX, the format of MNIST and Fashion-MNIST: a magic number, the sizes of the axes, then elements,
big endian.

Source: the description that came with MNIST ("the IDX file format is a simple format for vectors
and matrices").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.training.input.files import (
    InputFile,
    bad_file,
    concatenate,
    data_loss,
    expand,
    known_format,
)

ELEMENT_TYPES: Mapping[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
# What numpy 1 can hold; the format could say 255.
AXES_MAX = 32
MAGIC_BYTES = 4


def read_idx(pattern: Path | str) -> NDArray[Any]:
    """The array of a file, gzip or not, or of several (wildcards) along the first axis, in the
    machine's byte order.
    An uncompressed file of bytes is mapped, not read: it must not change while the array is used.

    Raises PodyardError NOT_FOUND; INVALID_ARGUMENT for another format, or more than
    `files.DATA_BYTES_MAX`;
    DATA_LOSS when the file is shorter or longer than its header says.
    """
    return concatenate([(path, {"array": _read_one(path)}) for path in expand(pattern)])["array"]


def read_idx_set(patterns: Mapping[str, Path | str]) -> dict[str, NDArray[Any]]:
    """Arrays by name, each from its files: {"image": "train-images*", "label": "train-labels*"}.
    Raises what
    `read_idx` raises, and INVALID_ARGUMENT when they do not have the same number of examples."""
    if not patterns:
        raise invalid("no features are asked for")
    arrays = {name: read_idx(pattern) for name, pattern in patterns.items()}
    counts = {name: len(array) for name, array in arrays.items()}
    first = next(iter(counts))
    for name, count in counts.items():
        if count != counts[first]:
            raise bad_file(
                Path(patterns[name]), f"{count} examples, but {patterns[first]} has {counts[first]}"
            )
    return arrays


def _read_one(path: Path) -> NDArray[Any]:
    with InputFile(path) as file:
        magic = file.read(MAGIC_BYTES)
        if len(magic) < MAGIC_BYTES:
            raise data_loss(path, f"byte {len(magic)}", "ends inside of the header")
        dtype, axis_count = ELEMENT_TYPES.get(magic[2]), magic[3]
        if magic[:2] != b"\0\0" or dtype is None or not 1 <= axis_count <= AXES_MAX:
            found = known_format(magic + file.read(InputFile.BEGINNING_BYTES))
            raise bad_file(
                path, f"is not IDX{f' but {found}' if found else ''}: it begins with {magic.hex()}"
            )
        header = MAGIC_BYTES + 4 * axis_count
        sizes = file.read(4 * axis_count)
        if len(sizes) < 4 * axis_count:
            raise data_loss(path, f"byte {MAGIC_BYTES + len(sizes)}", "ends inside of the header")
        shape = tuple(np.frombuffer(sizes, ">u4").tolist())
        count = math.prod(shape)
        if dtype.itemsize == 1 and not file.compressed and count and header + count == file.size:
            return np.memmap(path, dtype, "r", header, shape).view(np.ndarray)
        array = file.read_array(dtype, count, header)
    return array.astype(dtype.newbyteorder("="), copy=False).reshape(shape)
