"""The life of the gRPC front: it starts after the HTTP server, so that HTTP's first answer need not wait for the
import of gRPC, and ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from anyio import to_thread

logger = logging.getLogger(__name__)

HEAD_START_SECONDS = 0.3  # what HTTP has the processor for itself: its first request is there by then


@contextlib.asynccontextmanager
async def running(app: Any, address: str, port: int | None) -> AsyncIterator[None]:
    """Serves gRPC meanwhile; `port` None: not at all. `app.state.front` says "starting", "ok", "off" or what failed."""
    if port is None:
        app.state.front = "off"
        yield
        return
    app.state.front = "starting"
    task = asyncio.create_task(_serve(app, address, port))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _serve(app: Any, address: str, port: int) -> None:
    await asyncio.sleep(HEAD_START_SECONDS)
    module = await to_thread.run_sync(importlib.import_module, "podyard.api.tpu.grpc_front")
    host = f"[{address}]" if ":" in address else address
    try:
        server = await module.serve(app, host, port)
    except OSError as error:
        # HTTP goes on without it; `/readyz` says so, and `podyard up` refuses.
        logger.error("no gRPC on %s:%s: %s", host, port, error)
        app.state.front = f"port {port}: {error}"
        return
    app.state.front = "ok"
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(module.STOP_SECONDS)
