"""Connections into a box and out of it: what is dialled over ssh -L, and the API, which a box
reaches here."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from podyard.domain.host import NodeFacts
from podyard.settings import BOX_NETWORK_ANY
from podyard.workers.box.box import Box
from podyard.workers.box.plan import api_inside, names_of

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 << 10
# connections of one box to the API at once: more than its programs need, few of this process's
# files
RELAYED_MAX = 256
DIAL_SECONDS_MAX = 20.0
HEAD_BYTES_MAX = 16 << 10  # of a request to the proxy: what clients send is below 1 KiB


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


async def dial(box: Box, facts: NodeFacts, host: str, port: int) -> socket.socket:
    """A connection to what listens in the box, or in its slice: names are those of the box. Raises
    OSError; a TimeoutError is one."""
    found = await asyncio.to_thread(box.make_socket)
    try:
        found.setblocking(False)
        async with asyncio.timeout(DIAL_SECONDS_MAX):
            await asyncio.get_running_loop().sock_connect(
                found, (names_of(facts).get(host, host), port)
            )
    except BaseException:
        found.close()
        raise
    return found


async def join_socket(there: socket.socket, reader: Source, writer: Sink) -> None:
    """Joins a connection with one that `dial` has made."""
    there_reader, there_writer = await asyncio.open_connection(sock=there)
    await join(reader, writer, there_reader, there_writer)


async def proxy(listener: socket.socket, network: str) -> asyncio.Server:
    """The way out of a box, where the yard allows one: an HTTP proxy, which TLS passes unread
    (CONNECT)."""
    passed = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal passed
        passed += 1
        try:
            async with asyncio.timeout(DIAL_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                host, port, first_line = _ask(head)
                address = (
                    None if passed > RELAYED_MAX else await _address_outside(host, port, network)
                )
                if address is None:
                    text = f"{host} cannot be reached from boxes (PODYARD_BOX_NETWORK={network})\n"
                    answer = (
                        "HTTP/1.1 403 Forbidden\r\nContent-Length: "
                        f"{len(text)}\r\nConnection: "
                        f"close\r\n\r\n{text}"
                    )
                    writer.write(answer.encode())
                    return await writer.drain()
                there_reader, there_writer = await asyncio.open_connection(address, port)
            if first_line is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there_writer.write(first_line + _headers_for_origin(head))
            await join(reader, writer, there_reader, there_writer)
        except (
            OSError,
            ValueError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            logger.info("a request of a box for the outside failed: %s", error)
        finally:
            passed -= 1
            writer.close()
        return None

    return await asyncio.start_server(serve, sock=listener, limit=HEAD_BYTES_MAX)


def _ask(head: bytes) -> tuple[str, int, bytes | None]:
    """(host, port, first line for the origin server or, of CONNECT, None). Raises ValueError."""
    method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    if method == "CONNECT":
        parts = urlsplit(f"//{target}")
        return parts.hostname or "", parts.port or 443, None
    parts = urlsplit(target)
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return parts.hostname or "", parts.port or 80, f"{method} {path} {version}\r\n".encode()


def _headers_for_origin(head: bytes) -> bytes:
    """One request a connection: what follows might be for another host."""
    lines = head.split(b"\r\n")[1:-2]
    kept = [
        line
        for line in lines
        if not line.lower().startswith((b"proxy-", b"connection:", b"keep-alive:"))
    ]
    return b"".join(line + b"\r\n" for line in (*kept, b"Connection: close")) + b"\r\n"


async def _address_outside(host: str, port: int, network: str) -> str | None:
    """The first address of a name that boxes may reach: never one of this machine."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for address in (str(item[4][0]) for item in found):
        one = ipaddress.ip_address(address.partition("%")[0])
        inside = (
            one.is_loopback
            or one.is_unspecified
            or one.is_link_local
            or one.is_multicast
            or _is_ours(address)
        )
        if not inside and (network == BOX_NETWORK_ANY or one.is_global):
            return address
    return None


def _is_ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


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
