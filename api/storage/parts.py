"""Paths of resources in routes: contents, and uploads in parts that are open."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from anyio import to_thread
from starlette.requests import Request

from podyard.api.storage.operations import OperationMeter
from podyard.base.contents import Contents, Incoming
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.stored import OBJECT_BYTES_MAX
from podyard.http import context

T = TypeVar("T")
# files that stay open between two parts: another one is read again from its beginning
OPEN_UPLOADS_MAX = 64


class OpenUploads:
    """Uploads in parts, each used by one request at a time."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._open: OrderedDict[str, Incoming] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def of(self, upload_id: str) -> AsyncIterator[Incoming]:
        """The upload's content as far as it has come. It is closed here when it was stored or
        discarded."""
        lock = self._locks.setdefault(upload_id, asyncio.Lock())
        async with lock:
            incoming = self._open.pop(upload_id, None)
            if incoming is None:
                incoming = await to_thread.run_sync(
                    self._contents.resume, upload_id, OBJECT_BYTES_MAX
                )
            try:
                yield incoming
            finally:
                if incoming.is_open:
                    self._open[upload_id] = incoming
                else:
                    self._locks.pop(upload_id, None)
        while len(self._open) > OPEN_UPLOADS_MAX:
            self._open.popitem(last=False)[1].suspend()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].suspend()


def contents(request: Request) -> Contents:
    found: Contents = request.app.state.contents
    return found


def open_uploads(request: Request) -> OpenUploads:
    found: OpenUploads = request.app.state.uploads
    return found


async def write_operations(request: Request) -> None:
    """Writes the operations counted so far, before the bucket that they belong to is changed."""
    meter: OperationMeter = request.app.state.operations
    await meter.write()


async def read(request: Request, body: Callable[[UnitOfWork], T]) -> T:
    return await context.in_thread(lambda: context.read(request, body))
