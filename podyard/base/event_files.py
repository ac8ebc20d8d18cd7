"""TensorBoard's event files: TFRecords of the protobuf messages Event and Summary, as far as curves
need them.

tensorflow/core/util/event.proto: wall_time 1 (double), step 2 (int64), file_version 3, summary 5,
session_log 7; summary.proto: value 1 {tag 1, simple_value 2 (float), tensor 8}; tensor.proto: dtype
1, tensor_content 4, float_val 5, double_val 6, int_val 7, int64_val 10.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import google_crc32c

from podyard.base.protobuf import bytes_field, number_field

MARK = ".tfevents."  # in the name of every event file
_MASK_DELTA = 0xA282EAD8
_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
# of one with a scalar; larger ones hold images and graphs, and are passed over
_RECORD_BYTES_MAX = 1 << 20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TENSOR_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # by DataType


class Scalar(NamedTuple):
    step: int
    tag: str
    value: float


def first_record(wall_time: float) -> bytes:
    """Return what every file begins with."""
    return _record(_event(wall_time, 0, bytes_field(3, b"brain.Event:2")))


def restart_record(wall_time: float, step: int) -> bytes:
    """A run begins again with this step: what an earlier file says of it and later ones no longer
    counts."""
    return _record(_event(wall_time, step, bytes_field(7, number_field(1, 1))))


def scalar_record(wall_time: float, step: int, values: Mapping[str, float]) -> bytes:
    found = b"".join(
        bytes_field(1, bytes_field(1, tag.encode()) + b"\x15" + _FLOAT.pack(value))
        for tag, value in values.items()
    )
    return _record(_event(wall_time, step, bytes_field(5, found)))


def scalars(data: bytes) -> Iterator[Scalar]:
    """Those of a file, as far as it goes: the last record may still be written, and nothing follows
    a damaged one."""
    at = 0
    while at + _LENGTH.size + _CRC.size <= len(data):
        (length,), head = _LENGTH.unpack_from(data, at), data[at : at + _LENGTH.size]
        start = at + _LENGTH.size + _CRC.size
        at = start + length + _CRC.size
        if at > len(data) or _CRC.unpack_from(data, start - _CRC.size)[0] != _masked_crc(head):
            return
        if length <= _RECORD_BYTES_MAX:
            record = data[start : start + length]
            if _CRC.unpack_from(data, start + length)[0] != _masked_crc(record):
                return
            try:
                yield from _scalars_of(record)
            except (ValueError, struct.error, IndexError):
                return


def _scalars_of(record: bytes) -> Iterator[Scalar]:
    step, summaries = 0, []
    for number, kind, value in _fields(record):
        if (number, kind) == (2, _VARINT):
            step = int.from_bytes(value, "little")
        elif (number, kind) == (5, _BYTES):
            summaries.append(value)
    for summary in summaries:
        for number, kind, value in _fields(summary):
            if (number, kind) == (1, _BYTES):
                tag, found = _value(value)
                if found is not None and math.isfinite(found) and tag and step < 2**31:
                    yield Scalar(step, tag, found)


def _value(message: bytes) -> tuple[str, float | None]:
    tag, found = "", None
    for number, kind, value in _fields(message):
        if (number, kind) == (1, _BYTES):
            tag = value.decode(errors="replace")
        elif (number, kind) == (2, _FIXED32):
            found = _FLOAT.unpack(value)[0]
        elif (number, kind) == (8, _BYTES):
            found = _tensor(value)
    return tag, found


def _tensor(message: bytes) -> float | None:
    """The one element of a tensor; None for larger ones."""
    form, content, listed = None, b"", b""
    for number, kind, value in _fields(message):
        if (number, kind) == (1, _VARINT):
            form = _TENSOR_FORMS.get(int.from_bytes(value, "little"))
        elif (number, kind) == (4, _BYTES):
            content = value
        elif number in (5, 6) and kind in (_BYTES, _FIXED32, _FIXED64):
            listed = value
        elif number in (7, 10) and kind == _VARINT:
            return float(int.from_bytes(value, "little"))
    data = content or listed
    if form is None or len(data) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, data)[0])


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, wire type, bytes) of a message's fields; of a varint its value as bytes, little
    endian.

    Raises ValueError or IndexError for other bytes.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, kind, value.to_bytes(10, "little")
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("the message ends within a field")
        yield number, kind, message[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint is too long")


def _record(data: bytes) -> bytes:
    head = _LENGTH.pack(len(data))
    return head + _CRC.pack(_masked_crc(head)) + data + _CRC.pack(_masked_crc(data))


def _masked_crc(data: bytes) -> int:
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _event(wall_time: float, step: int, rest: bytes) -> bytes:
    return b"\x09" + _DOUBLE.pack(wall_time) + number_field(2, step) + rest
