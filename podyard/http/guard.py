"""Default-deny: one ASGI middleware stands before every route, console and API alike.

It refuses foreign Host headers (DNS rebinding), bodies that are too large, and every request without a valid token,
but for the few public paths below. A console session is a cookie that holds the token; a change made by cookie needs
the session's CSRF token and an Origin of our own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.domain.principal import Principal
from podyard.http.errors import answer

BODY_BYTES_MAX = 1 << 20  # 1 MiB: the largest request is a batch of metrics; programs go to the object store
PRINCIPAL_CACHE_SECONDS = 1.0  # how long a revoked token may still work
PRINCIPAL_CACHE_MAX = 4096
SESSION_COOKIE = "podyard_session"
CSRF_FIELD = "csrf_token"
CSRF_HEADER = "x-podyard-csrf"
PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/login", "/favicon.ico"})
PUBLIC_PREFIXES = ("/static/",)
CONSOLE_PREFIX = "/console"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"; ".join(
            (
                b"default-src 'self'",
                b"script-src 'self'",
                b"style-src 'self'",
                b"img-src 'self' data:",
                b"frame-ancestors 'none'",
                b"form-action 'self'",
                b"base-uri 'none'",
            )
        ),
    ),
)

Authenticate = Callable[[str], Principal]


class Guard:
    """`authenticate` turns a token into a principal or raises UNAUTHENTICATED; it may block (it reads the database)."""

    def __init__(
        self, app: ASGIApp, authenticate: Authenticate, clock: RealClock, allowed_hosts: frozenset[str] | None
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._clock = clock
        self._allowed_hosts = allowed_hosts  # None: bound elsewhere than loopback, any name may be right
        self._cache: dict[str, tuple[float, Principal]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", []).extend(SECURITY_HEADERS)
            await send(message)

        try:
            self._check_host(request)
            scope.setdefault("state", {})["principal"] = await self._principal(request)
            body = _Limited(receive, request.headers.get("content-length"))
        except PodyardError as error:
            response = answer(error, 413 if isinstance(error, _TooLarge) else None)
            if error.code is Code.UNAUTHENTICATED and _wants_page(request):
                response = RedirectResponse("/login", status_code=303)
            await response(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, body, send_guarded)
        except _TooLarge as error:
            await answer(error, 413)(scope, receive, send_guarded)

    def _check_host(self, request: Request) -> None:
        host = request.headers.get("host", "")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self._allowed_hosts is not None and name not in self._allowed_hosts:
            raise PodyardError(Code.PERMISSION_DENIED, f"Host {name!r} is not this server's name")

    async def _principal(self, request: Request) -> Principal | None:
        path = request.url.path
        token, by_cookie = _token(request)
        if token is None:
            if path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIXES):
                return None
            raise PodyardError(
                Code.UNAUTHENTICATED,
                "Request is missing required authentication credential. Expected a token: "
                "'Authorization: Bearer TOKEN' (see `podyard env`).",
            )
        if path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIXES):
            return None
        principal = await self._known(token)
        if by_cookie and request.method not in SAFE_METHODS:
            await _check_same_site(request)
        request.scope["state"]["token"] = token
        request.scope["state"]["by_cookie"] = by_cookie
        return principal

    async def _known(self, token: str) -> Principal:
        now = self._clock.monotonic_seconds()
        found = self._cache.get(token)
        if found is not None and found[0] > now:
            return found[1]
        principal = await to_thread.run_sync(self._authenticate, token)
        if len(self._cache) >= PRINCIPAL_CACHE_MAX:
            self._cache.clear()
        self._cache[token] = (now + PRINCIPAL_CACHE_SECONDS, principal)
        return principal


def csrf_token(session_token: str) -> str:
    """The CSRF token of a session: nobody who cannot read the cookie can make it."""
    return hmac.new(session_token.encode(), b"podyard csrf", hashlib.sha256).hexdigest()


def _token(request: Request) -> tuple[str | None, bool]:
    """(token, whether it came by cookie). A bad Authorization header is no token at all, whatever the cookie says."""
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, value = header.partition(" ")
        return (value.strip() if scheme.lower() == "bearer" else ""), False
    cookie = request.cookies.get(SESSION_COOKIE)
    return cookie, cookie is not None


async def _check_same_site(request: Request) -> None:
    """A form of another site must not act with the cookie: Origin must be ours. Forms carry the CSRF token besides."""
    origin = request.headers.get("origin")
    if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
        raise PodyardError(Code.PERMISSION_DENIED, "a change made from the console must come from the console's pages")


def check_csrf(request: Request, given: str | None) -> None:
    """Raises PERMISSION_DENIED when a change made by cookie does not carry the session's CSRF token."""
    state = request.scope["state"]
    if not state.get("by_cookie"):
        return
    expected = csrf_token(state["token"])
    if given is None or not hmac.compare_digest(given, expected):
        raise PodyardError(Code.PERMISSION_DENIED, "this form is too old: reload the page and try again")


def _wants_page(request: Request) -> bool:
    path = request.url.path
    return request.method == "GET" and (path == "/" or path.startswith(CONSOLE_PREFIX))


class _TooLarge(PodyardError):
    def __init__(self) -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"the request's body is larger than {BODY_BYTES_MAX} bytes")


class _Limited:
    """`receive`, refusing more than `BODY_BYTES_MAX` bytes."""

    def __init__(self, receive: Receive, content_length: str | None) -> None:
        self._receive = receive
        self._bytes = 0
        if content_length is not None and (not content_length.isdigit() or int(content_length) > BODY_BYTES_MAX):
            raise _TooLarge()

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > BODY_BYTES_MAX:
            raise _TooLarge()
        return message
