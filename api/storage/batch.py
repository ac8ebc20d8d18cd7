"""Several calls of the JSON API in one request."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from podyard.api.storage import bodies
from podyard.api.wire import batch
from podyard.base.errors import invalid

BODY_BYTES_MAX = 10 << 20


async def handle(request: Request) -> Response:
    body = bytearray()
    async for piece in bodies.pieces(request):
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise invalid(f"the batch is larger than {BODY_BYTES_MAX} bytes")
    return await batch.answer(request, bytes(body), request.app.respond)
