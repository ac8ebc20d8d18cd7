"""Frames of the relay protocol (`relay.tunnel.cloudproxy.app`, version 4): what a binary message of
the websocket holds. Read from gcloud 528. Pure."""

from __future__ import annotations

import dataclasses
import struct
from enum import IntEnum

SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
DATA_BYTES_MAX = 16 << 10  # of one frame
MESSAGE_BYTES_MAX = DATA_BYTES_MAX + 64  # what follows a frame is left unread
_TAG, _LENGTH, _COUNT = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")


class FrameTag(IntEnum):
    CONNECT_SUCCESS_SID = 1
    RECONNECT_SUCCESS_ACK = 2
    DATA = 4
    ACK = 7


class CloseCode(IntEnum):
    """Reasons for the end of a websocket, as Google's relay gives them."""

    NORMAL = 1000
    SID_UNKNOWN = 4001
    FAILED_TO_CONNECT_TO_BACKEND = 4003
    REAUTHENTICATION_REQUIRED = 4004
    BAD_ACK = 4005
    INVALID_WEBSOCKET_OPCODE = 4007
    INVALID_DATA = 4013
    NOT_AUTHORIZED = 4033
    LOOKUP_FAILED = 4047


class FrameError(Exception):
    """A message that cannot be read; `code` closes the websocket."""

    def __init__(self, code: CloseCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True, slots=True)
class DataFrame:
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class AckFrame:
    """`count`: all bytes that the sender has received so far."""

    count: int


def read(message: bytes) -> DataFrame | AckFrame | None:
    """Return the frame that a client sent; None for a tag that later versions may have.

    Raises FrameError for one that is cut or too long.
    """
    try:
        (tag,) = _TAG.unpack_from(message)
        if tag == FrameTag.ACK:
            return AckFrame(_COUNT.unpack_from(message, _TAG.size)[0])
        if tag != FrameTag.DATA:
            return None
        (length,) = _LENGTH.unpack_from(message, _TAG.size)
    except struct.error:
        raise FrameError(CloseCode.INVALID_DATA, "the frame is cut") from None
    begin = _TAG.size + _LENGTH.size
    if length > DATA_BYTES_MAX or len(message) < begin + length:
        text = f"a data frame of {length} bytes in a message of {len(message)}"
        raise FrameError(CloseCode.INVALID_DATA, text)
    return DataFrame(message[begin : begin + length])


def connect_frame(sid: str) -> bytes:
    name = sid.encode()
    return _TAG.pack(FrameTag.CONNECT_SUCCESS_SID) + _LENGTH.pack(len(name)) + name


def reconnect_frame(count: int) -> bytes:
    return _TAG.pack(FrameTag.RECONNECT_SUCCESS_ACK) + _COUNT.pack(count)


def data_frame(piece: bytes) -> bytes:
    """`piece`: at most DATA_BYTES_MAX bytes."""
    assert len(piece) <= DATA_BYTES_MAX
    return _TAG.pack(FrameTag.DATA) + _LENGTH.pack(len(piece)) + piece


def ack_frame(count: int) -> bytes:
    return _TAG.pack(FrameTag.ACK) + _COUNT.pack(count)
