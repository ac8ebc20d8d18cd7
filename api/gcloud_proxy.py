"""The proxy that gcloud uses with the exports of `podyard env`: nothing that gcloud asks leaves the
machine.

gcloud sends every request through the proxy in its settings, including those to Podyard. Requests
to Podyard, and to the hosts that it stands for, are answered by the application; all others are
refused with 501 and recorded. Nothing is ever passed on. It listens on loopback and adds no
credential: a caller may do what its own token allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import h11
from anyio import to_thread

from podyard.api.iap.websocket import UPGRADE
from podyard.base.files import write_atomically
from podyard.control.platform import unserved
from podyard.http import google
from podyard.http.gcloud_authority import PROXY_FILE, Contexts
from podyard.http.guard import AUTHORIZATION_PATHS, BODY_BYTES_MAX, LOOPBACK_HOSTS, REVOKE_PATH
from podyard.http.pass_on import HEAD_BYTES_MAX, next_event, pass_on
from podyard.http.tunnels import TAKE_OVER
from podyard.settings import HTTP_PORT

logger = logging.getLogger(__name__)

PORT_AFTER_HTTP = 2  # 8702 by default: 8701 is gRPC's
ADDRESS = "127.0.0.1"
CONNECTIONS_MAX = 256  # at once; `gcloud storage` opens some dozens
_STORAGE_PATHS = (
    "/storage/v1/",
    "/upload/storage/",
    "/download/storage/",
    "/resumable/upload/storage/",
    "/batch/storage/",
)
# What Podyard answers of Google's hosts, below the same paths.
_SERVED: Mapping[str, str | tuple[str, ...]] = {
    "tpu.googleapis.com": "/",
    google.COMPUTE_HOST: "/",
    "oauth2.googleapis.com": ("/token", REVOKE_PATH),
    "accounts.google.com": AUTHORIZATION_PATHS,
    google.SHARED_HOST: "/discovery/v1/apis/tpu/",
}
_STORAGE_HOST = "storage.googleapis.com"


# Status, headers and body.
_Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


class GcloudProxy:
    """`app` is the ASGI application behind its guard; `state` has the platform."""

    def __init__(self, app: Any) -> None:
        self._app = app
        platform = app.state.platform
        self._database = platform.database
        self._contexts = Contexts(platform.settings.data, platform.clock)
        self._storage_port = platform.settings.storage_port
        self._connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection."""
        self._connections += 1
        protocol = writer.transport.get_protocol()
        try:
            if self._connections <= CONNECTIONS_MAX:
                await self._requests(reader, writer, "")
        except (OSError, EOFError, TimeoutError, ValueError, h11.RemoteProtocolError) as error:
            logger.debug("a connection of gcloud's proxy ended early: %s", error)
        finally:
            self._connections -= 1
            writer.close()
            # The end of a websocket is told to whom the connection was given.
            if writer.transport.get_protocol() is protocol:
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        """`host`: whom the client has connected to through us, if it has."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        while True:
            request = await next_event(connection, reader)
            if not isinstance(request, h11.Request):
                return
            target = request.target.decode("latin-1")
            if request.method == b"CONNECT" and not host:
                name = target.rpartition(":")[0].strip("[]").lower().removesuffix(".")
                context = await to_thread.run_sync(self._contexts.of, name)
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await writer.drain()
                await writer.start_tls(context)
                await self._requests(reader, writer, name)
                return
            url = urlsplit(target)
            if self._storage_port is not None and self._asks_storage(host, url):
                there, headers = (ADDRESS, self._storage_port), list(request.headers)
                headers += [(b"x-forwarded-proto", b"https")] if host else []
                if not await pass_on(
                    connection, request, there, _path(url), headers, reader, writer
                ):
                    return
                continue
            body = await _body(connection, reader)
            asked = host or (url.hostname or "").lower().removesuffix(".")
            path = _path(url)
            is_websocket = (b"upgrade", UPGRADE.encode()) in request.headers
            headers = [
                (name, value)
                for name, value in request.headers
                if is_websocket or name not in _HOP_BY_HOP
            ]
            own = "" if host else url.netloc
            extensions = {TAKE_OVER: partial(_give, writer)} if is_websocket else {}
            answered = await self._answer(
                asked, own, request.method.decode(), path, headers, body, extensions
            )
            if answered is None:
                return
            status, answered_headers, answer = answered
            bodyless = request.method == b"HEAD" or status in (204, 304)
            length = [] if bodyless else [(b"content-length", str(len(answer)).encode())]
            event = h11.Response(status_code=status, headers=[*answered_headers, *length])
            writer.write(connection.send(event) or b"")
            if not bodyless:
                writer.write(connection.send(h11.Data(data=answer)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    def _asks_storage(self, host: str, url: SplitResult) -> bool:
        """Return True for Google's host of it, as gsutil asks. Of Podyard's own: by the port, or,
        where `podyard connect` has another one, by the path: only storage has these."""
        name = host or (url.hostname or "").lower().removesuffix(".")
        if name == _STORAGE_HOST or name.endswith(f".{_STORAGE_HOST}"):
            return True
        if host or name not in LOOPBACK_HOSTS:
            return False
        return url.port == self._storage_port or url.path.startswith(_STORAGE_PATHS)

    async def _answer(
        self,
        host: str,
        own: str,
        method: str,
        target: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        extensions: Mapping[str, Any],
    ) -> _Answer | None:
        """`own`: Podyard's own address, if it was asked in the clear."""
        is_own = bool(own) and host in LOOPBACK_HOSTS
        path = target.partition("?")[0]
        served = None if is_own else google.api_path(host, target)
        if served is not None or is_own or (host in _SERVED and path.startswith(_SERVED[host])):
            target = served or target
            name = own.encode() if is_own else ADDRESS.encode()
            kept = [(b"host", name), *((name, value) for name, value in headers if name != b"host")]
            return await _asgi(self._app, method, target, kept, body, extensions)
        await to_thread.run_sync(
            lambda: self._database.run(lambda uow: unserved.record(uow, host, method, path))
        )
        agent = next(
            (value.decode("latin-1") for name, value in headers if name == b"user-agent"), ""
        )
        status, refusal = google.refusal(
            f"{method} {'http' if own else 'https'}://{host}{path}", agent
        )
        return status, [(b"content-type", b"application/json")], json.dumps(refusal).encode()


