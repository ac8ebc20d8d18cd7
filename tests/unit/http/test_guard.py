"""The guard before every route: nothing without a credential, nothing too large, and little work
per request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from podyard import migrations
from podyard.api.app import create_app, prepare
from podyard.base.clock import ManualClock, RealTime
from podyard.control.access import identity
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.principal import Principal
from podyard.http.guard import (
    BODY_BYTES_MAX,
    CREDENTIAL_CHARACTERS_MAX,
    LOOPBACK_HOSTS,
    PRINCIPAL_CACHE_MAX,
    PRINCIPAL_CACHE_SECONDS,
    Guard,
)
from podyard.settings import from_environment
from podyard.web.front.pages import router as console
from tests.waiting import patient

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
# Who asks for these has no credential yet.
PUBLIC = {
    "/healthz", "/readyz", "/login", "/favicon.ico", "/token",
    "/$discovery/rest", "/revoke", "/o/oauth2/auth", "/o/oauth2/v2/auth",
    "/podyard/v1/invitations:accept",
    "/podyard/v1/agents:join", "/sign-in",
}  # fmt: skip
PUBLIC_FOLDERS = ("/static", "/discovery/v1/apis/")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Inner:
    """The app behind the guard: says what it was given."""

    def __init__(self) -> None:
        self.asked = 0
        self.clock = ManualClock(START)
        self.guard = Guard(self.app, self.authenticate, self.clock, LOOPBACK_HOSTS)

    def authenticate(self, credential: str) -> Principal:
        self.asked += 1
        if not credential.startswith(("good", identity.API_KEY_PREFIX)):
            raise identity.credential_error("ACCESS_TOKEN_TYPE_UNSUPPORTED", "no")
        return Principal(credential, {})

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = scope["state"]["principal"]
        body = await Request(scope, receive).body()
        found = {"who": principal and principal.email, "path": scope["path"], "bytes": len(body)}
        await JSONResponse(found)(scope, receive, send)

    def ask(self, path: str = "/x", method: str = "GET", **options: Any) -> httpx.Response:
        return ask(self.guard, path, method, **options)


def ask(
    app: Any, path: str, method: str = "GET", base: str = "http://127.0.0.1:8700", **options: Any
) -> httpx.Response:
    async def work() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
            return await client.request(method, path, **options)

    return anyio.run(work)


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    settings = from_environment({"PODYARD_DATA": str(tmp_path)})
    database = Database(settings.database_url, ManualClock(START))
    migrations.upgrade(database)
    prepare(settings, database)
    yield create_app(settings, database, instant_fleet(), ManualClock(START), lambda: (console,))
    database.close()


def _paths(routes: Any, prefix: str = "") -> Iterator[str]:
    for route in routes:
        # Newer FastAPIs keep an included router as it is, older ones copy its routes.
        inside = getattr(getattr(route, "original_router", route), "routes", None)
        if isinstance(route, Mount):
            yield f"{prefix}{route.path}/x"
        if inside:
            yield from _paths(inside, prefix + getattr(route, "path", ""))
        elif getattr(route, "path", ""):
            yield prefix + route.path


@pytest.mark.slow
def test_every_route_but_the_few_public_ones_needs_a_credential(app: FastAPI) -> None:
    """It walks the app's own list of routes, so that a new one cannot be forgotten."""
    paths = sorted(set(_paths(app.routes)))
    assert len(paths) > 50
    assert {"/podyard/v1/whoami", "/podyard/v1/clock", "/metrics"} <= set(paths)
    for path in paths:
        given = path.replace("{", "").replace("}", "").replace(":path", "")
        if path in PUBLIC or path.startswith(PUBLIC_FOLDERS):
            continue
        for method in METHODS:
            response = ask(app, given, method)
            page = method == "GET" and (path == "/" or path.startswith("/console"))
            assert response.status_code == (303 if page else 401), (method, path)
            if page:
                assert response.headers["location"] == "/login"
            elif method != "HEAD":
                assert response.json()["error"]["status"] == "UNAUTHENTICATED", (method, path)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "/healthz/x", "/healthzx", "/tokens", "/token/", "//healthz",
        "/healthz/../metrics", "/static",
        "/discovery/v1/apisx", "/$discovery/rest/x", "/HEALTHZ", "/_t", "/_tx/good/healthz",
        "/login/x",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_public_path_is_none(inner: Inner, path: str) -> None:
    scope_path = {"path": path}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # as written: no client tidies it up
        await inner.guard({**scope, **scope_path}, receive, send)

    assert ask(app, "/").status_code == 401


