"""A serialized HLO module without what differs from one trace of a function to the next: names with
numbers, the lines of the program, and the order of maps. Field numbers are those of
xla/service/hlo.proto."""

from __future__ import annotations

from podyard.base.protobuf import varint
from podyard.engine.training.input.example import FIXED32, FIXED64, LENGTH, VARINT, fields

_MODULE_NAME, _ENTRY_NAME, _COMPUTATIONS, _MODULE_ID, _STACK_FRAMES = 1, 2, 3, 5, 17
_COMPUTATION_NAME, _INSTRUCTIONS = 1, 2
_METADATA, _ATTRIBUTES = 7, 68  # of an instruction
_FIXED = (FIXED32, FIXED64)


def without_traces(module: bytes) -> bytes:
    """Return the same module without them. Raises ValueError for bytes that are no message."""
    parts = list[bytes]()
    computations = 0
    for number, kind, value in fields(memoryview(module)):
        if number == _COMPUTATIONS:
            parts.append(_bytes(number, _computation(value, f"computation.{computations}")))
            computations += 1
        elif number in (_MODULE_NAME, _ENTRY_NAME):
            parts.append(_bytes(number, b"module"))
        elif number not in (_MODULE_ID, _STACK_FRAMES):
            parts.append(_field(number, kind, value))
    return b"".join(parts)


def _computation(message: memoryview, name: str) -> bytes:
    parts = list[bytes]()
    for number, kind, value in fields(message):
        if number == _COMPUTATION_NAME:
            parts.append(_bytes(number, name.encode()))
        elif number == _INSTRUCTIONS:
            parts.append(_bytes(number, _instruction(value)))
        else:
            parts.append(_field(number, kind, value))
    return b"".join(parts)


def _instruction(message: memoryview) -> bytes:
    parts = list[bytes]()
    for number, kind, value in fields(message):
        if number == _ATTRIBUTES:
            parts.append(_bytes(number, b"".join(sorted(_field(*one) for one in fields(value)))))
        elif number != _METADATA:
            parts.append(_field(number, kind, value))
    return b"".join(parts)


def _field(number: int, kind: int, value: int | memoryview) -> bytes:
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    if kind in _FIXED:
        return varint(number << 3 | kind) + bytes(value)
    return _bytes(number, value)


def _bytes(number: int, value: bytes | memoryview) -> bytes:
    return varint(number << 3 | LENGTH) + varint(len(value)) + bytes(value)
