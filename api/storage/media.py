"""Contents on their way out: whole, or a range of bytes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from email.utils import formatdate
from typing import BinaryIO
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from podyard.api.storage import resources
from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.contents import Contents
from podyard.base.errors import Code, PodyardError
from podyard.control.storage import refusals
from podyard.domain.stored import StoredObject

PIECE_BYTES = 1 << 20
_LOOKS_PIECES = 64  # between two looks whether the client is still there
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def headers(stored: StoredObject, *, quoted_etag: bool) -> dict[str, str]:
    """`quoted_etag`: as the XML API has it, where an ETag is the MD5."""
    fields = stored.fields
    tag = resources.etag(stored.generation, stored.metageneration)
    crc32c = f"crc32c={resources.crc32c_text(stored.crc32c)}"
    found = {
        "Content-Type": fields.content_type,
        "Content-Encoding": fields.content_encoding,
        "Content-Disposition": fields.content_disposition,
        "Content-Language": fields.content_language,
        "Cache-Control": fields.cache_control or "no-cache, no-store, max-age=0, must-revalidate",
        "ETag": f'"{stored.md5 or tag}"' if quoted_etag else tag,
        "Last-Modified": formatdate(stored.updated.nanos // NANOS_PER_SECOND, usegmt=True),
        "Accept-Ranges": "bytes",
        "X-Goog-Generation": str(stored.generation),
        "X-Goog-Metageneration": str(stored.metageneration),
        "X-Goog-Hash": f"{crc32c},md5={resources.md5_text(stored.md5)}" if stored.md5 else crc32c,
        "X-Goog-Storage-Class": fields.storage_class,
        "X-Goog-Stored-Content-Encoding": fields.content_encoding or "identity",
        "X-Goog-Stored-Content-Length": str(stored.size),
    }
    found |= {
        f"X-Goog-Meta-{_token(key)}": value.replace("\n", " ")
        for key, value in fields.metadata.items()
    }
    return {name: _latin(value) for name, value in found.items() if value}


def respond(
    request: Request, stored: StoredObject, contents: Contents, *, quoted_etag: bool
) -> Response:
    """Raises OUT_OF_RANGE, NOT_FOUND."""
    found = headers(stored, quoted_etag=quoted_etag)
    asked = (
        None
        if request.method == "HEAD"
        else _RANGE.fullmatch(request.headers.get("range", "").strip())
    )
    is_zipped = (
        stored.fields.content_encoding == "gzip"
        and "no-transform" not in stored.fields.cache_control
    )
    if is_zipped and "gzip" not in request.headers.get("accept-encoding", ""):
        # Served as it was before (cloud.google.com/storage/docs/transcoding); ranges mean nothing
        # then.
        del found["Content-Encoding"]
        found |= {"Warning": "214 UploadServer gunzipped", "Vary": "Accept-Encoding"}
        if request.method == "HEAD":
            return Response(headers=found)
        return Media(200, found, _open(contents, stored), None, unzips=True)
    first, last = (0, stored.size - 1) if asked is None else _span(asked[1], asked[2], stored.size)
    status = 200 if asked is None or (asked[1], asked[2]) == ("", "") else 206
    if status == 206:
        found["Content-Range"] = f"bytes {first}-{last}/{stored.size}"
    found["Content-Length"] = str(last - first + 1)
    if request.method == "HEAD":
        return Response(headers=found)
    file = _open(contents, stored)
    file.seek(first)
    return Media(status, found, file, last - first + 1)


def _span(start: str, end: str, size: int) -> tuple[int, int]:
    """(first byte, last byte) of what is asked for."""
    if not start and not end:
        return 0, size - 1
    first = int(start) if start else max(size - int(end), 0)
    last = min(int(end), size - 1) if start and end else size - 1
    if first >= size or (not start and int(end) == 0):
        raise Unsatisfiable(size)
    return (0, size - 1) if first > last else (first, last)


class Unsatisfiable(PodyardError):
    """A range behind the last byte; `size` is that of the object."""

    def __init__(self, size: int) -> None:
        super().__init__(
            Code.OUT_OF_RANGE,
            f"The requested range cannot be satisfied: the object has {size} bytes.",
        )
        self.size = size

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return (Unsatisfiable, (self.size,))


def _open(contents: Contents, stored: StoredObject) -> BinaryIO:
    try:
        return contents.path(stored.digest).open("rb", buffering=0)
    except FileNotFoundError:
        # deleted since, and swept
        raise refusals.object_not_found(stored.bucket, stored.name) from None


class Media(Response):
    """A file from where it stands, `length` bytes; None: to its end."""

    def __init__(
        self,
        status: int,
        found: Mapping[str, str],
        file: BinaryIO,
        length: int | None,
        *,
        unzips: bool = False,
    ) -> None:
        super().__init__(status_code=status, headers=found)
        if length is None:
            del self.headers["content-length"]
        self._file = file
        self._left = length
        self._inflate = zlib.decompressobj(wbits=31) if unzips else None

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        with self._file:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            looked = 0
            while piece := await self._next():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                looked += 1
                if looked % _LOOKS_PIECES == 0 and await request.is_disconnected():
                    return
            await send({"type": "http.response.body", "body": b""})

    async def _next(self) -> bytes:
        if self._inflate is None and self._left is not None and self._left <= PIECE_BYTES:
            # one piece, or the last one: it is in the page cache more often than not
            return self._read()
        return await to_thread.run_sync(self._read)

    def _read(self) -> bytes:
        if self._inflate is not None:
            while not self._inflate.eof and (
                data := self._inflate.unconsumed_tail or self._file.read(PIECE_BYTES)
            ):
                if found := self._inflate.decompress(data, PIECE_BYTES):
                    return found
            return b""
        assert self._left is not None
        found = self._file.read(min(PIECE_BYTES, self._left))
        self._left -= len(found)
        return found


def _token(name: str) -> str:
    return quote(name, safe="")


def _latin(value: str) -> str:
    """Headers are Latin-1; what is not is escaped, as Cloud Storage does."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return quote(value, safe=" !#$&'()*+,/:;=?@[]\"")
    return value
