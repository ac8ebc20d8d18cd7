"""tf.Example on the wire: a parser of the few protobuf messages that it is made of.

Example {Features features = 1}; Features {map<string, Feature> feature = 1}; Feature {oneof:
BytesList 1, FloatList 2, Int64List 3}; each list {repeated value = 1}, numbers packed or not.
Source: tensorflow/core/example/*.proto and protobuf's description of its encoding. Field 1 of
length 2 is what all of these have in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3
KIND_NAMES = {BYTES_LIST: "bytes_list", FLOAT_LIST: "float_list", INT64_LIST: "int64_list"}
_VARINT_BYTES_MAX = 10
_WORD = 1 << 64
_HALF = 1 << 63
# Above, numpy's calls cost less than a loop over bytes.
_SHORT_BYTES = 32

Field = tuple[int, int, Any]
Values = list[bytes] | NDArray[Any]


def feature_messages(example: bytes) -> dict[str, memoryview]:
    """Name -> its Feature, still encoded; of two of a name the last counts, as protobuf has it.
    Raises ValueError when the bytes are not a tf.Example."""
    found: dict[str, memoryview] = {}
    for number, kind, features in fields(memoryview(example)):
        if (number, kind) != (1, LENGTH):
            continue
        for entry_number, entry_kind, entry in fields(features):
            if (entry_number, entry_kind) != (1, LENGTH):
                continue
            name, feature = "", memoryview(b"")
            for part_number, part_kind, part in fields(entry):
                if (part_number, part_kind) == (1, LENGTH):
                    name = str(part, "utf-8")
                elif (part_number, part_kind) == (2, LENGTH):
                    feature = part
            found[name] = feature
    return found


def feature_values(feature: memoryview) -> tuple[int | None, Values]:
    """(which list, its values: bytes, float32 [n] or int64 [n]) of an encoded Feature; (None, [])
    when none is set. Raises ValueError when the bytes are not a Feature."""
    which: int | None = None
    lists: list[memoryview] = []
    for number, kind, value in fields(feature):
        if kind != LENGTH or number not in KIND_NAMES:
            continue
        # One of the three: another kind replaces, the same kind goes on.
        if number != which:
            which, lists = number, []
        lists.append(value)
    values = [
        (kind, value) for part in lists for number, kind, value in fields(part) if number == 1
    ]
    if which == FLOAT_LIST:
        return which, _floats(values)
    if which == INT64_LIST:
        return which, _integers(values)
    if any(kind != LENGTH for kind, _ in values):
        raise ValueError("a value of a bytes_list is not bytes")
    return which, [bytes(value) for _, value in values]


def fields(message: memoryview) -> Iterator[Field]:
    """(number, wire type, value) of each field: an int for varints, else its bytes. Raises
    ValueError for bytes that
    are no message."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError(f"field 0 before byte {at}")
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, kind, value
            continue
        if kind == LENGTH:
            size, at = _varint(message, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind} before byte {at}")
        if at + size > end:
            raise ValueError(f"field {number} needs {size} bytes, {end - at} are left")
        yield number, kind, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """(value below 2^64, where it ends)."""
    # Tags are one byte, lengths mostly are.
    if at < len(message) and message[at] < 0x80:
        return message[at], at + 1
    value = 0
    for index, byte in enumerate(message[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >= _WORD:
                break
            return value, at + index + 1
    raise ValueError(f"no varint of 64 bits at byte {at}")


def _floats(values: list[tuple[int, Any]]) -> NDArray[Any]:
    """Packed and single ones may be mixed: both are their bytes."""
    if any(kind not in (LENGTH, FIXED32) or len(value) % 4 for kind, value in values):
        raise ValueError("a value of a float_list is not of 4 bytes")
    return np.frombuffer(b"".join(value for _, value in values), "<f4").astype(
        np.float32, copy=False
    )


def _integers(values: list[tuple[int, Any]]) -> NDArray[Any]:
    if any(kind not in (LENGTH, VARINT) for kind, _ in values):
        raise ValueError("a value of an int64_list is not a varint")
    parts = [
        _packed_varints(value) if kind == LENGTH else _as_signed([value]) for kind, value in values
    ]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _packed_varints(message: memoryview) -> NDArray[np.int64]:
    if len(message) <= _SHORT_BYTES:
        at, listed = 0, []
        while at < len(message):
            value, at = _varint(message, at)
            listed.append(value)
        return _as_signed(listed)
    data = np.frombuffer(message, np.uint8)
    last = np.flatnonzero(data < 0x80)
    first = np.concatenate([[0], last[:-1] + 1])
    if not last.size or last[-1] != len(data) - 1:
        raise ValueError("the last varint of an int64_list does not end")
    lengths = last - first + 1
    index = np.arange(len(data)) - np.repeat(first, lengths)
    if lengths.max() > _VARINT_BYTES_MAX or (data[index == _VARINT_BYTES_MAX - 1] > 1).any():
        raise ValueError("a varint of an int64_list has more than 64 bits")
    shifted = (data & 0x7F).astype(np.uint64) << (7 * index).astype(np.uint64)
    return np.bitwise_or.reduceat(shifted, first).view(np.int64)


def _as_signed(values: list[int]) -> NDArray[np.int64]:
    return np.array([value - _WORD if value >= _HALF else value for value in values], np.int64)
