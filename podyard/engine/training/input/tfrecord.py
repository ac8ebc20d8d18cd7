"""TFRecord: length (u64), masked CRC-32C of the length, data, masked CRC-32C of the data; little
endian, no header.

Source: TensorFlow's description of the format ("TFRecord and tf.train.Example").
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import PodyardError, invalid
from podyard.engine.training.input.crc32c import crc32c, crc32c_many, mask, masked_many
from podyard.engine.training.input.example import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    KIND_NAMES,
    Values,
    feature_messages,
    feature_values,
)
from podyard.engine.training.input.files import (
    InputFile,
    bad_file,
    check_size,
    concatenate,
    data_loss,
    expand_all,
    is_gzip,
    known_format,
)

# A record is held whole, with the piece of the file around it; the largest photograph is a tenth of
# this.
RECORD_BYTES_MAX = 256 << 20
HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
_LENGTH_BYTES = 8
# What is read, and checked, at once.
_PIECE_BYTES = 4 << 20


class TfRecordReader:
    """The records of one file, gzip or not, in order; each may be iterated over any number of
    times.

    Iterating raises PodyardError NOT_FOUND; DATA_LOSS for a wrong checksum or an end inside of a
    record, after the records before it; INVALID_ARGUMENT for another format and for a record above
    `RECORD_BYTES_MAX`. A file that is cut between two records cannot be told from a shorter one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with InputFile(self._path, _is_gzip) as file:
            count, data, needed = 0, b"", 0
            while piece := file.read(max(_PIECE_BYTES, needed - len(data))):
                data += piece
                starts, lengths, used, needed, error = self._scan(data, count)
                expected = [
                    FOOTER.unpack_from(data, s + n)[0] for s, n in zip(starts, lengths, strict=True)
                ]
                whole = _checks(data, starts, lengths) == np.array(expected, np.uint32)
                for start, length, right in zip(starts, lengths, whole.tolist(), strict=True):
                    if not right:
                        raise data_loss(
                            self._path, f"record {count}", "its data do not have their checksum"
                        )
                    yield data[start : start + length]
                    count += 1
                if error is not None:
                    raise error
                data = data[used:]
            if data:
                raise data_loss(
                    self._path, f"record {count}", f"ends after {len(data)} of {needed} bytes"
                )

    def _scan(
        self, data: bytes, count: int
    ) -> tuple[list[int], list[int], int, int, PodyardError | None]:
        """(starts and lengths of the whole records in `data`, bytes that they take, bytes of the
        record after them as far as known, what is wrong with its length). `count` records are
        before `data`."""
        starts: list[int] = []
        lengths: list[int] = []
        at = 0
        while at + HEADER.size <= len(data):
            length, check = HEADER.unpack_from(data, at)
            number = count + len(starts)
            if mask(crc32c(data[at : at + _LENGTH_BYTES])) != check:
                return starts, lengths, at, 0, self._wrong_length(number, data)
            if length > RECORD_BYTES_MAX:
                what = f"record {number} has {length} bytes; at most {RECORD_BYTES_MAX} are read"
                return starts, lengths, at, 0, bad_file(self._path, what)
            end = at + HEADER.size + length + FOOTER.size
            if end > len(data):
                return starts, lengths, at, end - at, None
            starts.append(at + HEADER.size)
            lengths.append(length)
            at = end
        return starts, lengths, at, HEADER.size, None

    def _wrong_length(self, number: int, data: bytes) -> PodyardError:
        found = known_format(data[: InputFile.BEGINNING_BYTES]) if number == 0 else None
        if found is not None:
            return bad_file(self._path, f"is not TFRecord but {found}")
        other = ", or the file is not TFRecord" if number == 0 else ""
        return data_loss(
            self._path, f"record {number}", f"its length does not have its checksum{other}"
        )


def _checks(data: bytes, starts: Sequence[int], lengths: Sequence[int]) -> NDArray[np.uint32]:
    return masked_many(crc32c_many(data, starts, lengths)) if starts else np.empty(0, np.uint32)


def _is_gzip(beginning: bytes) -> bool:
    """A length could look like gzip's magic, but not together with its checksum."""
    if not is_gzip(beginning) or len(beginning) < HEADER.size:
        return is_gzip(beginning)
    length_check: int = HEADER.unpack_from(beginning)[1]
    return mask(crc32c(beginning[:_LENGTH_BYTES])) != length_check


