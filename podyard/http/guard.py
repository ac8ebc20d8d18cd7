"""Default-deny: one ASGI middleware stands before every route, console and API alike.

It refuses foreign Host headers (DNS rebinding), bodies that are too large, and every request
without a valid credential, but for the few public paths below. A credential is a token or a
self-signed JWT (`Authorization: Bearer`, `?access_token=`, `?oauth_token=`, or `/_t/TOKEN/...` for
clients that can send nothing else), or an API key (`?key=`, `x-goog-api-key`). A console session is
a cookie that holds the token; a change made by cookie needs the session's CSRF token and an Origin
of our own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podyard.base.clock import RealClock
from podyard.base.errors import Code, ErrorInfo, PodyardError
from podyard.control.access import identity
from podyard.domain.credential import EXPIRES_HEADER, expires_soon
from podyard.domain.principal import Principal
from podyard.http.errors import answer
from podyard.http.google import API_NAMES, API_PREFIX
from podyard.http.limits import DoorLimits

logger = logging.getLogger(__name__)

# 1 MiB: the largest request is a batch of metrics; programs go to the object store
BODY_BYTES_MAX = 1 << 20
SOURCE_BYTES_MAX = (512 << 20) + BODY_BYTES_MAX  # of a job's source, with the form around it
PRINCIPAL_CACHE_SECONDS = 1.0  # how long a revoked token may still read
PRINCIPAL_CACHE_MAX = 4096
SESSION_COOKIE = "podyard_session"
CSRF_FIELD = "csrf_token"
CREDENTIAL_CHARACTERS_MAX = 4096  # a self-signed JWT has about 900
# Google's paths, old and new, at which a person lets a client act for them.
AUTHORIZATION_PATHS = ("/o/oauth2/auth", "/o/oauth2/v2/auth")
REVOKE_PATH = "/revoke"
# Who asks for a token, for the shape of the API, or whether we live, has no credential yet.
PUBLIC_PATHS = frozenset(
    {
        "/healthz", "/readyz", "/login", "/sign-in", "/favicon.ico", "/token", "/$discovery/rest",
        "/podyard/v1/invitations:accept", "/podyard/v1/agents:join", REVOKE_PATH,
        *AUTHORIZATION_PATHS,
        *(f"{API_PREFIX}{name}.googleapis.com/$discovery/rest" for name in API_NAMES),
    }
)  # fmt: skip
PUBLIC_PREFIXES = ("/static/", "/discovery/v1/apis/")
# What takes the source of a job, or an object: all write it to the disk as it comes.
_SOURCES = re.compile(
    r"/podyard/v1/projects/[^/]+/locations/[^/]+/jobs:upload|/console/[^/]+/jobs/program"
    r"|/console/[^/]+/settings/storage/[^/]+/upload"
)
CAPABILITY_PREFIX = "/_t/"
CONSOLE_PREFIX = "/console"
DOOR = "podyard.door"  # in the scope of a request that came through the door: an AtDoor
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
_LOOPBACK_ADDRESS = re.compile(r"127(\.\d{1,3}){3}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
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


@dataclasses.dataclass(frozen=True, slots=True)
class AtDoor:
    """The result of the door's check: `refusal` is why the request goes no further."""

    limits: DoorLimits
    refusal: PodyardError | None


def client_address(scope: Scope) -> str:
    """Return who is at the other end; "" where nobody says."""
    client = scope.get("client")
    return str(client[0]) if client else ""


