"""The one error envelope, for every path and every failure."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Mount

from podyard.base import error_details
from podyard.base.errors import Code, PodyardError
from podyard.http.limits import TooManyRequests

logger = logging.getLogger(__name__)

_CODE_OF_STATUS = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    409: Code.ABORTED,
    413: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    503: Code.UNAVAILABLE,
}


RETRY_AFTER_SECONDS = 1  # what a restart of the API or of a database at hand takes
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def envelope(error: PodyardError, status: int | None = None) -> dict[str, Any]:
    """`{"error": {code, message, status, details}}`: `code` is the HTTP status, `status` the
    google.rpc name."""
    body: dict[str, Any] = {
        "code": error.code.http_status if status is None else status,
        "message": error.message,
        "status": error.code.name,
    }
    if error.details:
        body["details"] = [error_details.to_json(detail) for detail in error.details]
    return {"error": body}


def answer(
    error: PodyardError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    headers = dict(headers or {})
    if error.code is Code.UNAVAILABLE:
        headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_seconds)
    if error.code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = 'Bearer realm="podyard"'
    status = error.code.http_status if status is None else status
    # A message may repeat what a client sent, and JSON can spell half of a surrogate pair, which
    # UTF-8 cannot.
    content = json.dumps(envelope(error, status), ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def _allowed_methods(request: Request, error: HTTPException) -> str:
    """Return what is possible on a path (RFC 9110, section 15.5.6). A route knows its own methods
    only, and the next route may have others; a mounted application has named all."""
    routes = [route for route in request.scope["router"].routes if not isinstance(route, Mount)]
    found = [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    ]
    return ", ".join(found) or (error.headers or {}).get("Allow", "")


def install(app: Starlette) -> None:
    async def known_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, PodyardError)
        return answer(error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _CODE_OF_STATUS.get(error.status_code, Code.UNKNOWN)
        if error.status_code == 404:
            text = f"The requested URL {request.url.path} was not found on this server"
        elif error.status_code == 405:
            text = f"{request.method} is not possible on {request.url.path}"
        else:
            text = str(error.detail)
        headers = {"Allow": _allowed_methods(request, error)} if error.status_code == 405 else None
        return answer(PodyardError(code, text), error.status_code, headers)

    async def unknown_error(request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(PodyardError(Code.INTERNAL, "Internal error; the server's log says more"))

    app.add_exception_handler(PodyardError, known_error)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unknown_error)
