"""A browser's session: a cookie that holds the token, which no script can read and no other site
can send."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from podyard.base.errors import Code, PodyardError
from podyard.http.guard import SESSION_COOKIE


def check_own_form(request: Request) -> None:
    """Raises PERMISSION_DENIED for a sign-in that another site's form sends: its visitor would act
    as another user."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise PodyardError(Code.PERMISSION_DENIED, "another site's form cannot sign you in")


def start_session(request: Request, response: Response, token: str) -> Response:
    """`response`, which signs the browser in with `token`."""
    secure = request.url.scheme == "https"
    response.set_cookie(
        SESSION_COOKIE, token, httponly=True, samesite="strict", secure=secure, path="/"
    )
    return response


def end_session(response: Response) -> Response:
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    return response
