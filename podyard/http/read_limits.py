"""Limits on how long a request may take to arrive.

uvicorn limits how long a kept connection may be idle, and nothing else: without these limits,
clients that send half a request hold their connections for ever.
"""

from __future__ import annotations

import asyncio
import dataclasses

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class ReadLimits:
    """The seconds that a client may take to send one request. They bound the whole, not the pauses:
    a client that sends a byte now and then would never pause for long."""

    # from the connection, or the first byte on a kept one, to the end of the headers
    head_seconds: float = 20.0
    # from the headers to the end of the body: the largest one, 1 MiB, at 17 KiB/s
    body_seconds: float = 60.0


class LimitedProtocol(H11Protocol):
    """Closes the connection of a request that does not arrive in time."""

    read_limits = ReadLimits()
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
        elif self.conn.their_state is h11.IDLE and (
            self.cycle is None or self.conn.trailing_data[0]
        ):
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
        seconds = (
            self.read_limits.head_seconds
            if self._waits_for == "head"
            else self.read_limits.body_seconds
        )
        self._deadline = self.loop.call_later(seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        if self.flow.read_paused:
            self._set_deadline()  # the client waits for us
            return
        # A connection on which nothing came at all (browsers open some in advance) asks for no
        # answer.
        if self._waits_for == "body" or self.conn.trailing_data[0]:
            self.answer_late("headers" if self._waits_for == "head" else "body")
        self.transport.close()

    def answer_late(self, what: str) -> None:
        """Says that the `what` of the request (headers, body) came too late, before the connection
        is closed."""
