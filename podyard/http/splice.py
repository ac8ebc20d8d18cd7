"""Two connections that are one: what comes on either is sent on the other, no faster than that
takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from typing_extensions import override


class End(asyncio.Protocol):
    """One of the two. `on_end` is called when it has ended."""

    transport: asyncio.Transport

    def __init__(
        self, other: End | None = None, on_end: Callable[[], object] = lambda: None
    ) -> None:
        self.other = other
        self._on_end = on_end

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other is not None:
            self.other.join(self)

    def join(self, other: End) -> None:
        self.other = other
        if self.transport.is_closing():
            other.transport.close()
        else:
            self.transport.resume_reading()

    @override
    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    @override
    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    @override
    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    @override
    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()
        self._on_end()


class WaitingEnd(End):
    """A client's end. Nothing of it is read before `connect` has joined it with its other end."""

    def __init__(self, connect: Callable[[WaitingEnd], Awaitable[None]]) -> None:
        super().__init__()
        self._connect = connect
        self._joining: asyncio.Future[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._joining = asyncio.ensure_future(self._connect(self))
