"""The proxy of one `podyard run`: Google's TPU hosts lead to a Podyard, its other hosts nowhere,
all others to where they are.

It listens on loopback, for processes of this user only, since clients get the user's token. It ends
TLS for the hosts that it stands for, and passes on every other connection as it is, through the
user's own proxy where there is one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from typing_extensions import override

from podyard.base.errors import Code
from podyard.cli.redirect import google as redirect_google
from podyard.cli.redirect.google import Refusals
from podyard.cli.redirect.metadata import METADATA_HOSTS, Metadata
from podyard.cli.redirect.tunnel import CONNECT_SECONDS_MAX, Upstream, pipe
from podyard.http.google import BILLING_HOST, api_path, refusal

TPU_HOST = "tpu.googleapis.com"
TOKEN_HOST = "oauth2.googleapis.com"  # its /token only is what we stand for
REDIRECTED = (TPU_HOST, TOKEN_HOST, BILLING_HOST)
CONNECTIONS_MAX = 512  # of one command; more is a loop that leaks them
# between two requests of a client: libraries keep a connection for minutes
HEAD_SECONDS_MAX = 300.0
ANSWER_SECONDS_MAX = 60.0  # the server answers within 30 s or says that it is busy
BODY_BYTES_MAX = 2 << 20  # the server takes half of it
HEAD_BYTES_MAX = 1 << 16
_PIECE_BYTES = 1 << 16
_STORAGE_PIECE_BYTES = 1 << 18
_OF_ONE_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authorization", "proxy-connection"}
)  # its body stays as it is
_HOP_BY_HOP = _OF_ONE_HOP | frozenset(
    {
        "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
CONNECTION_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# Local and remote port of a connection from 127.0.0.1 to itself (in tcp6: written as an IPv6
# address), and the user id.
_LOOPBACK = "(?:0{16}FFFF0000)?0100007F"
_CONNECTION = re.compile(
    rf"\s*\d+: {_LOOPBACK}:(\w{{4}}) {_LOOPBACK}:(\w{{4}}) \w+ \S+ \S+ \w+\s+(\d+) "
)


class Proxy(socketserver.ThreadingTCPServer):
    """Serves in its threads between `start` and `close`.

    `contexts`: as TPU hosts, and as Google's other ones, for which only HTTP/1.1 is spoken. `grpc`:
    (host, port) of a gRPC front in the clear. `refuses_google`: its other hosts get nothing;
    else they are passed on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    own_port = 0  # 0: any

    def __init__(
        self,
        url: str,
        contexts: Sequence[ssl.SSLContext],
        metadata: Metadata,
        upstream: Upstream,
        grpc: tuple[str, int] | None,
        refuses_google: bool,
        storage_url: str | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", self.own_port), _Connection)
        self.storage_url = None if storage_url is None else urlsplit(storage_url)
        self.url = urlsplit(url)
        self.tpu_context, self.google_context = contexts
        self.metadata = metadata
        self.upstream = upstream
        self.grpc = grpc
        self.refuses_google = refuses_google
        self.refusals = Refusals()
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.05,), name="podyard-proxy", daemon=True
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def stands_for(self, host: str) -> bool:
        return host in REDIRECTED or (self.refuses_google and redirect_google.is_google(host))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    @override
    def verify_request(self, request: Any, client_address: Any) -> bool:
        return is_own(client_address[1], self.server_address[1])

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection is the client's to complain about: the terminal is the command's."""


class _Connection(BaseHTTPRequestHandler):
    """One connection of the command, to its proxy or to what it takes for the metadata server."""

    protocol_version = "HTTP/1.1"
    timeout = HEAD_SECONDS_MAX
    server: Proxy

    def do_CONNECT(self) -> None:
        self.close_connection = True
        try:
            host, port = _authority(self.path)
        except ValueError:
            self.send_error(400)
            return
        if host in METADATA_HOSTS and port == 80:
            self._establish()
            # httplib2 tunnels plain HTTP too: what follows is asked of us
            self.close_connection = False
            return
        if self.server.stands_for(host):
            if port == 443 and (host in REDIRECTED or redirect_google.is_certified(host)):
                self._establish()
                self._stand_for_google(host)
            else:
                refuse(self, host, *refusal(f"CONNECT {host}:{port}"))
            return
        try:
            with self.server.upstream.tunnel(host, port) as other:
                self._establish()
                pipe(self.connection, other)
        except OSError as error:
            self.send_error(502, explain=f"{host}:{port}: {error}")

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        host = _normal(target.hostname or "")
        if not target.scheme or host in METADATA_HOSTS:
            status, text, kind = self.server.metadata.answer(
                target.path, target.query, self.headers.get("Metadata-Flavor"), self.command
            )
            self._answer(status, text.encode(), kind)
        elif self.server.stands_for(host):
            stand_in(self, host, f"{target.path or '/'}{'?' if target.query else ''}{target.query}")
        else:
            self._pass_on()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_GET

    def _establish(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    def _stand_for_google(self, host: str) -> None:
        if host not in REDIRECTED:
            self._stand_for_other(host)
            return
        with self.server.tpu_context.wrap_socket(self.connection, server_side=True) as inside:
            if inside.selected_alpn_protocol() == "h2":
                assert self.server.grpc is not None, "h2 is offered only where it is understood"
                with socket.create_connection(self.server.grpc, CONNECT_SECONDS_MAX) as other:
                    pipe(inside, other)
            else:
                _Google(host, inside, self.client_address, self.server)

    def _stand_for_other(self, host: str) -> None:
        asked = False
        try:
            with self.server.google_context.wrap_socket(
                self.connection, server_side=True
            ) as inside:
                asked = _Google(host, inside, self.client_address, self.server).asked
        finally:
            # gRPC gives up where HTTP/2 is not spoken, and others where they do not trust us
            if not asked:
                self.server.refusals.add(host)

    def _pass_on(self) -> None:
        """A request in the clear to another server. One per connection: the next may be for another
        host."""
        self.close_connection = True
        target = urlsplit(self.path)
        kept = [
            (name, value) for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP
        ]
        try:
            other, form, extra = self.server.upstream.plain(target)
            lines = [
                f"{self.command} {form} HTTP/1.1",
                *(f"{name}: {value}" for name, value in kept),
                *extra,
            ]
            with other:
                other.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
                pipe(self.connection, other, already=self._read_ahead())
        except OSError as error:
            self.send_error(502, explain=f"{target.netloc}: {error}")

    def _read_ahead(self) -> bytes:
        """Return what has been read of the body with the head."""
        self.connection.setblocking(False)
        return self.rfile.read1(HEAD_BYTES_MAX) or b""

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response_only(status)
        for name, value in (
            ("Metadata-Flavor", "Google"),
            ("Content-Type", kind),
            ("Content-Length", len(body)),
        ):
            self.send_header(name, str(value))
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # its body has not been read
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is the command's."""


