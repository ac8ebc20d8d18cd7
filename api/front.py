"""The life of the gRPC front. Its port is open from the beginning; gRPC itself starts with the
first connection.

The library takes a fifth of the API's memory and half a second of its start, and no socket that is
open already. So the front listens on loopback, on a port that nobody is told of, and each
connection is passed on to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

from anyio import to_thread

from podyard.http.splice import End, WaitingEnd

logger = logging.getLogger(__name__)

BACKLOG = 128  # connections that wait while the first one starts gRPC
ADDRESS = "127.0.0.1"
STOP_SECONDS = 2.0  # open calls are cut after this: they can be repeated


@contextlib.asynccontextmanager
async def running(app: Any, address: str, port: int | None) -> AsyncIterator[None]:
    """Serves gRPC meanwhile; `port` None: not at all. `app.state.front` says "ok", "off" or what
    failed."""
    app.state.front = "off"
    if port is None:
        yield
        return
    front = _Front(app)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(
            lambda: WaitingEnd(front.connect), sock=_listen(address, port)
        )
    except OSError as error:
        # HTTP goes on without it; `/readyz` says so, and `podyard up` refuses.
        logger.error("no gRPC on %s:%s: %s", address, port, error)
        app.state.front = f"port {port}: {error}"
        yield
        return
    app.state.front = "ok"
    try:
        yield
    finally:
        server.close()
        await front.stop()


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Named as TCP, so that asyncio switches Nagle off.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class _Front:
    """gRPC's server, once there is a connection for it."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._starting: asyncio.Task[tuple[Any, int]] | None = None

    async def connect(self, client: WaitingEnd) -> None:
        """Gives the connection its other end; closes it where gRPC does not start."""
        if self._starting is None or (
            self._starting.done() and self._starting.exception() is not None
        ):
            self._starting = asyncio.create_task(self._start())
        try:
            _, port = await asyncio.shield(self._starting)
            await asyncio.get_running_loop().create_connection(lambda: End(client), ADDRESS, port)
        except (OSError, ImportError) as error:
            logger.error("gRPC does not start: %s", error)
            client.transport.close()

    async def _start(self) -> tuple[Any, int]:
        module = await to_thread.run_sync(importlib.import_module, "podyard.api.tpu.grpc_front")
        return cast(tuple[Any, int], await module.serve(self._app, ADDRESS))

    async def stop(self) -> None:
        if self._starting is not None:
            with contextlib.suppress(OSError, ImportError):
                server, _ = await self._starting
                await server.stop(STOP_SECONDS)
