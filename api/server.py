"""The HTTP server: uvicorn with limits on how long a request may take to arrive.

uvicorn limits how long a kept connection may be idle, and nothing else: without these limits, clients that send half a
request hold their connections for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

import h11
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from podyard.base.errors import Code, PodyardError
from podyard.http.errors import envelope

# httplib2 sends a body on a connection that it kept, and finds out too late that the other end has closed it. Clients
# pause between two requests for as long as they wait before a retry (googleapiclient: 64 s) or look after an operation.
KEEP_ALIVE_SECONDS = 300
GRACEFUL_SECONDS = 2  # open streams are cut at the end: their readers come back
REQUEST_TIMEOUT = 408


@dataclasses.dataclass(frozen=True, slots=True)
class ReadLimits:
    """How long a client may take to send one request, in seconds. They bound the whole, not the pauses: a client that
    sends a byte now and then would never pause for long."""

    head_seconds: float = 20.0  # from the connection, or the first byte on a kept one, to the end of the headers
    body_seconds: float = 60.0  # from the headers to the end of the body: the largest one, 1 MiB, at 17 KiB/s


def config(app: Any, host: str, port: int, limits: ReadLimits | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_protocol(limits or ReadLimits()),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )


class Server(uvicorn.Server):
    """Beats with the event loop: a loop that hangs answers nobody, and says nothing more."""

    def __init__(self, config: uvicorn.Config, beat: Callable[[], None]) -> None:
        super().__init__(config)
        self._beat = beat

    @override
    async def on_tick(self, counter: int) -> bool:
        self._beat()
        return await super().on_tick(counter)


def serve(app: Any, host: str, port: int, beat: Callable[[], None], sockets: Sequence[socket.socket] | None) -> None:
    """Runs until SIGTERM or SIGINT. `sockets`: listening ones, used instead of host and port."""
    Server(config(app, host, port), beat).run(sockets=None if sockets is None else list(sockets))


def _protocol(limits: ReadLimits) -> type[asyncio.Protocol]:
    class Limited(_LimitedProtocol):
        read_limits = limits

    return Limited


class _LimitedProtocol(H11Protocol):
    """Closes the connection of a request that does not arrive in time; answers it with 408 where nothing was
    answered yet."""

    read_limits: ReadLimits
    _deadline: asyncio.TimerHandle | None = None
    _waits_for: str = ""  # "head", "body", or nothing

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._follow()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for("")
        super().connection_lost(exc)

    def _follow(self) -> None:
        """Sets the deadline of what has to arrive next; it stays while the same is waited for."""
        if self.transport.is_closing():
            self._wait_for("")
        elif self.conn.their_state is h11.SEND_BODY:
            self._wait_for("body")
        elif self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self._wait_for("head")
        else:
            # The request is complete, or the connection is kept: uvicorn's own limit is for that.
            self._wait_for("")

    def _wait_for(self, what: str) -> None:
        if what == self._waits_for:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._waits_for = what
        if what:
            self._set_deadline()

    def _set_deadline(self) -> None:
        seconds = self.read_limits.head_seconds if self._waits_for == "head" else self.read_limits.body_seconds
        self._deadline = self.loop.call_later(seconds, self._expired)

    def _expired(self) -> None:
        if self.flow.read_paused:
            self._set_deadline()  # the client waits for us
            return
        # A connection on which nothing came at all (browsers open some in advance) asks for no answer.
        if self._waits_for == "body" or self.conn.trailing_data[0]:
            self._answer_late()
        self.transport.close()

    def _answer_late(self) -> None:
        what = "headers" if self._waits_for == "head" else "body"
        message = f"the request's {what} did not arrive in time"
        content = json.dumps(envelope(PodyardError(Code.DEADLINE_EXCEEDED, message), REQUEST_TIMEOUT)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=REQUEST_TIMEOUT, headers=headers, reason=b"Request Timeout")
        # Answered already, as a refused upload is: nothing more may be said.
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
