"""Contents that arrive by HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

from anyio import to_thread
from starlette.datastructures import UploadFile

from podyard.base.contents import Content, Contents

_PIECE_BYTES = 1 << 20  # a smaller one costs more for its turn in a thread than for the disk


async def pieces_of(file: UploadFile) -> AsyncIterator[bytes]:
    """The file of a form, piece by piece; closed behind the last one."""
    try:
        while piece := await file.read(_PIECE_BYTES):
            yield piece
    finally:
        await file.close()


async def receive(contents: Contents, pieces: AsyncIterator[bytes], bytes_max: int) -> Content:
    """Stores what comes. What is cut off in the middle leaves nothing."""
    incoming = await to_thread.run_sync(contents.incoming, bytes_max)
    try:
        waiting = bytearray()
        async for piece in pieces:
            waiting += piece
            if len(waiting) >= _PIECE_BYTES:
                await to_thread.run_sync(incoming.write, bytes(waiting))
                waiting.clear()
        await to_thread.run_sync(incoming.write, bytes(waiting))
        return await to_thread.run_sync(incoming.store)
    except BaseException:
        incoming.discard()
        raise