class _Google(_Connection):
    """One connection of the command to a host of Google's."""

    def __init__(
        self, host: str, request: ssl.SSLSocket, client_address: Any, server: Proxy
    ) -> None:
        self._host = host
        self.asked = False
        super().__init__(request, client_address, server)

    def do_GET(self) -> None:
        self.asked = True
        stand_in(self, self._host, self.path)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_GET
    do_CONNECT = do_GET


def stand_in(handler: _Connection, host: str, path: str) -> None:
    """Answers what a host was asked for that the proxy stands for: by Podyard, or by what the proxy
    knows itself."""
    if handler.server.storage_url is not None and redirect_google.is_storage(host, path):
        _relay_storage(handler, handler.server.storage_url, path)
        return
    refuses_google = handler.server.refuses_google
    served = api_path(host, path)
    if served is not None and (refuses_google or host == BILLING_HOST):
        if relay(handler, served) == Code.UNIMPLEMENTED.http_status:
            handler.server.refusals.add(host)
        return
    if not refuses_google or host in REDIRECTED or redirect_google.is_tpu_discovery(host, path):
        relay(handler, path)
        return
    try:
        _body_of(handler)
    except ValueError:
        handler.close_connection = True  # the rest of it would be taken for the next request
    refuse(handler, host, *refusal(f"{handler.command} https://{host}{urlsplit(path).path}"))


def refuse(handler: _Connection, host: str, status: int, answer: Mapping[str, Any]) -> None:
    """Answers, and counts it as refused."""
    handler.server.refusals.add(host)
    _answer_json(handler, status, answer)