class Guard:
    """`authenticate` turns a credential into a principal or refuses it; it may block (it reads the
    database).

    This runs for every request, so it reads the raw headers once and builds nothing that a request
    does not need.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Authenticate,
        clock: RealClock,
        allowed_hosts: frozenset[str] = LOOPBACK_HOSTS,
        body_bytes_max: int | None = BODY_BYTES_MAX,
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._clock = clock
        self._allowed_hosts = allowed_hosts
        self._body_bytes_max = body_bytes_max  # None: routes have limits for theirs
        self._cache: dict[str, tuple[float, Principal]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: C901
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [*message.get("headers", ())]
                names = {name for name, _ in own}
                message["headers"] = [
                    *own,
                    *(header for header in SECURITY_HEADERS if header[0] not in names),
                    *self._expiry(state["principal"]),
                ]
            await send(message)

        headers: dict[bytes, bytes] = dict(scope["headers"])
        state = scope.setdefault("state", {})
        state.update(principal=None, guard=self)
        door: AtDoor | None = scope.get(DOOR)
        try:
            if len(headers) < len(scope["headers"]):
                _check_once(scope)
            if door is None:
                self._check_host(headers)
            elif door.refusal is not None:
                raise door.refusal
            _check_url(scope)
            capability = _strip_capability(scope)
            if not is_public(scope["path"]):
                credential, by_cookie = _credential(scope, headers, capability)
                state["principal"] = await self._principal(credential, scope["method"])
                state["token"] = credential
                if door is not None:
                    door.limits.on_caller(_caller_key(state["principal"]))
                if by_cookie:
                    state["by_cookie"] = True
                    _check_same_site(scope, headers)
            body = receive if self._body_bytes_max is None else _limit_body(scope, receive, headers)
        except PodyardError as error:
            if door is not None and error.code is Code.UNAUTHENTICATED:
                door.limits.on_refused(client_address(scope))
            await _refusal(scope, error)(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, body, send_guarded)
        except _TooLarge as error:
            await answer(error, 413)(scope, receive, send_guarded)
        except PodyardError as error:
            # Of the middleware behind this one; routes answer for themselves.
            await answer(error)(scope, receive, send_guarded)
        except ClientDisconnect:
            # It has gone in the middle of its request: there is nobody to answer, and nothing of
            # ours has failed.
            logger.info("%s %s: the client has disconnected", scope["method"], scope["path"])

    def _check_host(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        check_host(host)
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        # A host's programs know services by its address, which no page of another site can take as
        # its name.
        if name not in self._allowed_hosts and not _LOOPBACK_ADDRESS.fullmatch(name):
            raise PodyardError(Code.PERMISSION_DENIED, f"Host {name!r} is not this server's name")

    def _expiry(self, principal: Principal | None) -> tuple[tuple[bytes, bytes], ...]:
        """The header that says when the caller's token ends, if that is soon."""
        if (
            principal is None
            or principal.expires is None
            or not expires_soon(principal.expires, self._clock.now())
        ):
            return ()
        return ((EXPIRES_HEADER.encode(), principal.expires.rfc3339().encode()),)

    async def _principal(self, credential: str, method: str) -> Principal:
        """Return the caller. What a person writes, such as another token, is checked in the
        database: a revoked token reads for a second more, and changes nothing. Agents and replicas
        report twice a second and mint nothing."""
        known = self._cache.get(credential)
        if known is not None and known[0] > self._clock.monotonic_seconds():
            is_machine = known[1].agent_id is not None or known[1].attempt_id is not None
            if method in SAFE_METHODS or is_machine:
                return known[1]
        return await self._look_up(credential)

    async def _look_up(self, credential: str) -> Principal:
        if len(credential) > CREDENTIAL_CHARACTERS_MAX:
            raise identity.credential_error(
                "ACCESS_TOKEN_TYPE_UNSUPPORTED", identity.INVALID_CREDENTIALS
            )
        now, cache = self._clock.monotonic_seconds(), self._cache
        principal = await to_thread.run_sync(self._authenticate, credential)
        if len(cache) >= PRINCIPAL_CACHE_MAX:
            cache.clear()
        cache[credential] = (now + PRINCIPAL_CACHE_SECONDS, principal)
        return principal

    def forget(self) -> None:
        """Look every caller up at their next request. A look-up that is under way may have read the
        roles of before: it keeps its answer in the cache that is dropped."""
        self._cache = {}


def forget_principals(request: Request) -> None:
    """Let a change of roles be in force at the next request of this process; other processes (of
    storage, or more of the API) follow within `PRINCIPAL_CACHE_SECONDS`."""
    guard: Guard = request.state.guard
    guard.forget()


def check_host(host: str) -> None:
    """Raise INVALID_ARGUMENT unless a Host header is a name or an address with at most a port (RFC
    9110, 7.2). A proxy may read `a@b` or `a:1@b` as another host's."""
    if host and not _HOST.fullmatch(host):
        raise PodyardError(
            Code.INVALID_ARGUMENT, f"Host {host!r} is not a host name with an optional port"
        )


def _caller_key(principal: Principal) -> str:
    """Return who a request counts for: each agent and each replica for itself."""
    return principal.attempt_id or principal.agent_id or principal.email


def _check_url(scope: Scope) -> None:
    """No id, filter or token holds NUL, and PostgreSQL cannot even look for it."""
    if b"%00" in scope["query_string"] or "\0" in scope["path"]:
        raise PodyardError(Code.INVALID_ARGUMENT, "the URL holds NUL")


def is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIXES)


def _strip_capability(scope: Scope) -> str | None:
    """`/_t/TOKEN/rest`: returns TOKEN and leaves `/rest`, so that neither routes nor logs ever see
    it."""
    path: str = scope["path"]
    if not path.startswith(CAPABILITY_PREFIX):
        return None
    token, _, rest = path[len(CAPABILITY_PREFIX) :].partition("/")
    raw: bytes = scope.get("raw_path") or path.encode()
    scope["path"] = f"/{rest}"
    # A token holds no character that is ever escaped, so its length is the same in both.
    scope["raw_path"] = raw[len(CAPABILITY_PREFIX) + len(token) :] or b"/"
    scope["state"]["capability_prefix"] = f"{CAPABILITY_PREFIX}{token}"
    return token


