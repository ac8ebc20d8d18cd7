"""Several calls in one request, each as an HTTP request in a part of multipart/mixed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from email import message_from_bytes
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from podyard.base.errors import invalid

# Google allows 100 calls of storage and 1000 of other APIs; gcsfs sends more than 100
CALLS_MAX = 1000
AT_ONCE = 16

Respond = Callable[[Request], Awaitable[Response]]


async def answer(request: Request, body: bytes, respond: Respond) -> Response:
    """`respond` answers each call, which has the caller of `request`. Raises INVALID_ARGUMENT for a
    body that is not a batch."""
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode("latin-1")
    message = message_from_bytes(head + body)
    if not message.is_multipart():
        raise invalid("the batch is not multipart/mixed")
    parts = cast("list[Any]", message.get_payload())
    if len(parts) > CALLS_MAX:
        raise invalid(f"the batch has {len(parts)} calls: at most {CALLS_MAX} are allowed")
    room = asyncio.Semaphore(AT_ONCE)

    async def call(part: Any) -> bytes:
        async with room:
            return await _call(request, part, respond)

    answers = await asyncio.gather(*map(call, parts))
    boundary = f"batch_{secrets.token_hex(12)}"
    content = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), found) for found in answers)
    kind = f"multipart/mixed; boundary={boundary}"
    return Response(content + b"--%s--\r\n" % boundary.encode(), media_type=kind)


async def _call(request: Request, part: Any, respond: Respond) -> bytes:
    payload = part.get_payload(decode=True) or b""
    line, _, rest = payload.lstrip().partition(b"\n")
    words = line.decode("latin-1").split()
    if len(words) < 2:
        raise invalid("a part of the batch is not an HTTP request")
    head, _, body = rest.replace(b"\r\n", b"\n").partition(b"\n\n")
    headers = [
        (name.strip().lower(), value.strip())
        for name, _, value in (h.partition(b":") for h in head.split(b"\n"))
    ]
    url = urlsplit(words[1])
    prefix = request.scope["state"].get("capability_prefix", "")
    path = url.path.removeprefix(prefix)
    own = [
        (name, value)
        for name, value in request.scope["headers"]
        if name in (b"host", b"x-forwarded-proto")
    ]
    scope = {
        **request.scope,
        "method": words[0].upper(),
        "path": unquote(path),
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": url.query.encode("latin-1", "replace"),
        "headers": [*own, *((name, value) for name, value in headers if name and name != b"host")],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body.rstrip(b"\n"), "more_body": False}

    inner = Request(scope, receive)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    response = await respond(inner)
    await response(scope, receive, send)
    status = sent[0]["status"]
    lines = [
        f"HTTP/1.1 {status} {_PHRASES.get(status, 'OK' if status < 400 else 'Error')}".encode()
    ]
    lines += [b"%s: %s" % (name, value) for name, value in sent[0]["headers"]]
    number = (part.get("Content-ID") or "").strip("<>")
    heads = b"Content-Type: application/http\r\n" + (
        f"Content-ID: <response-{number}>\r\n".encode() if number else b""
    )
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return heads + b"\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + content


_PHRASES = {
    204: "No Content",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    412: "Precondition Failed",
}