def relay(handler: _Connection, path: str) -> int:
    """Asks Podyard what the handler was asked, and answers what it answers; returns the HTTP
    status."""
    try:
        body = _body_of(handler)
    except ValueError as error:
        handler.close_connection = True
        _refuse(handler, 413, Code.INVALID_ARGUMENT, str(error))
        return 413
    url = handler.server.url
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=ANSWER_SECONDS_MAX)
    headers = {
        name: value for name, value in handler.headers.items() if name.lower() not in _HOP_BY_HOP
    }
    headers = {
        name: value
        for name, value in headers.items()
        if name.lower() not in ("host", "content-length")
    }
    try:
        try:
            connection.request(handler.command, f"{url.path.rstrip('/')}{path}", body, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            _refuse(
                handler,
                503,
                Code.UNAVAILABLE,
                f"Podyard at {url.geturl()} does not answer: {error}",
            )
            return 503
        _copy(handler, response)
        return response.status
    finally:
        connection.close()


def _relay_storage(handler: _Connection, url: SplitResult, path: str) -> None:
    """Asks the storage process, with Google's name of the host, so that its links lead back here.
    Bodies of any size pass as they come."""
    headers = {
        name: value for name, value in handler.headers.items() if name.lower() not in _HOP_BY_HOP
    }
    headers |= {
        "Host": handler.headers.get("Host", redirect_google.STORAGE_HOST),
        "X-Forwarded-Proto": "https",
    }
    headers.pop("Expect", None)  # answered already
    chunked = handler.headers.get("Transfer-Encoding", "").lower() == "chunked"
    if chunked:  # TensorFlow says the length, too
        headers["Transfer-Encoding"] = "chunked"
        headers.pop("Content-Length", None)
    length = handler.headers.get("Content-Length", "0")
    connection = http.client.HTTPConnection(
        url.hostname or "", url.port, timeout=ANSWER_SECONDS_MAX
    )
    try:
        try:
            body = _chunks(handler, None) if chunked else _pieces(handler, int(length))
            has_body = chunked or length != "0"
            connection.request(
                handler.command, path, body if has_body else None, headers, encode_chunked=chunked
            )
            response = connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            handler.close_connection = True
            _refuse(handler, 503, Code.UNAVAILABLE, f"Podyard's storage does not answer: {error}")
            return
        _copy(handler, response)
    finally:
        connection.close()


def _pieces(handler: _Connection, length: int) -> Iterator[bytes]:
    while length and (piece := handler.rfile.read(min(length, _STORAGE_PIECE_BYTES))):
        length -= len(piece)
        yield piece


def _copy(handler: _Connection, response: http.client.HTTPResponse) -> None:
    handler.send_response_only(response.status, response.reason)
    for name, value in response.getheaders():
        if name.lower() not in _HOP_BY_HOP:
            # TensorFlow knows `Location` by this spelling only
            handler.send_header(name.title(), value)
    bodyless = handler.command == "HEAD" or response.status in (204, 304)
    chunked = not bodyless and response.getheader("Content-Length") is None
    if chunked:
        handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    while not bodyless and (piece := response.read1(_PIECE_BYTES)):
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        handler.wfile.write(b"0\r\n\r\n")


def _refuse(handler: _Connection, status: int, code: Code, message: str) -> None:
    _answer_json(
        handler, status, {"error": {"code": status, "message": message, "status": code.name}}
    )


def _answer_json(handler: _Connection, status: int, answer: Mapping[str, Any]) -> None:
    body = json.dumps(answer).encode()
    handler.send_response_only(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    if handler.close_connection:
        handler.send_header("Connection", "close")
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def _body_of(handler: _Connection) -> bytes | None:
    """The request's body; raises ValueError when it is too long or is not said rightly."""
    if handler.headers.get("Transfer-Encoding", "").lower() == "chunked":
        return b"".join(_chunks(handler, BODY_BYTES_MAX))
    length = handler.headers.get("Content-Length")
    if length is None:
        return None
    if not length.isdigit() or int(length) > BODY_BYTES_MAX:
        raise ValueError(f"the body is longer than {BODY_BYTES_MAX} bytes")
    return handler.rfile.read(int(length))


def _chunks(handler: _Connection, most: int | None) -> Iterator[bytes]:
    """At most `most` bytes in all (None: any number)."""
    total = 0
    while size := int(handler.rfile.readline(HEAD_BYTES_MAX).split(b";")[0].strip() or b"x", 16):
        total += size
        if size < 0 or (most is not None and total > most):
            raise ValueError(f"the body is longer than {most} bytes")
        yield handler.rfile.read(size)
        handler.rfile.readline(HEAD_BYTES_MAX)
    while handler.rfile.readline(HEAD_BYTES_MAX).strip():
        pass  # trailers


def _normal(host: str) -> str:
    """The host as it is compared: a name may end in a dot, and has no case."""
    return host.lower().removesuffix(".")


def _authority(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(text)
    return _normal(host.removeprefix("[").removesuffix("]")), int(port)


def is_own(peer_port: int, own_port: int, tables: Sequence[Path] = CONNECTION_TABLES) -> bool:
    """Return whether the process at the other end of a loopback connection is this user's, or
    root's.

    Linux tells by its tables of connections. Where they do not show even our own end (macOS has
    none), everybody on the machine is let in.
    """
    owners: dict[tuple[str, str], int] = {}
    for table in tables:
        with contextlib.suppress(OSError):
            for line in table.read_text(encoding="ascii").splitlines():
                if match := _CONNECTION.match(line):
                    owners[match[1], match[2]] = int(match[3])
    peer, own = f"{peer_port:04X}", f"{own_port:04X}"
    return (own, peer) not in owners or owners.get((peer, own)) in (0, os.getuid())
