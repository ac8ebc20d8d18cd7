"""The encoding of protocol buffers, as far as messages are written here."""

from __future__ import annotations

_BYTES = 2  # the wire type of texts, bytes and messages


def varint(value: int) -> bytes:
    """Return a number as a varint. Raises ValueError for a negative one."""
    if value < 0:
        raise ValueError(f"a varint is not negative here, got {value}")
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def number_field(number: int, value: int) -> bytes:
    """Return the field `number` with a whole number, a truth value or an element of an enum."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, data: bytes) -> bytes:
    """Return the field `number` with a text, bytes or a message."""
    return varint(number << 3 | _BYTES) + varint(len(data)) + data
