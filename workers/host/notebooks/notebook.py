"""The notebook of a host: JupyterLab, which the first request with the host's token starts.

The host server passes connections on and reads none of them, except the first request while
JupyterLab does not run: a port scan starts nothing. JupyterLab is a process of the host, found by
its record and its environment, and ends with the host.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from podyard.base.clock import RealClock
from podyard.base.files import read_json, write_atomically
from podyard.domain.host import LOOPBACK
from podyard.workers.box.network import HEAD_BYTES_MAX, Sink, Source, join
from podyard.workers.host.notebooks import launch
from podyard.workers.host.scripts import USERS_UMASK, HostProcesses

logger = logging.getLogger(__name__)

START_SECONDS_MAX = 120.0  # it takes 3 s on an idle machine
HEAD_SECONDS_MAX = 20.0  # for a client that connects and says nothing, as at the ssh listener
CONNECTIONS_MAX = 256  # a browser has six and a websocket for each open notebook
_POLL_SECONDS = 0.1
_LOG_BYTES_SHOWN = 2000
_PORT_FILE, _LOG_FILE = "notebook.json", "notebook.log"


class HeadReader(Source, Protocol):
    async def readuntil(self, separator: bytes) -> bytes: ...


class Notebook:
    """The way to the JupyterLab of one host. `environment` is called when it starts."""

    def __init__(
        self,
        folder: Path,
        token: str,
        processes: HostProcesses,
        environment: Callable[[], Mapping[str, str]],
        clock: RealClock,
    ) -> None:
        self._folder = folder
        self._token = token
        self._processes = processes
        self._environment = environment
        self._clock = clock
        self._box = processes.box
        self._connections = 0
        self._starting = asyncio.Lock()

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        return await asyncio.start_server(self.serve, sock=listener, limit=HEAD_BYTES_MAX)

    async def serve(self, reader: HeadReader, writer: Sink) -> None:
        """Join one connection with JupyterLab."""
        if self._connections >= CONNECTIONS_MAX:
            return writer.close()
        self._connections += 1
        try:
            await self._serve(reader, writer)
        except (
            OSError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            logger.info("a connection to a notebook ended: %s", error)
        finally:
            self._connections -= 1
            writer.close()
        return None

    async def _serve(self, reader: HeadReader, writer: Sink) -> None:
        there, head = await self._connect(), b""
        if there is None:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
            # A browser opens connections ahead: it may have started meanwhile.
            there = await self._connect()
        if there is None:
            if self._token.encode() not in head:
                return await _answer(
                    writer, "403 Forbidden", "Open the notebook from the node's page in the "
                    "console, or with `podyard tpu notebook NODE`: this address has no valid token"
                )  # fmt: skip
            async with self._starting:
                try:
                    there = await self._connect() or await self._start()
                except OSError as error:
                    return await _answer(writer, "503 Service Unavailable", str(error))
        there_reader, there_writer = await asyncio.open_connection(sock=there)
        there_writer.write(head)
        await join(reader, writer, there_reader, there_writer)
        return None

    async def _connect(self) -> socket.socket | None:
        """A connection to the JupyterLab that runs; None without one."""
        port = read_json(self._folder / _PORT_FILE).get("port")
        if not isinstance(port, int):
            return None
        client = await asyncio.to_thread(self._make_socket)
        try:
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, (LOOPBACK, port))
        except OSError:
            client.close()
            return None
        return client

    async def _start(self) -> socket.socket:
        """Start JupyterLab and return a connection. Raises OSError with the reason if it fails."""
        port = await asyncio.to_thread(self._find_port)
        command = [sys.executable, "-I", launch.__file__, str(port)]
        cwd = self._folder / "home"
        if self._box is not None:
            command, cwd = self._box.enter(command), Path("/")
        log = self._folder / _LOG_FILE
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=cwd, env={**self._environment(), "JUPYTER_TOKEN": self._token},
                start_new_session=True, umask=USERS_UMASK, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._processes.record_session(f"notebook-{process.pid}", process.pid)
        write_atomically(self._folder / _PORT_FILE, f'{{"port": {port}}}'.encode())
        deadline = self._clock.monotonic_seconds() + START_SECONDS_MAX
        while process.poll() is None and self._clock.monotonic_seconds() < deadline:
            client = await self._connect()
            if client is not None:
                return client
            await asyncio.sleep(_POLL_SECONDS)
        with log.open("rb") as written:
            text = written.read()[-_LOG_BYTES_SHOWN:].decode(errors="replace").strip()
        if process.returncode == launch.EXIT_MISSING:
            raise OSError(text)
        raise OSError(f"JupyterLab did not start on this host; its last lines:\n{text}")

    def _find_port(self) -> int:
        with self._make_socket() as probe:
            probe.bind((LOOPBACK, 0))
            return int(probe.getsockname()[1])

    def _make_socket(self) -> socket.socket:
        if self._box is not None:
            return self._box.make_socket()
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)


async def _answer(writer: Sink, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
