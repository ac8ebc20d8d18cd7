"""The listener where Cloud TPU shows TensorFlow's port (8470): a gRPC server that says that there
is none.

A client that connects there would otherwise wait or see a refused connection, and look for the
mistake at its own end. Each call is answered with UNIMPLEMENTED. That needs so little of HTTP/2
(RFC 9113) and HPACK (RFC 7541) that no library is loaded for it: requests are not even read beyond
their frames' heads.
"""

from __future__ import annotations

import asyncio
import contextlib

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MESSAGE = (
    "Podyard emulates no TensorFlow runtime: nothing runs behind port 8470. "
    "Use the TPU VM way: run JAX or PyTorch on the host itself."
)
IDLE_SECONDS_MAX = 60.0  # a connection on which nothing is asked
FRAME_BYTES_MAX = 16_384  # HTTP/2's own limit while nobody agrees on another
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_UNIMPLEMENTED = "12"


def _literal(name: bytes, value: bytes) -> bytes:
    """A header as HPACK's literal without indexing and without Huffman; both lengths below 127 are
    one byte."""
    return b"\x00" + _string(name) + _string(value)


def _string(data: bytes) -> bytes:
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest = len(data) - 127
    assert rest < 128, "a longer length needs more bytes"
    return bytes([127, rest]) + data


# `:status: 200` is number 8 of HPACK's static table. gRPC percent-encodes messages; ours has
# nothing to encode.
_ANSWER = b"".join(
    (
        b"\x88",
        _literal(b"content-type", b"application/grpc"),
        _literal(b"grpc-status", _UNIMPLEMENTED.encode()),
        _literal(b"grpc-message", MESSAGE.encode()),
    )
)


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every call on one connection."""
    try:
        async with asyncio.timeout(IDLE_SECONDS_MAX):
            if await reader.readexactly(len(PREFACE)) == PREFACE:
                writer.write(_frame(_SETTINGS, 0, 0, b""))
                await _answer_frames(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _answer_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = await reader.readexactly(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        if size > FRAME_BYTES_MAX:
            return
        payload = await reader.readexactly(size)
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _HEADERS:
            writer.write(_frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, _ANSWER))
        await writer.drain()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )
