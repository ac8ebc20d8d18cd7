"""HTTP around Google's wire: HEAD, and gzip in both directions.

HEAD answers as GET does, without the body (RFC 9110, section 9.3.2). Answers are compressed for who
accepts gzip, as Google's are (googleapis.github.io/google-api-python-client/docs/performance.html).
A compressed request is taken, too, as several of Google's APIs do; that Cloud TPU does is
unverified.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podyard.base.errors import invalid
from podyard.http.guard import BODY_BYTES_MAX

GZIP_BYTES_MIN = 1024  # below, an answer fits in one packet either way
# a list of 500 nodes in some milliseconds; higher levels take longer for a few per cent
GZIP_LEVEL = 5
_PREFIXES = (
    "/v1/", "/v1alpha1/", "/v2/", "/v2alpha1/", "/compute/", "/discovery/", "/$discovery/",
)  # fmt: skip
_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to say that a gzip header comes first


class Encoding:
    """Middleware for the paths of Google's APIs; all others pass by untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(
            app, minimum_size=GZIP_BYTES_MIN, compresslevel=GZIP_LEVEL
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_PREFIXES):
            await self._app(scope, receive, send)
            return
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"gzip"):
            raise invalid(
                f"Content-Encoding {encoding.decode('latin-1')!r} is not supported: use gzip"
            )
        if encoding == b"gzip":
            receive = _plain(receive)
        if scope["method"] == "HEAD":
            # The server keeps its own scope, so it knows that no body belongs to this answer.
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        await self._compressed(scope, receive, send)


def _plain(receive: Receive) -> Receive:
    """The request without its compression. It is read whole: a body is at most `BODY_BYTES_MAX`,
    before and after."""
    read = False

    async def receive_plain() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        parts = []
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return message
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        return {"type": "http.request", "body": _inflate(b"".join(parts)), "more_body": False}

    return receive_plain


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj(_GZIP)
    try:
        body = inflater.decompress(data, BODY_BYTES_MAX + 1)
    except zlib.error as error:
        raise invalid(f"the request's body is not gzip: {error}") from None
    if len(body) > BODY_BYTES_MAX:
        raise invalid(
            f"the request's body is larger than {BODY_BYTES_MAX} bytes when it is decompressed"
        )
    if not inflater.eof or inflater.unused_data:
        raise invalid("the request's body must be one complete gzip stream")
    return body


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head
