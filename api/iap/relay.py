"""One tunnel: a connection to a host, which outlives the websockets that carry it.

A client that has lost its websocket comes back with the tunnel's id and with how much it has
received; what it has not is sent again. Each side says with ACK frames how much that is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Protocol

from podyard.api.iap import frames
from podyard.api.iap.frames import AckFrame, CloseCode, DataFrame, FrameError
from podyard.api.iap.websocket import Closed, WebSocket

UNACKED_BYTES_MAX = 4 << 20  # gcloud says at least every 10 s what it has; then nothing is read
ACK_EVERY_BYTES = 2 * frames.DATA_BYTES_MAX
RECONNECT_SECONDS = 60.0  # for a client without a websocket to come back


class HostReader(Protocol):
    async def read(self, n: int) -> bytes: ...


class HostWriter(Protocol):
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """The connection to the host."""

    reader: HostReader
    writer: HostWriter
    close: Callable[[], None]


class Relay:
    """`caller`: who opened the tunnel, and alone may come back to it."""

    def __init__(self, sid: str, caller: str, backend: Backend) -> None:
        self.sid = sid
        self.caller = caller
        self.ended = asyncio.Event()
        self._backend = backend
        self._unacked = bytearray()  # of the host's bytes, from number `_confirmed` on
        self._confirmed = 0
        self._is_read = False
        self._received = 0
        self._received_told = 0
        self._socket: WebSocket | None = None
        self._changed = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.TimerHandle | None = None

    async def serve(self, socket: WebSocket, count: int | None) -> None:
        """Carry the tunnel over this websocket until that ends. `count`: what the client, which
        comes back, has received; None for its first websocket."""
        before, self._socket = self._socket, socket
        if before is not None:
            before.close(CloseCode.NORMAL, "the client came back on another connection")
        if self._closing is not None:
            self._closing.cancel()
        writing = None
        try:
            await self._greet(socket, count)
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._read())
            writing = asyncio.ensure_future(self._write(socket))
            while True:
                await self._take(socket, frames.read(await socket.receive()))
        except FrameError as error:
            socket.close(error.code, str(error))
            self.end()
        except OSError:
            socket.close(CloseCode.NORMAL)
            self.end()
        except Closed as closed:
            is_over = closed.code not in (None, CloseCode.REAUTHENTICATION_REQUIRED)
            if is_over and self._socket is socket:
                self.end()
        finally:
            if writing is not None:
                writing.cancel()
            if self._socket is socket:
                self._socket = None
                self._wait_for_client()

    def interrupt(self, code: CloseCode, reason: str) -> None:
        """End the websocket; its client may come back."""
        if self._socket is not None:
            self._socket.close(code, reason)

    def end(self) -> None:
        """End the tunnel and the connection to the host."""
        if self._closing is not None:
            self._closing.cancel()
        if self._reading is not None:
            self._reading.cancel()
        self._backend.close()
        self.ended.set()

    async def _greet(self, socket: WebSocket, count: int | None) -> None:
        if count is None:
            await socket.send(frames.connect_frame(self.sid))
        else:
            await self._confirm(count)
            await socket.send(frames.reconnect_frame(self._received))

    async def _take(self, socket: WebSocket, frame: DataFrame | AckFrame | None) -> None:
        if isinstance(frame, AckFrame):
            await self._confirm(frame.count)
        elif isinstance(frame, DataFrame):
            self._backend.writer.write(frame.data)
            self._received += len(frame.data)
            await self._backend.writer.drain()
            if self._received - self._received_told >= ACK_EVERY_BYTES:
                self._received_told = self._received
                await socket.send(frames.ack_frame(self._received))

    async def _confirm(self, count: int) -> None:
        """Forget what the client has. Raises FrameError for bytes that were never sent, or that it
        has confirmed before."""
        if not 0 <= count - self._confirmed <= len(self._unacked):
            text = f"{count} bytes are confirmed, of {self._confirmed + len(self._unacked)}"
            raise FrameError(CloseCode.BAD_ACK, text)
        del self._unacked[: count - self._confirmed]
        self._confirmed = count
        await self._tell()

    async def _read(self) -> None:
        """Read what the host sends, until its end."""
        with contextlib.suppress(OSError):
            while piece := await self._backend.reader.read(frames.DATA_BYTES_MAX):
                self._unacked += piece
                await self._tell()
                async with self._changed:
                    await self._changed.wait_for(lambda: len(self._unacked) < UNACKED_BYTES_MAX)
        self._is_read = True
        await self._tell()

    async def _write(self, socket: WebSocket) -> None:
        """Send what the client has not, first what the websocket before may have lost."""
        at = self._confirmed
        with contextlib.suppress(Closed):
            while True:
                if not await self._wait_for_more(at):
                    return socket.close(CloseCode.NORMAL)
                at = max(at, self._confirmed)
                begin = at - self._confirmed
                piece = bytes(self._unacked[begin : begin + frames.DATA_BYTES_MAX])
                at += len(piece)
                await socket.send(frames.data_frame(piece))

    async def _wait_for_more(self, at: int) -> bool:
        """Return whether the host has sent more than the first `at` bytes; if not, it has ended."""

        def has_more() -> bool:
            return at < self._confirmed + len(self._unacked)

        async with self._changed:
            await self._changed.wait_for(lambda: self._is_read or has_more())
        return has_more()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _wait_for_client(self) -> None:
        if not self.ended.is_set():
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(RECONNECT_SECONDS, self.end)


class Relays:
    """The tunnels of this process, by their ids."""

    def __init__(self) -> None:
        self._relays: dict[str, Relay] = {}

    def add(self, relay: Relay) -> None:
        self._relays[relay.sid] = relay

    def remove(self, relay: Relay) -> None:
        del self._relays[relay.sid]

    def find(self, sid: str, caller: str) -> Relay | None:
        """The caller's tunnel of this id."""
        relay = self._relays.get(sid)
        return relay if relay is not None and relay.caller == caller else None
