"""The ssh listeners of hosts that may not run yet: the first connection makes the host, and is then
served by it.

A listener is one socket on the host's own address, so that the 512 hosts of a v4-4096 cost some
milliseconds and no process. A connection counts once its client has said "SSH-": a port scan wakes
no host.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

from podyard.domain.host import SSH_PORT, SSH_PORT_WITHOUT_ROOT
from podyard.workers.box.network import join
from podyard.workers.host.addresses import bind

logger = logging.getLogger(__name__)

GREETING = b"SSH-"
# for a client that connects and says nothing, as long as sshd's own login time
GREETING_SECONDS_MAX = 20.0
# at once: sixteen for each host of a v4-4096, within the files that the process may open
CONNECTIONS_MAX = 8192
TAKEN_NAMED_MAX = 100  # as many as the API takes: the first hundred say enough

# serves one connection of the host of this id, to its end
Serve = Callable[[str, socket.socket], Awaitable[None]]


class HostListeners:
    """The listeners of one machine. `addresses`: where each host listens, by its id."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._open: dict[str, tuple[str, socket.socket]] = {}
        self._taken: dict[str, str] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    def follow(self, addresses: Mapping[str, str]) -> None:
        """Opens and closes listeners, so that these hosts have one and no other."""
        for host_id in [
            host_id
            for host_id, (address, _) in self._open.items()
            if addresses.get(host_id) != address
        ]:
            self._close(host_id)
        self._taken = {
            host_id: text for host_id, text in self._taken.items() if host_id in addresses
        }
        for host_id, address in addresses.items():
            if host_id not in self._open:
                self._listen(host_id, address)

    def find(self, host_id: str) -> tuple[str, int] | None:
        """(address, port) of a host's listener; None when it has none."""
        if host_id not in self._open:
            return None
        address, listener = self._open[host_id]
        return address, int(listener.getsockname()[1])

    def problems(self) -> dict[str, str]:
        """Return what keeps hosts from listening where gcloud looks for them, of the first
        `TAKEN_NAMED_MAX`."""
        return dict(sorted(self._taken.items())[:TAKEN_NAMED_MAX])

    def close(self) -> None:
        for host_id in list(self._open):
            self._close(host_id)
        for task in self._waiting:
            task.cancel()

    def _listen(self, host_id: str, address: str) -> None:
        problem, listener = "", None
        for port in (SSH_PORT, SSH_PORT_WITHOUT_ROOT):
            try:
                listener = bind(address, (port,))
                break
            except OSError as error:
                # An ordinary user may not open port 22, as everybody knows. Another program there
                # is a problem: it gets the connections of gcloud.
                if port != SSH_PORT or error.errno == errno.EADDRINUSE:
                    problem = f"cannot listen on {address}:{port}: {error.strerror}"
        if problem and host_id not in self._taken:
            logger.warning("ssh to host %s: %s", host_id, problem)
        self._taken.pop(host_id, None)
        if problem:
            self._taken[host_id] = problem
        if listener is None:
            return
        self._open[host_id] = (address, listener)
        asyncio.get_running_loop().add_reader(listener, self._accept, host_id, listener)

    def _close(self, host_id: str) -> None:
        _, listener = self._open.pop(host_id)
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()

    def _accept(self, host_id: str, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client has gone
        if len(self._waiting) >= CONNECTIONS_MAX:
            connection.close()
            return
        connection.setblocking(False)
        task = asyncio.ensure_future(self._welcome(host_id, connection))
        self._waiting.add(task)
        task.add_done_callback(self._on_end)

    async def _welcome(self, host_id: str, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(GREETING_SECONDS_MAX):
                speaks_ssh = await _greets(connection)
        except (OSError, TimeoutError):
            speaks_ssh = False
        if not speaks_ssh:
            connection.close()
            return
        await self._serve(host_id, connection)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a connection to a host failed", exc_info=task.exception())


async def _greets(connection: socket.socket) -> bool:
    """Return whether the client begins as ssh does; what it has said stays to be read."""
    loop = asyncio.get_running_loop()
    while True:
        readable = loop.create_future()
        loop.add_reader(connection, readable.set_result, None)
        try:
            await readable
        finally:
            loop.remove_reader(connection)
        begun = connection.recv(len(GREETING), socket.MSG_PEEK)
        if len(begun) == len(GREETING) or not GREETING.startswith(begun) or not begun:
            return begun == GREETING
        await asyncio.sleep(0.01)  # half a greeting stays readable


async def forward(connection: socket.socket, address: str, port: int) -> None:
    """Passes a connection on to the ssh server of a host that another agent runs."""
    try:
        there_reader, there_writer = await asyncio.open_connection(address, port)
    except OSError as error:
        logger.warning("%s:%s does not answer: %s", address, port, error)
        connection.close()
        return
    here_reader, here_writer = await asyncio.open_connection(sock=connection)
    await join(here_reader, here_writer, there_reader, there_writer)
