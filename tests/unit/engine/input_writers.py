"""Writing small sets of examples: IDX, TFRecord and tf.Example."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.training.input.crc32c import crc32c, crc32c_many, mask, masked_many
from podyard.engine.training.input.example import BYTES_LIST, FLOAT_LIST, INT64_LIST, LENGTH
from podyard.engine.training.input.idx import AXES_MAX, ELEMENT_TYPES
from podyard.engine.training.input.tfrecord import FOOTER, HEADER

# A value of a feature: bytes, several, or numbers of any shape (a tf.Example keeps no shape).
Value = bytes | Sequence[bytes] | NDArray[Any]
# Checksums are fast for many records at once.
_BATCH_RECORDS = 512
_INT64 = np.iinfo(np.int64)


def write_idx(path: Path, array: NDArray[Any]) -> None:
    """`array` [n, ...] as IDX; gzip if the name ends in .gz. Raises PodyardError INVALID_ARGUMENT
    for a type or a
    number of axes that the format does not have."""
    big_endian = array.dtype.newbyteorder(">")
    code = next((code for code, dtype in ELEMENT_TYPES.items() if dtype == big_endian), None)
    if code is None or not 1 <= array.ndim <= AXES_MAX:
        raise invalid(f"IDX has no arrays of {array.dtype} with {array.ndim} axes")
    with _created(path) as file:
        file.write(struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape))
        file.write(array.astype(big_endian).tobytes())


def write_tfrecord(path: Path, records: Iterable[bytes]) -> None:
    """`records` as TFRecord; gzip if the name ends in .gz."""
    waiting = iter(records)
    with _created(path) as file:
        while batch := list(itertools.islice(waiting, _BATCH_RECORDS)):
            lengths = [len(record) for record in batch]
            starts = [
                end - length
                for end, length in zip(itertools.accumulate(lengths), lengths, strict=True)
            ]
            checks = masked_many(crc32c_many(b"".join(batch), starts, lengths)).tolist()
            for record, length, check in zip(batch, lengths, checks, strict=True):
                file.write(HEADER.pack(length, mask(crc32c(struct.pack("<Q", length)))))
                file.write(record)
                file.write(FOOTER.pack(check))


def encode_example(features: Mapping[str, Value]) -> bytes:
    """A tf.Example with its features in the order of their names; numbers are packed. Raises
    PodyardError INVALID_ARGUMENT for a value that it cannot hold without loss (floats are of 32
    bits)."""
    entries = [
        _field(1, _field(1, name.encode()) + _field(2, _encode_feature(name, features[name])))
        for name in sorted(features)
    ]
    return _field(1, b"".join(entries))


def _encode_feature(name: str, value: Value) -> bytes:
    if isinstance(value, bytes):
        value = [value]
    if not isinstance(value, np.ndarray):
        return _field(BYTES_LIST, b"".join(_field(1, part) for part in value))
    if value.dtype in (np.float16, np.float32):
        return _field(FLOAT_LIST, _field(1, value.astype("<f4").tobytes()))
    if value.dtype.kind not in "iu" or (value.size and int(value.max()) > _INT64.max):
        raise invalid(f"feature {name}: a tf.Example cannot hold these {value.dtype}")
    return _field(
        INT64_LIST,
        _field(1, b"".join(_varint(number % (1 << 64)) for number in value.ravel().tolist())),
    )


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | LENGTH) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[BinaryIO]:
    with path.open("wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # No time in the file: the same examples are the same bytes.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
            yield cast(BinaryIO, packed)
