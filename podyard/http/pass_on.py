"""Passes HTTP requests on to another server on loopback, and its answers back, as they come:
objects may be large."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import h11

HEAD_BYTES_MAX = 64 << 10
IDLE_SECONDS_MAX = 300.0  # of an open connection without a request, as the HTTP server's
READ_BYTES = 256 << 10
_OF_ONE_HOP = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"te", b"upgrade", b"proxy-authorization"}
)

Headers = Sequence[tuple[bytes, bytes]]


async def next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    """Raises TimeoutError for a connection on which nothing comes."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        async with asyncio.timeout(IDLE_SECONDS_MAX):
            data = await reader.read(READ_BYTES)
        if connection.their_role is h11.CLIENT and connection.their_state is h11.IDLE:
            # TensorFlow says so, which HTTP/1.1 knows no more (RFC 9112, section 7) and h11
            # refuses.
            head, end, rest = data.partition(b"\r\n\r\n")
            data = head.replace(b"\r\nTransfer-Encoding: identity", b"") + end + rest
        connection.receive_data(data)
    return event


async def pass_on(
    connection: h11.Connection,
    request: h11.Request,
    address: tuple[str, int],
    path: str,
    headers: Headers,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    """One request, which `connection` has begun to read. Whether the connection can go on. Raises
    OSError."""
    there = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    there_reader, there_writer = await asyncio.open_connection(*address)
    try:
        left_out = {b"expect", *_OF_ONE_HOP}
        if any(name == b"transfer-encoding" for name, _ in headers):
            left_out.add(b"content-length")  # TensorFlow says both
        kept = [(name, value) for name, value in headers if name not in left_out]
        there_writer.write(
            there.send(h11.Request(method=request.method, target=path, headers=kept)) or b""
        )
        if connection.they_are_waiting_for_100_continue:
            writer.write(
                connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
            )
        while True:
            event = await next_event(connection, reader)
            if isinstance(event, h11.ConnectionClosed):
                return False
            there_writer.write(there.send(event) or b"")
            await there_writer.drain()
            if isinstance(event, h11.EndOfMessage):
                break
        while not isinstance(event := await next_event(there, there_reader), h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                # TensorFlow knows `Location` by this spelling only.
                kept = [
                    (name.title(), value)
                    for name, value in event.headers
                    if name not in _OF_ONE_HOP
                ]
                event = h11.Response(
                    status_code=event.status_code, headers=kept, reason=event.reason
                )
            writer.write(connection.send(event) or b"")
            await writer.drain()
            if isinstance(event, h11.EndOfMessage):
                break
    finally:
        there_writer.close()
    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
        return False
    connection.start_next_cycle()
    return True
