"""The HTTP server: uvicorn with limits on how long a request may take to arrive."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import h11
import uvicorn
from typing_extensions import override

from podyard.base.errors import Code, PodyardError
from podyard.http.door_certificate import LOOK_SECONDS
from podyard.http.errors import envelope
from podyard.http.read_limits import LimitedProtocol, ReadLimits
from podyard.http.tunnels import TAKE_OVER

# httplib2 sends a body on a connection that it kept, and finds out too late that the other end has
# closed it. Clients pause between two requests for as long as they wait before a retry
# (googleapiclient: 64 s) or look after an operation.
KEEP_ALIVE_SECONDS = 300
GRACEFUL_SECONDS = 2  # open streams are cut at the end: their readers come back
REQUEST_TIMEOUT = 408
QUIET_SECONDS = 60.0  # without a connection: the storage process is not needed
# Of a connection that comes while the process ends: others wait for the next process meanwhile.
LAST_SECONDS_MAX = 5.0
# An object may take long; a body in which nothing moves is refused by the route.
HANDSHAKE_SECONDS_MAX = 10.0  # of TLS at the door: two round trips, and a slow phone
STORAGE_LIMITS = ReadLimits(body_seconds=86_400.0)
_LAST_LOOK_SECONDS = 0.05
# between two heartbeats, and two settings of the header Date; a signal ends the wait
TICK_SECONDS = 0.5


def config(app: Any, host: str, port: int, limits: ReadLimits | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_protocol(limits or ReadLimits()),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,  # else any process on loopback could say who calls; see http/door.py
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DoorListener:
    """The port that other machines reach: its listening socket, what answers there, and its TLS
    (None: a proxy in front of it has that). `look` renews the certificate; it reads files."""

    listener: socket.socket
    app: Any
    tls: ssl.SSLContext | None
    look: Callable[[], None]


class Server(uvicorn.Server):
    """Beats with the event loop: a loop that hangs answers nobody, and says nothing more."""

    def __init__(
        self, config: uvicorn.Config, beat: Callable[[], None], door: DoorListener | None = None
    ) -> None:
        super().__init__(config)
        self._beat = beat
        self._door = door
        self._look_at = 0.0
        self._wake: Callable[[], object] = lambda: None

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._door is None:
            return
        own = config(self._door.app, "", 0)
        own.http = DoorProtocol
        own.load()

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = own.http_protocol_class(  # type: ignore[call-arg]
                config=own, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        limit = HANDSHAKE_SECONDS_MAX if self._door.tls is not None else None
        door = await asyncio.get_running_loop().create_server(
            protocol, sock=self._door.listener, ssl=self._door.tls, ssl_handshake_timeout=limit
        )
        self.servers.append(door)

    @override
    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second whether it is to end."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(ended.set)
        self._beat()
        while not await self.on_tick(counter=0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), TICK_SECONDS)
            self._beat()
            now = asyncio.get_running_loop().time()
            if self._door is not None and now >= self._look_at:
                self._look_at = now + LOOK_SECONDS
                await asyncio.to_thread(self._door.look)

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._wake()


class QuietServer(Server):
    """Ends when it has had no connection for a while. The supervisor holds its socket, where later
    ones wait."""

    _quiet_since: float | None = None

    @override
    async def on_tick(self, counter: int) -> bool:
        now = asyncio.get_running_loop().time()
        if self.server_state.connections or self._quiet_since is None:
            self._quiet_since = now
        elif now - self._quiet_since > QUIET_SECONDS:
            for server in self.servers:
                server.close()
            await self._answer_last(now + LAST_SECONDS_MAX)
            return True
        return await super().on_tick(counter)

    async def _answer_last(self, deadline: float) -> None:
        """Those that were accepted in the last moment are answered."""
        await asyncio.sleep(_LAST_LOOK_SECONDS)
        while asyncio.get_running_loop().time() < deadline:
            cycles = [getattr(one, "cycle", None) for one in self.server_state.connections]
            if all(cycle is not None and cycle.response_complete for cycle in cycles):
                return
            await asyncio.sleep(_LAST_LOOK_SECONDS)


def serve_storage(app: Any, listener: socket.socket, beat: Callable[[], None]) -> None:
    """Runs until SIGTERM or SIGINT, or until nobody has needed it for a while."""
    QuietServer(config(app, "", 0, STORAGE_LIMITS), beat).run(sockets=[listener])


def serve(
    app: Any,
    host: str,
    port: int,
    beat: Callable[[], None],
    sockets: Sequence[socket.socket] | None,
    door: DoorListener | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT. `sockets`: listening ones, used instead of host and port."""
    Server(config(app, host, port), beat, door).run(
        sockets=None if sockets is None else list(sockets)
    )


def _protocol(limits: ReadLimits) -> type[asyncio.Protocol]:
    class Limited(_AnsweringProtocol):
        read_limits = limits

    return Limited


class _AnsweringProtocol(LimitedProtocol):
    """Answers a request that does not arrive in time with 408 where nothing was answered yet."""

    @override
    def answer_late(self, what: str) -> None:
        message = f"the request's {what} did not arrive in time"
        content = json.dumps(
            envelope(PodyardError(Code.DEADLINE_EXCEEDED, message), REQUEST_TIMEOUT)
        ).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        response = h11.Response(
            status_code=REQUEST_TIMEOUT, headers=headers, reason=b"Request Timeout"
        )
        # Answered already, as a refused upload is: nothing more may be said.
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")


class DoorProtocol(_AnsweringProtocol):
    """A connection at the door, which may become a tunnel (podyard/http/tunnels.py)."""

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._offer()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._offer()

    def _offer(self) -> None:
        # The application runs in a task that has not begun yet.
        if self.scope is not None:
            offered: dict[str, Any] = {TAKE_OVER: self.take_over}
            self.scope["extensions"] = offered

    @override
    def _get_upgrade(self) -> bytes | None:
        return None  # the application answers it, as every other request

    def take_over(self, end: asyncio.Protocol, switching: bytes) -> None:
        """Says 101 and gives the connection to `end`."""
        begun = self.conn.trailing_data[0]
        self.connections.discard(self)
        self.cycle.disconnected = True  # nobody waits for its answer
        self._unset_keepalive_if_required()
        self._wait_for("")
        self.flow.resume_reading()
        self.transport.write(switching)
        self.transport.set_protocol(end)
        end.connection_made(self.transport)
        if begun:
            end.data_received(begun)
