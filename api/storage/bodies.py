"""Bodies of requests: JSON of a bounded size, and contents that go to disk as they come."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from starlette.requests import Request

from podyard.base.contents import Contents, Incoming
from podyard.base.errors import Code, PodyardError, invalid

JSON_BYTES_MAX = 1 << 20  # a compose of 32 names of 1 KiB, or a batch's largest call, is far below
PIECE_BYTES = 1 << 20  # written at once: a change of threads for each costs little
PAUSE_SECONDS_MAX = 60.0  # without a byte: such a client has gone
_BOUNDARY = re.compile(r"boundary=(?:\"([^\"]+)\"|'([^']+)'|([^;\s]+))", re.IGNORECASE)
_HEAD_BYTES_MAX = 64 << 10  # of the parts' headers


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """The body as it comes. Raises ClientDisconnect when it is cut off, DEADLINE_EXCEEDED when it
    stands still."""
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(PAUSE_SECONDS_MAX):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            text = f"no byte of the body has come for {PAUSE_SECONDS_MAX:.0f} s: send it again"
            raise PodyardError(Code.DEADLINE_EXCEEDED, text) from None
        if piece:
            yield piece


async def read_json(request: Request) -> dict[str, Any]:
    """An empty body is an empty object."""
    found: list[bytes] = []
    async for piece in pieces(request):
        found.append(piece)
        if sum(map(len, found)) > JSON_BYTES_MAX:
            raise invalid(f"the body is larger than {JSON_BYTES_MAX} bytes")
    return parse_object(b"".join(found))


def parse_object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data) if data.strip() else {}
        # no halves of surrogate pairs, which cannot be stored
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise invalid("Parse Error: the body is not valid JSON") from None
    if not isinstance(found, dict):
        raise invalid("Parse Error: the body must be a JSON object")
    return found


@asynccontextmanager
async def receiving(contents: Contents, bytes_max: int) -> AsyncIterator[Incoming]:
    """A content that is thrown away if anything fails."""
    incoming = await to_thread.run_sync(contents.incoming, bytes_max)
    try:
        yield incoming
    except BaseException:
        incoming.discard()
        raise


async def write(incoming: Incoming, source: AsyncIterator[bytes]) -> None:
    """All that comes: while one piece is written and summed up, the next one arrives."""
    waiting: list[bytes] = []
    size = 0
    writing: asyncio.Future[None] | None = None
    try:
        async for piece in source:
            waiting.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                if writing is not None:
                    await writing
                writing = _in_thread(incoming.write, waiting)
                waiting, size = [], 0
    finally:
        # Also when the client has gone: what has come counts.
        if writing is not None:
            await asyncio.shield(writing)
        if waiting:
            await _in_thread(incoming.write, waiting)


def _in_thread(work: Callable[..., None], pieces: list[bytes]) -> asyncio.Future[None]:
    return asyncio.get_running_loop().run_in_executor(None, work, *pieces)


class MultipartBody:
    """A multipart/related body of two parts: JSON, and the content."""

    def __init__(self, request: Request) -> None:
        match = _BOUNDARY.search(request.headers.get("content-type", ""))
        if match is None:
            raise invalid("Content-Type must be multipart/related with a boundary")
        self._boundary = b"--" + (match[1] or match[2] or match[3]).encode("latin-1")
        self._source = pieces(request)
        self._buffer = b""
        self._line = b"\r\n"

    async def head(self) -> tuple[dict[str, Any], str]:
        """(the first part, the content type of the second one)."""
        opening = await self._until(b"\n")
        if opening.rstrip(b"\r\n") != self._boundary:
            raise invalid("the body does not start with the boundary of its Content-Type")
        self._line = b"\r\n" if opening.endswith(b"\r\n") else b"\n"
        await self._headers()
        body = await self._until(self._line + self._boundary, JSON_BYTES_MAX)
        await self._until(b"\n")
        return parse_object(body[: -len(self._line + self._boundary)]), (await self._headers()).get(
            "content-type", ""
        )

    async def content(self) -> AsyncIterator[bytes]:
        end = self._line + self._boundary
        while True:
            at = self._buffer.find(end)
            if at >= 0:
                yield self._buffer[:at]
                break
            if len(self._buffer) > len(end):
                yield self._buffer[: -len(end)]
                self._buffer = self._buffer[-len(end) :]
            self._buffer += await self._more()
        async for _ in self._source:
            pass  # what is behind the last boundary means nothing

    async def _headers(self) -> dict[str, str]:
        found = {}
        while line := (await self._until(b"\n")).strip():
            name, _, value = line.decode("latin-1").partition(":")
            found[name.strip().lower()] = value.strip()
        return found

    async def _until(self, end: bytes, most: int = _HEAD_BYTES_MAX) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            if len(self._buffer) > most:
                raise invalid(f"a part's head is larger than {most} bytes")
            self._buffer += await self._more()
        found, self._buffer = self._buffer[: at + len(end)], self._buffer[at + len(end) :]
        return found

    async def _more(self) -> bytes:
        try:
            return await anext(self._source)
        except StopAsyncIteration:
            raise invalid("the multipart body ends before its last boundary") from None
