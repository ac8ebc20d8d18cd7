"""The relay protocol of tunnels: its frames, and a tunnel over websockets that come and go."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Event, Request

from podyard.api.iap import frames, relay
from podyard.api.iap.frames import AckFrame, CloseCode, DataFrame, FrameError
from podyard.api.iap.relay import Backend, Relay, Relays
from podyard.api.iap.websocket import WebSocket


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (frames.data_frame(b"abc"), DataFrame(b"abc")),
        (frames.data_frame(b"abc") + b"more", DataFrame(b"abc")),
        (frames.data_frame(b""), DataFrame(b"")),
        (frames.ack_frame(2**63), AckFrame(2**63)),
        (struct.pack(">HI", 9, 1), None),
    ],
)
def test_frames_are_read(message: bytes, frame: object) -> None:
    assert frames.read(message) == frame


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x00", struct.pack(">H", 4), struct.pack(">HI", 4, 5) + b"abc",
        struct.pack(">HI", 7, 1), struct.pack(">HI", 4, frames.DATA_BYTES_MAX + 1) + bytes(20_000),
    ],
)  # fmt: skip
def test_frames_that_are_cut_or_too_long_are_refused(message: bytes) -> None:
    with pytest.raises(FrameError) as raised:
        frames.read(message)
    assert raised.value.code is CloseCode.INVALID_DATA


class Pipe(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class CarriedClient:
    """A client whose websocket is carried by a relay."""

    def __init__(self, tunnel: Relay, count: int | None = None, *, has_left: bool = False) -> None:
        self._protocol = WSConnection(ConnectionType.CLIENT)
        asked = self._protocol.send(Request("host", "/", subprotocols=[frames.SUBPROTOCOL]))
        headers = [
            (name.strip(), value.strip())
            for name, _, value in (line.partition(b":") for line in asked.split(b"\r\n")[1:-2])
        ]
        self.socket = WebSocket(headers, "/", frames.MESSAGE_BYTES_MAX)
        self._pipe = Pipe()
        self._pipe.write(self.socket.accept(frames.SUBPROTOCOL))
        self._pipe.is_closed = has_left
        self.socket.connection_made(self._pipe)
        self.serving = asyncio.ensure_future(tunnel.serve(self.socket, count))

    def send(self, message: bytes) -> None:
        self.socket.data_received(self._protocol.send(BytesMessage(data=message)))

    def close(self) -> None:
        self.socket.data_received(self._protocol.send(CloseConnection(code=1000)))

    def drop(self) -> None:
        self.socket.connection_lost(None)

    async def events(self) -> list[Event]:
        """The events since the last look, once nothing is left to do."""
        for _ in range(20):
            await asyncio.sleep(0)
        data, self._pipe.written = self._pipe.written, b""
        if data:
            self._protocol.receive_data(data)
        return [event for event in self._protocol.events() if not hasattr(event, "extensions")]

    async def messages(self) -> list[bytes]:
        return [bytes(event.data) for event in await self.events()]  # type: ignore[attr-defined]


class Host:
    """The other end: what the tunnel writes, and what it is to read."""

    def __init__(self) -> None:
        self.source = asyncio.StreamReader()
        self.got = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.got += data

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def backend(self) -> Backend:
        return Backend(self.source, self, self.close)


def _play(body: Callable[[Host, Relay], Awaitable[None]]) -> None:
    async def play() -> None:
        host = Host()
        tunnel = Relay("the-sid", "ann@example.com", host.backend())
        await body(host, tunnel)
        tunnel.end()

    asyncio.run(play())


def test_both_directions_and_the_end_of_the_host() -> None:
    async def body(host: Host, tunnel: Relay) -> None:
        client = CarriedClient(tunnel)
        assert await client.messages() == [frames.connect_frame("the-sid")]
        client.send(frames.data_frame(b"question"))
        host.source.feed_data(b"a" * 20_000)
        assert await client.messages() == [
            frames.data_frame(b"a" * frames.DATA_BYTES_MAX),
            frames.data_frame(b"a" * (20_000 - frames.DATA_BYTES_MAX)),
        ]
        assert host.got == b"question"
        host.source.feed_eof()
        (end,) = await client.events()
        assert isinstance(end, CloseConnection) and end.code == 1000
        assert host.is_closed and tunnel.ended.is_set()

    _play(body)


def test_what_was_received_is_acknowledged() -> None:
    async def body(host: Host, tunnel: Relay) -> None:
        client = CarriedClient(tunnel)
        await client.messages()
        for _ in range(3):
            client.send(frames.data_frame(b"b" * frames.DATA_BYTES_MAX))
        assert await client.messages() == [frames.ack_frame(2 * frames.DATA_BYTES_MAX)]

    _play(body)


def test_a_client_that_comes_back_gets_what_it_has_not_in_order() -> None:
    async def body(host: Host, tunnel: Relay) -> None:
        client = CarriedClient(tunnel)
        host.source.feed_data(b"one")
        await client.messages()
        client.send(frames.data_frame(b"hello"))
        await client.events()
        client.drop()
        await client.serving
        host.source.feed_data(b"two")
        again = CarriedClient(tunnel, count=2)
        host.source.feed_data(b"three")
        first, *rest = await again.messages()
        assert first == frames.reconnect_frame(5)
        assert b"".join(message[6:] for message in rest) == b"etwothree"
        assert not host.is_closed

    _play(body)


@pytest.mark.parametrize("count", [0, 4])
def test_a_count_that_cannot_be_ends_the_tunnel(count: int) -> None:
    async def body(host: Host, tunnel: Relay) -> None:
        client = CarriedClient(tunnel)
        host.source.feed_data(b"one")
        await client.messages()
        client.send(frames.ack_frame(1))
        await client.events()
        client.send(frames.ack_frame(count))
        (end,) = await client.events()
        assert isinstance(end, CloseConnection) and end.code == CloseCode.BAD_ACK
        assert host.is_closed

    _play(body)


def test_nothing_more_is_read_while_the_client_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "UNACKED_BYTES_MAX", 4)

    async def body(host: Host, tunnel: Relay) -> None:
        client = CarriedClient(tunnel)
        host.source.feed_data(b"12345")
        await client.messages()
        host.source.feed_data(b"6")
        assert await client.messages() == []
        client.send(frames.ack_frame(5))
        assert await client.messages() == [frames.data_frame(b"6")]

    _play(body)


def test_a_client_that_does_not_come_back_loses_the_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "RECONNECT_SECONDS", 0.0)

    async def body(host: Host, tunnel: Relay) -> None:
        client = CarriedClient(tunnel)
        await client.messages()
        client.drop()
        await tunnel.ended.wait()
        assert host.is_closed

    _play(body)


def test_a_client_that_left_before_the_answer_leaves_no_tunnel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "RECONNECT_SECONDS", 0.0)

    async def body(host: Host, tunnel: Relay) -> None:
        CarriedClient(tunnel, has_left=True)
        async with asyncio.timeout(10):
            await tunnel.ended.wait()
        assert host.is_closed

    _play(body)


def test_only_who_opened_a_tunnel_finds_it() -> None:
    async def body(host: Host, tunnel: Relay) -> None:
        relays = Relays()
        relays.add(tunnel)
        assert relays.find("the-sid", "ann@example.com") is tunnel
        assert relays.find("the-sid", "eve@example.com") is None
        relays.remove(tunnel)
        assert relays.find("the-sid", "ann@example.com") is None

    _play(body)


def test_a_message_beyond_the_limit_ends_the_websocket() -> None:
    async def body(host: Host, tunnel: Relay) -> None:
        client = CarriedClient(tunnel)
        await client.messages()
        client.send(bytes(frames.MESSAGE_BYTES_MAX + 1))
        (end,) = await client.events()
        assert isinstance(end, CloseConnection) and end.code == 1009

    _play(body)
