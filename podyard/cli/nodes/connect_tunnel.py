"""The local ports of `podyard connect`: each connection goes through a tunnel of its own to the
door."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import cast

from typing_extensions import override

from podyard.domain.host import SSH_PORT, SSH_PORT_WITHOUT_ROOT
from podyard.http.door_tunnel import DoorTarget
from podyard.http.splice import End, WaitingEnd

BACKLOG = 512  # an `ssh --worker=all` to the hosts of a v4-4096
_GREETING = b"SSH-"
_ADDRESS_BYTES_MAX = 64


class _Greeted(WaitingEnd):
    """A client's end that leads nowhere before the client has said `greeting`, or a line with an
    address."""

    def __init__(self, connect: Callable[[str, End], object], wants_line: bool) -> None:
        super().__init__(self._go)
        self._begin = connect
        self._wants_line = wants_line
        self._said = b""
        self._address = ""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._said += data
        if self._wants_line:
            line, end, rest = self._said.partition(b"\n")
            if end:
                self._address, self._said = line.decode("ascii", "replace").strip(), rest
                super().connection_made(self.transport)
            elif len(line) > _ADDRESS_BYTES_MAX:
                self.transport.close()
        elif self._said.startswith(_GREETING):
            super().connection_made(self.transport)
        elif not _GREETING.startswith(self._said):
            self.transport.close()

    @override
    def join(self, other: End) -> None:
        if self._said:
            other.transport.write(self._said)
        super().join(other)

    async def _go(self, _client: WaitingEnd) -> None:
        result = self._begin(self._address, self)
        assert asyncio.iscoroutine(result)
        await result


class LocalPorts:
    """The listening sockets on this machine."""

    def __init__(self, door: DoorTarget) -> None:
        self._door = door
        self._servers: list[asyncio.Server] = []
        self._hosts: dict[str, asyncio.Server] = {}
        self.ssh_port = SSH_PORT
        self.problem = ""  # the first address on which no host can listen, and why

    async def serve(self, listeners: Mapping[str, socket.socket]) -> None:
        """`listeners`: by target."""
        loop = asyncio.get_running_loop()
        for target, listener in listeners.items():

            def client(target: str = target) -> WaitingEnd:
                return WaitingEnd(lambda end: self._door.join(end, target))

            self._servers.append(await loop.create_server(client, sock=listener))

    async def serve_socket(self, path: str) -> None:
        """Takes an address and leads to its host: for `podyard ssh connect`."""

        def client() -> WaitingEnd:
            return _Greeted(
                lambda address, end: self._door.join(end, "host", address), wants_line=True
            )

        self._servers.append(await asyncio.get_running_loop().create_unix_server(client, path))

    async def follow(self, addresses: set[str]) -> None:
        """Opens and closes the listeners of hosts, so that these have one and no other."""
        for address in self._hosts.keys() - addresses:
            self._hosts.pop(address).close()
        for address in sorted(addresses - self._hosts.keys()):
            try:
                self._hosts[address] = await self._listen(address)
            except OSError as error:
                self.problem = self.problem or f"{address}:{self.ssh_port}: {error.strerror}"

    def close(self) -> None:
        for server in (*self._servers, *self._hosts.values()):
            server.close()

    async def _listen(self, address: str) -> asyncio.Server:
        def client() -> WaitingEnd:
            return _Greeted(lambda _, end: self._door.join(end, "host", address), wants_line=False)

        loop = asyncio.get_running_loop()
        if self.ssh_port == SSH_PORT:
            try:
                return await loop.create_server(client, address, SSH_PORT, backlog=BACKLOG)
            except OSError:
                if self._hosts:
                    raise
                # for all of them, as ~/.ssh/config has one port
                self.ssh_port = SSH_PORT_WITHOUT_ROOT
        return await loop.create_server(client, address, self.ssh_port, backlog=BACKLOG)
