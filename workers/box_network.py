"""Connections into a box and out of it: what is dialled over ssh -L, and the API, which a box reaches here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Protocol
from urllib.parse import urlsplit

from podyard.domain.host import NodeFacts
from podyard.workers.box import Box
from podyard.workers.box_plan import api_inside, names_of

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 << 10
RELAYED_MAX = 256  # connections of one box to the API at once: more than its programs need, few of this process's files
DIAL_SECONDS_MAX = 20.0


class Source(Protocol):
    async def read(self, n: int) -> bytes: ...


class Sink(Protocol):
    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...
    async def drain(self) -> None: ...


async def copy(reader: Source, writer: Sink) -> None:
    """What comes, until its end or that of the other side."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def join(reader: Source, writer: Sink, there_reader: Source, there_writer: Sink) -> None:
    """Two connections as one, until both directions are over."""
    try:
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
    finally:
        writer.close()
        there_writer.close()


async def dial(box: Box, facts: NodeFacts, host: str, port: int, reader: Source, writer: Sink) -> None:
    """Joins a connection to what listens in the box, or in its slice: names are those of the box."""
    found = box.make_socket()
    found.setblocking(False)
    try:
        async with asyncio.timeout(DIAL_SECONDS_MAX):
            await asyncio.get_running_loop().sock_connect(found, (names_of(facts).get(host, host), port))
        there_reader, there_writer = await asyncio.open_connection(sock=found)
    except (OSError, TimeoutError) as error:
        logger.info("%s:%s does not answer in the box: %s", host, port, error)
        found.close()
        writer.close()
        return
    await join(reader, writer, there_reader, there_writer)


async def relay(listener: socket.socket, url: str) -> asyncio.Server:
    """Passes on what connects to `listener`, in a box, to the platform's API."""
    host, port = urlsplit(url).hostname or "localhost", api_inside(url)[1]
    joined = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal joined
        if joined >= RELAYED_MAX:
            return writer.close()
        joined += 1
        try:
            there_reader, there_writer = await asyncio.open_connection(host, port)
            await join(reader, writer, there_reader, there_writer)
        except OSError as error:
            logger.warning("the API does not answer a box: %s", error)
            writer.close()
        finally:
            joined -= 1
        return None

    return await asyncio.start_server(serve, sock=listener)