def _credential(
    scope: Scope, headers: Mapping[bytes, bytes], capability: str | None
) -> tuple[str, bool]:
    """(credential, whether it came by cookie); raises UNAUTHENTICATED when there is none, or one of
    another kind.

    What the caller says on purpose goes before the cookie that a browser adds; a bad Authorization
    header counts as a bad credential, whatever else is there.
    """
    header = headers.get(b"authorization")
    if header is not None:
        scheme, _, value = header.decode("latin-1").partition(" ")
        token: str | None = value.strip() if scheme.lower() == "bearer" else ""
    else:
        key = headers.get(b"x-goog-api-key")
        key_text = None if key is None else key.decode("latin-1")
        token = capability
        query: bytes = scope["query_string"]
        if b"key=" in query or b"_token=" in query:
            asked = parse_qs(query.decode("latin-1"))
            token = token or _only(asked, "access_token") or _only(asked, "oauth_token")
            key_text = key_text or _only(asked, "key")
        if token is None and key_text is not None:
            if not key_text.startswith(identity.API_KEY_PREFIX):
                raise identity.api_key_not_valid()
            return key_text, False
        if token is None:
            cookie = _session(headers)
            if cookie is not None:
                return cookie, True
            raise identity.credential_error(
                "CREDENTIALS_MISSING",
                "Request is missing required authentication credential. Expected OAuth 2 access "
                "token, login cookie or "
                "other valid authentication credential: 'Authorization: Bearer TOKEN' (see "
                "`podyard env`).",
            )
    if not token or token.startswith(identity.API_KEY_PREFIX):
        raise identity.credential_error(
            "ACCESS_TOKEN_TYPE_UNSUPPORTED", identity.INVALID_CREDENTIALS
        )
    return token, False


def _check_once(scope: Scope) -> None:
    """Raises INVALID_ARGUMENT for a repeated header that names the caller or the host: a reader of
    the other one (a proxy, a log) would attribute the request to another caller."""
    names = [name for name, _ in scope["headers"]]
    for name in (b"authorization", b"x-goog-api-key", b"host"):
        if names.count(name) > 1:
            raise PodyardError(
                Code.INVALID_ARGUMENT, f"the request has more than one {name.decode()} header"
            )


def _only(asked: Mapping[str, list[str]], name: str) -> str | None:
    found = asked.get(name, ())
    return found[0] if len(found) == 1 else None


def _session(headers: Mapping[bytes, bytes]) -> str | None:
    header = headers.get(b"cookie")
    return None if header is None else cookie_parser(header.decode("latin-1")).get(SESSION_COOKIE)


def _check_same_site(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """A form of another site must not act with the cookie: Origin must be ours. Forms carry the
    CSRF token besides."""
    if scope["method"] in SAFE_METHODS:
        return
    origin = headers.get(b"origin")
    if origin is None or urlsplit(origin.decode("latin-1")).netloc != headers.get(
        b"host", b""
    ).decode("latin-1"):
        raise PodyardError(
            Code.PERMISSION_DENIED,
            "a change made from the console must come from the console's pages",
        )


def _refusal(scope: Scope, error: PodyardError) -> Response:
    if error.code is not Code.UNAUTHENTICATED:
        return answer(error, 413 if isinstance(error, _TooLarge) else None)
    path = scope["path"]
    if scope["method"] == "GET" and (path == "/" or path.startswith(CONSOLE_PREFIX)):
        return RedirectResponse("/login", status_code=303)
    response = answer(error)
    if not any(
        isinstance(item, ErrorInfo) and item.reason == "CREDENTIALS_MISSING"
        for item in error.details
    ):
        # RFC 6750, section 3.1
        response.headers["WWW-Authenticate"] = 'Bearer realm="podyard", error="invalid_token"'
    return response


def csrf_token(session_token: str) -> str:
    """The CSRF token of a session: nobody who cannot read the cookie can make it."""
    return hmac.new(session_token.encode(), b"podyard csrf", hashlib.sha256).hexdigest()


def check_csrf(request: Request, given: str | None) -> None:
    """Raises PERMISSION_DENIED when a change made by cookie does not carry the session's CSRF
    token."""
    state = request.scope["state"]
    if not state.get("by_cookie"):
        return
    expected = csrf_token(state["token"])
    if given is None or not hmac.compare_digest(given, expected):
        raise PodyardError(
            Code.PERMISSION_DENIED, "this form is too old: reload the page and try again"
        )


class _TooLarge(PodyardError):
    def __init__(self, most: int) -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"the request's body is larger than {most} bytes")


def _limit_body(scope: Scope, receive: Receive, headers: Mapping[bytes, bytes]) -> Receive:
    """`receive`, refusing more bytes than the path takes. Only a body that no Content-Length bounds
    is counted: the server holds the others to theirs."""
    takes_source = scope["method"] == "POST" and _SOURCES.fullmatch(scope["path"]) is not None
    most = SOURCE_BYTES_MAX if takes_source else BODY_BYTES_MAX
    length = headers.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length) > most):
        raise _TooLarge(most)
    bounded = length is not None or scope["method"] in SAFE_METHODS
    return (
        receive if bounded and b"transfer-encoding" not in headers else _count_body(receive, most)
    )


def _count_body(receive: Receive, most: int) -> Receive:
    total = 0

    async def count() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > most:
            raise _TooLarge(most)
        return message

    return count
