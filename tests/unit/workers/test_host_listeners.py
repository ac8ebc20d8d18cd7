"""Listeners of hosts that do not run yet."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from podyard.domain.host import HAS_HOST_ADDRESSES
from podyard.workers.host import listeners as host_listeners

pytestmark = pytest.mark.skipif(
    not HAS_HOST_ADDRESSES, reason="only on Linux have hosts addresses of their own"
)
ADDRESS = "127.213.77.5"


class Served:
    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []

    async def __call__(self, host_id: str, connection: socket.socket) -> None:
        self.said.append((host_id, await asyncio.get_running_loop().sock_recv(connection, 100)))
        connection.close()


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Two free ones in the place of 22 and 8722, so that tests need no root."""
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind((ADDRESS, 0))
        found = first.getsockname()[1], second.getsockname()[1]
    monkeypatch.setattr(host_listeners, "SSH_PORT", found[0])
    monkeypatch.setattr(host_listeners, "SSH_PORT_WITHOUT_ROOT", found[1])
    return found


@contextlib.asynccontextmanager
async def _listeners(served: Served) -> AsyncIterator[host_listeners.HostListeners]:
    listeners = host_listeners.HostListeners(served)
    try:
        yield listeners
    finally:
        listeners.close()


async def _say(port: int, *pieces: bytes) -> bytes:
    """Return what comes back, up to the end."""
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.05)
    writer.write_eof()
    answer = b""
    with contextlib.suppress(ConnectionResetError):  # what was not read is thrown away
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("pieces", "served"),
    [
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), [("one", b"SSH-2.0-OpenSSH_9.2\r\n")]),
        ((b"SS", b"H-2.0"), [("one", b"SSH-2.0")]),
        ((), []),
        ((b"GET / HTTP/1.1\r\n",), []),
        ((b"SSX",), []),
    ],
)
def test_only_a_client_that_speaks_ssh_wakes_a_host(
    ports: tuple[int, int], pieces: tuple[bytes, ...], served: list[tuple[str, bytes]]
) -> None:
    found = Served()

    async def play() -> None:
        async with _listeners(found) as listeners:
            listeners.follow({"one": ADDRESS})
            assert listeners.find("one") == (ADDRESS, ports[0])
            await _say(ports[0], *pieces)

    asyncio.run(asyncio.wait_for(play(), 20))
    assert found.said == served


def test_a_taken_port_is_named_and_the_other_one_is_used(ports: tuple[int, int]) -> None:
    async def play() -> None:
        async with _listeners(Served()) as listeners:
            with socket.create_server((ADDRESS, ports[0])):
                listeners.follow({"one": ADDRESS})
                assert listeners.find("one") == (ADDRESS, ports[1])
                assert listeners.problems() == {
                    "one": f"cannot listen on {ADDRESS}:{ports[0]}: Address already in use"
                }
                listeners.follow({})
                with socket.create_server((ADDRESS, ports[1])):
                    listeners.follow({"one": ADDRESS})
                    assert (listeners.find("one"), list(listeners.problems())) == (None, ["one"])
            listeners.follow({"one": ADDRESS})
            assert (listeners.find("one"), listeners.problems()) == ((ADDRESS, ports[0]), {})
            listeners.follow({})
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(ADDRESS, ports[0])

    asyncio.run(asyncio.wait_for(play(), 20))


def test_a_connection_is_passed_on_to_another_agent_s_host(ports: tuple[int, int]) -> None:
    async def play() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"heard " + await reader.read())
            writer.close()

        server = await asyncio.start_server(answer, ADDRESS, ports[1])

        async def serve(_host_id: str, connection: socket.socket) -> None:
            await host_listeners.forward(connection, ADDRESS, ports[1])

        listeners = host_listeners.HostListeners(serve)
        listeners.follow({"one": ADDRESS})
        answered = await _say(ports[0], b"SSH-2.0")
        listeners.close()
        server.close()
        return answered

    assert asyncio.run(asyncio.wait_for(play(), 20)) == b"heard SSH-2.0"