@pytest.mark.parametrize(
    "path", ["/token", "/%24discovery/rest", "/$discovery/rest?version=v2", "/static/a.css"]
)
def test_a_public_path_asks_nobody_even_with_a_bad_credential(inner: Inner, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer bad"}):
        assert inner.ask(path, headers=headers).json()["who"] is None
    assert inner.asked == 0


def test_a_principal_is_looked_up_once_a_second(inner: Inner) -> None:
    headers = {"Authorization": "bearer good"}
    assert [inner.ask(headers=headers).json()["who"] for _ in range(3)] == ["good"] * 3
    assert inner.asked == 1
    inner.clock.advance(PRINCIPAL_CACHE_SECONDS)
    inner.ask(headers=headers)
    assert inner.asked == 2


@pytest.mark.slow
def test_a_refused_credential_is_not_kept_and_the_others_are_bounded(inner: Inner) -> None:
    for _ in range(2):
        assert inner.ask(headers={"Authorization": "Bearer bad"}).status_code == 401
    assert inner.asked == 2

    async def many() -> None:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(inner.guard), base_url="http://localhost"
        ) as client:
            for number in range(PRINCIPAL_CACHE_MAX + 10):
                await client.get("/x", headers={"Authorization": f"Bearer good{number}"})

    anyio.run(many)
    assert len(inner.guard._cache) <= PRINCIPAL_CACHE_MAX
    long = "good" + "a" * CREDENTIAL_CHARACTERS_MAX
    asked = inner.asked
    assert inner.ask(headers={"Authorization": f"Bearer {long}"}).status_code == 401
    assert inner.asked == asked


def test_a_credential_said_on_purpose_goes_before_the_cookie(inner: Inner) -> None:
    cookie = {"Cookie": "a=b; podyard_session=good-cookie"}
    key = f"{identity.API_KEY_PREFIX}k"
    assert inner.ask(headers=cookie).json()["who"] == "good-cookie"
    assert inner.ask(headers={**cookie, "Authorization": "Bearer good"}).json()["who"] == "good"
    assert inner.ask("/x?access_token=good", headers=cookie).json()["who"] == "good"
    assert inner.ask(f"/x?key={key}", headers=cookie).json()["who"] == key
    assert inner.ask("/_t/good/x", headers=cookie).json() == {
        "who": "good",
        "path": "/x",
        "bytes": 0,
    }
    assert inner.ask(headers={**cookie, "Authorization": ""}).status_code == 401


def test_a_change_by_cookie_must_come_from_our_own_pages(inner: Inner) -> None:
    cookie = {"Cookie": "podyard_session=good"}
    assert inner.ask(method="POST", headers=cookie).status_code == 403
    assert (
        inner.ask(method="POST", headers={**cookie, "Origin": "http://evil.example"}).status_code
        == 403
    )
    assert (
        inner.ask(method="POST", headers={**cookie, "Origin": "http://127.0.0.1:8700"}).status_code
        == 200
    )
    # A token that a page of another site would have to know is not a cookie that it could borrow.
    assert (
        inner.ask(
            "/x?access_token=good", "POST", headers={"Origin": "http://evil.example"}
        ).status_code
        == 200
    )


def test_another_host_s_name_is_refused(inner: Inner) -> None:
    headers = {"Authorization": "Bearer good"}
    for base in ("http://evil.example", "http://127.0.0.1.evil.example:8700"):
        assert ask(inner.guard, "/x", base=base, headers=headers).status_code == 403
    for base in ("http://localhost:1", "http://127.0.0.1", "http://[::1]:8700"):
        assert ask(inner.guard, "/x", base=base, headers=headers).status_code == 200


def _stream(size: int) -> Callable[[], AsyncIterator[bytes]]:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(0, size, 1 << 16):
            yield b"a" * (1 << 16)

    return chunks


def test_a_body_is_bounded_with_a_length_and_without(inner: Inner) -> None:
    headers = {"Authorization": "Bearer good"}
    for method in ("POST", "GET"):
        fits = inner.ask(method=method, headers=headers, content=b"a" * BODY_BYTES_MAX)
        assert fits.json()["bytes"] == BODY_BYTES_MAX
        assert (
            inner.ask(
                method=method, headers=headers, content=b"a" * (BODY_BYTES_MAX + 1)
            ).status_code
            == 413
        )
        chunked = inner.ask(method=method, headers=headers, content=_stream(BODY_BYTES_MAX)())
        assert chunked.json()["bytes"] == BODY_BYTES_MAX
        assert (
            inner.ask(
                method=method, headers=headers, content=_stream(BODY_BYTES_MAX + 1)()
            ).status_code
            == 413
        )
    assert inner.ask(method="POST", headers={**headers, "Content-Length": "-1"}).status_code == 413


def test_a_response_that_is_sent_twice_has_its_headers_once(inner: Inner) -> None:
    constant = Response("same")

    async def same(scope: Scope, receive: Receive, send: Send) -> None:
        await constant(scope, receive, send)

    guard = Guard(same, inner.authenticate, inner.clock, LOOPBACK_HOSTS)
    for _ in range(2):
        response = ask(guard, "/healthz")
        assert response.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.slow
def test_the_api_starts_without_the_libraries_that_few_requests_need() -> None:
    script = (
        "import sys, podyard.api.app, podyard.web.front.pages; print({'cryptography', 'jwt'} & "
        "set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert (done.returncode, done.stdout.strip()) == (0, "set()"), done.stderr
