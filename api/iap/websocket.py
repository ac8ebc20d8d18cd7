"""The server's end of a websocket (RFC 6455) on a connection that an HTTP request has given away;
wsproto reads and writes the protocol."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import cast

from typing_extensions import override
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

UPGRADE = "websocket"
MESSAGES_MAX = 64  # that wait for `receive`; then nothing more is read from the client
NO_STATUS, PROTOCOL_ERROR, NO_TEXT, TOO_BIG = 1005, 1002, 1003, 1009
_REASON_BYTES_MAX = 123  # what a control frame has room for


@dataclasses.dataclass(frozen=True, slots=True)
class Closed(Exception):
    """The websocket has ended. `code`: the client's; None where the connection was lost."""

    code: int | None


class WebSocket(asyncio.Protocol):
    """`headers`: of the request that asks for it. Raises ValueError for one that is not valid."""

    def __init__(
        self, headers: Sequence[tuple[bytes, bytes]], target: str, message_bytes_max: int
    ) -> None:
        self._connection = WSConnection(ConnectionType.SERVER)
        try:
            self._connection.initiate_upgrade_connection(list(headers), target)
            request = next(iter(self._connection.events()))
        except ProtocolError as error:
            raise ValueError(f"not a websocket: {error}") from None
        assert isinstance(request, Request)
        self.subprotocols = tuple(request.subprotocols)
        self._bytes_max = message_bytes_max
        self._message = bytearray()
        self._messages: asyncio.Queue[bytes | Closed] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = False
        self._transport: asyncio.Transport | None = None

    def accept(self, subprotocol: str) -> bytes:
        """Return the answer that turns the connection into a websocket."""
        return self._connection.send(AcceptConnection(subprotocol=subprotocol))

    async def receive(self) -> bytes:
        """Return the next message. Raises Closed when the client has ended it, or is gone."""
        message = await self._messages.get()
        if isinstance(message, Closed):
            self._messages.put_nowait(message)
            raise message
        if self._messages.qsize() < MESSAGES_MAX and self._transport is not None:
            self._transport.resume_reading()
        return message

    async def send(self, message: bytes) -> None:
        """Send a binary message, no faster than the client takes it. Raises Closed."""
        await self._writable.wait()
        if self._ended or self._transport is None:
            raise Closed(None)
        self._transport.write(self._connection.send(BytesMessage(data=message)))

    def close(self, code: int, reason: str = "") -> None:
        """End it; what the client still sends is not read."""
        if self._ended or self._transport is None:
            return
        text = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        self._transport.write(self._connection.send(CloseConnection(code=code, reason=text)))
        self._end(Closed(code))
        self._transport.close()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._transport.is_closing():  # its client left before the answer: nobody says so again
            self._end(Closed(None))

    @override
    def data_received(self, data: bytes) -> None:
        if self._ended or self._transport is None:
            return
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                _HANDLERS.get(type(event), _ignore)(self, event)
        except ProtocolError as error:
            self.close(PROTOCOL_ERROR, str(error))

    @override
    def pause_writing(self) -> None:
        self._writable.clear()

    @override
    def resume_writing(self) -> None:
        self._writable.set()

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self._end(Closed(None))

    def _end(self, closed: Closed) -> None:
        if not self._ended:
            self._ended = True
            self._messages.put_nowait(closed)
        self._writable.set()

    def _on_bytes(self, event: BytesMessage) -> None:
        self._message += event.data
        if len(self._message) > self._bytes_max:
            self.close(TOO_BIG, f"a message has at most {self._bytes_max} bytes")
        elif event.message_finished:
            self._messages.put_nowait(bytes(self._message))
            self._message.clear()
            if self._messages.qsize() >= MESSAGES_MAX and self._transport is not None:
                self._transport.pause_reading()

    def _on_text(self, _: TextMessage) -> None:
        self.close(NO_TEXT, "binary messages only")

    def _on_ping(self, event: Ping) -> None:
        assert self._transport is not None
        self._transport.write(self._connection.send(event.response()))

    def _on_close(self, event: CloseConnection) -> None:
        assert self._transport is not None
        self._transport.write(self._connection.send(event.response()))
        self._end(Closed(NO_STATUS if event.code is None else int(event.code)))
        self._transport.close()


def _ignore(_: WebSocket, __: object) -> None:
    """Of pongs there is nothing to do."""


_HANDLERS: dict[type, Callable[..., None]] = {
    BytesMessage: WebSocket._on_bytes,
    TextMessage: WebSocket._on_text,
    Ping: WebSocket._on_ping,
    CloseConnection: WebSocket._on_close,
}