_HOP_BY_HOP = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade"}
)


def _path(url: SplitResult) -> str:
    return f"{url.path or '/'}{'?' if url.query else ''}{url.query}"


@contextlib.asynccontextmanager
async def running(app: Any) -> AsyncIterator[None]:
    """Serves meanwhile, on the port of the last time if it is free: exports outlive this
    process."""
    settings = app.state.platform.settings
    proxy = GcloudProxy(app)
    server = None
    for port in _ports(settings.data, settings.port):
        with contextlib.suppress(OSError):
            server = await asyncio.start_server(proxy.serve, ADDRESS, port)
            break
    if server is not None:
        chosen = {"port": server.sockets[0].getsockname()[1]}
        write_atomically(settings.data / PROXY_FILE, json.dumps(chosen).encode())
    try:
        yield
    finally:
        if server is not None:
            server.close()


def _ports(data: Path, http_port: int) -> list[int]:
    try:
        before = int(json.loads((data / PROXY_FILE).read_text(encoding="ascii"))["port"])
    except (OSError, ValueError, KeyError, TypeError):
        before = HTTP_PORT + PORT_AFTER_HTTP if http_port == HTTP_PORT else 0
    return [before, 0] if before else [0]


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    """Raises ValueError for a body that is too long."""
    pieces = []
    total = 0
    while isinstance(event := await next_event(connection, reader), h11.Data):
        total += len(event.data)
        if total > BODY_BYTES_MAX:
            raise ValueError(f"a body of more than {BODY_BYTES_MAX} bytes")
        pieces.append(bytes(event.data))
    return b"".join(pieces)


def _give(writer: asyncio.StreamWriter, protocol: asyncio.Protocol, switching: bytes) -> None:
    """Says 101 and gives the connection to `protocol`; its client has said nothing since it
    asked."""
    writer.write(switching)
    writer.transport.set_protocol(protocol)
    protocol.connection_made(writer.transport)


async def _asgi(
    app: Any,
    method: str,
    target: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    extensions: Mapping[str, Any],
) -> _Answer | None:
    """The application's answer; None where it has taken the connection instead."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": headers,
        "client": (ADDRESS, 0),
        "server": (ADDRESS, 0),
        "extensions": dict(extensions),
    }
    answer: dict[str, Any] = {"headers": []}
    pieces: list[bytes] = []
    sent = False

    async def receive() -> Mapping[str, Any]:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.update(message)
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    if "status" not in answer:
        return None
    kept = [
        (name, value)
        for name, value in answer["headers"]
        if name not in (b"content-length", *_HOP_BY_HOP)
    ]
    return int(answer["status"]), kept, b"".join(pieces)