@dataclasses.dataclass(frozen=True)
class ExampleFeature:
    """The type and size that a feature of a tf.Example has to have: `shape` of one example, and
    `dtype`. Numbers are an int64_list (integer types; each value has to fit) or a float_list; with
    `raw`, one value of a bytes_list is the array's bytes, little endian, as `decode_raw` takes
    them. Raises PodyardError INVALID_ARGUMENT for another type."""

    dtype: str
    shape: tuple[int, ...] = ()
    raw: bool = False

    def __post_init__(self) -> None:
        try:
            known = np.dtype(self.dtype).kind in "iuf"
        except TypeError:
            known = False
        if not known:
            raise invalid(
                f"a feature's dtype is of integers or floats, not {self.dtype!r}", "dtype"
            )
        if any(size < 0 for size in self.shape):
            raise invalid(f"a feature's shape cannot be {self.shape}", "shape")

    @property
    def example_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def check(self, which: int | None, values: Values) -> str | None:
        """Return what is wrong with an example's values, if anything."""
        wanted = (
            BYTES_LIST
            if self.raw
            else FLOAT_LIST
            if np.dtype(self.dtype).kind == "f"
            else INT64_LIST
        )
        if which != wanted:
            return (
                f"is {'not set' if which is None else f'a {KIND_NAMES[which]}'}, not a "
                f"{KIND_NAMES[wanted]}"
            )
        if self.raw:
            sizes = [len(value) for value in values]
            if sizes != [self.example_bytes]:
                return (
                    f"has values of {sizes} bytes; {self.dtype} {self.shape} is one of "
                    f"{self.example_bytes}"
                )
            return None
        if len(values) != math.prod(self.shape):
            return f"has {len(values)} values; shape {self.shape} needs {math.prod(self.shape)}"
        if wanted == INT64_LIST and len(values):
            low, high = int(np.min(values)), int(np.max(values))
            if low < np.iinfo(self.dtype).min or high > np.iinfo(self.dtype).max:
                return f"has values {low} to {high}, which do not fit {self.dtype}"
        return None

    def stack(self, values: list[Values]) -> NDArray[Any]:
        """[len(values), *shape] of checked values."""
        dtype = np.dtype(self.dtype)
        if self.raw:
            flat = np.frombuffer(
                b"".join(value for own in values for value in own), dtype.newbyteorder("<")
            )
        else:
            flat = (
                np.concatenate([np.empty(0, dtype), *values])
                if not values
                else np.concatenate(values)
            )
        return flat.astype(dtype, copy=False).reshape(len(values), *self.shape)


def read_tfrecord(
    patterns: Path | str | Sequence[Path | str], features: Mapping[str, ExampleFeature]
) -> dict[str, NDArray[Any]]:
    """Arrays [n, *shape] by feature of the tf.Examples in the files, in the order of the files
    (wildcards are sorted).

    Raises what `TfRecordReader` raises, and PodyardError INVALID_ARGUMENT for a record that is not
    a tf.Example, a feature that is missing or of another type or shape, or more than
    `files.DATA_BYTES_MAX`; DATA_LOSS when there is no record at all.
    """
    if not features:
        raise invalid("no features are asked for")
    paths = expand_all(patterns)
    arrays = concatenate([(path, _read_one(path, features)) for path in paths])
    if not len(next(iter(arrays.values()))):
        raise data_loss(paths[0], "record 0", "there is no record in any file of the set")
    return arrays


def _read_one(path: Path, features: Mapping[str, ExampleFeature]) -> dict[str, NDArray[Any]]:
    columns: dict[str, list[Values]] = {name: [] for name in features}
    example_bytes = sum(feature.example_bytes for feature in features.values())
    for number, record in enumerate(TfRecordReader(path)):
        check_size(path, (number + 1) * example_bytes)
        try:
            found = feature_messages(record)
            decoded = {name: feature_values(found[name]) for name in features if name in found}
        except ValueError as error:
            raise bad_file(path, f"record {number} is not a tf.Example: {error}") from error
        for name, feature in features.items():
            if name not in decoded:
                raise bad_file(path, f"record {number} has no feature {name}, but {sorted(found)}")
            wrong = feature.check(*decoded[name])
            if wrong is not None:
                raise bad_file(path, f"record {number}, feature {name}: {wrong}")
            columns[name].append(decoded[name][1])
    return {name: feature.stack(columns[name]) for name, feature in features.items()}
