"""Connections that `podyard run` passes on as they are: directly, or through the proxy that the
user had set before."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import ipaddress
import selectors
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # documented, but not in typeshed

CONNECT_SECONDS_MAX = 30.0
IDLE_SECONDS_MAX = 3600.0  # of a tunnel through which nothing passes
HEAD_BYTES_MAX = 1 << 16
_PIECE_BYTES = 1 << 16
_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclasses.dataclass(frozen=True, slots=True)
class Upstream:
    """The proxies that the user had set before (None: none), and the hosts that need none."""

    https: str | None
    http: str | None
    no: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Upstream:
        def first(*names: str) -> str | None:
            return next((environ[name] for name in names if environ.get(name)), None)

        both = ("all_proxy", "ALL_PROXY")
        return cls(
            https=first("https_proxy", "HTTPS_PROXY", *both),
            http=first("http_proxy", "HTTP_PROXY", *both),
            no=first("no_proxy", "NO_PROXY") or "",
        )

    def tunnel(self, host: str, port: int) -> socket.socket:
        """A connection to `host`, on which the client may say what it likes. Raises OSError."""
        proxy = self._proxy_of(host, self.https)
        if proxy is None:
            return socket.create_connection((host, port), CONNECT_SECONDS_MAX)
        other = _connect(proxy)
        try:
            name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}", *_credentials(proxy), "", ""]
            other.sendall("\r\n".join(lines).encode("latin-1"))
            status = _head(other).split(b"\r\n", 1)[0].decode("latin-1")
            if status.split(" ")[1:2] != ["200"]:
                raise OSError(f"the proxy answered {status}")
        except BaseException:
            other.close()
            raise
        return other

    def plain(self, target: SplitResult) -> tuple[socket.socket, str, list[str]]:
        """(connection for one request in the clear, how its first line names the target, more
        headers)."""
        host = target.hostname or ""
        proxy = self._proxy_of(host, self.http)
        if proxy is not None:
            return _connect(proxy), target.geturl(), _credentials(proxy)
        form = f"{target.path or '/'}{'?' if target.query else ''}{target.query}"
        return socket.create_connection((host, target.port or 80), CONNECT_SECONDS_MAX), form, []

    def _proxy_of(self, host: str, proxy: str | None) -> SplitResult | None:
        if proxy is None or _is_loopback(host) or proxy_bypass_environment(host, {"no": self.no}):
            return None
        return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _is_loopback(host: str) -> bool:
    """Of this machine only: Podyard itself, and the hosts of its nodes."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _connect(proxy: SplitResult) -> socket.socket:
    """A connection to the user's proxy; OSError also for one of a kind that we do not speak."""
    if proxy.scheme not in ("http", "https") or proxy.hostname is None:
        raise OSError(f"cannot go through a proxy of the kind {proxy.scheme}: only http and https")
    port = proxy.port or (443 if proxy.scheme == "https" else 80)
    found = socket.create_connection((proxy.hostname, port), CONNECT_SECONDS_MAX)
    if proxy.scheme == "http":
        return found
    try:
        return ssl.create_default_context().wrap_socket(found, server_hostname=proxy.hostname)
    except BaseException:
        found.close()
        raise


def _credentials(proxy: SplitResult) -> list[str]:
    if proxy.username is None:
        return []
    secret = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [f"Proxy-Authorization: Basic {base64.b64encode(secret.encode()).decode()}"]


def _head(other: socket.socket) -> bytes:
    """An answer's head, byte by byte: what follows it belongs to the tunnel."""
    found = b""
    while not found.endswith(b"\r\n\r\n"):
        byte = other.recv(1)
        if not byte or len(found) > HEAD_BYTES_MAX:
            raise OSError("the proxy's answer ended before its head did")
        found += byte
    return found


@dataclasses.dataclass
class _Flow:
    source: socket.socket
    target: socket.socket
    buffer: bytes = b""
    ended: bool = False
    shut: bool = False

    def step(self) -> bool:
        """Moves what can be moved now; returns whether anything was. Raises OSError when the other
        end must go too."""
        moved = False
        if not self.ended and not self.buffer:
            with contextlib.suppress(*_WAIT):
                self.buffer = self.source.recv(_PIECE_BYTES)
                self.ended = not self.buffer
                moved = True
        if self.buffer:
            with contextlib.suppress(*_WAIT):
                self.buffer = self.buffer[self.target.send(self.buffer) :]
                moved = True
        if self.ended and not self.buffer and not self.shut:
            if isinstance(self.target, ssl.SSLSocket):
                raise BrokenPipeError("TLS has no half that could be closed")
            self.target.shutdown(socket.SHUT_WR)
            self.shut = moved = True
        return moved


def pipe(left: socket.socket, right: socket.socket, already: bytes = b"") -> None:
    """Copies both ways until both have ended, one breaks, or nothing moves for `IDLE_SECONDS_MAX`.

    In one thread, since a connection of OpenSSL's belongs to one. `already`: what `left` had said
    before.
    """
    flows = (_Flow(left, right, already), _Flow(right, left))
    for end in (left, right):
        end.setblocking(False)
    with contextlib.suppress(OSError):
        while not all(flow.shut for flow in flows):
            # Both take their step: `or` would starve the second.
            if not sum([flow.step() for flow in flows]) and not _ready(flows):
                return


def _ready(flows: tuple[_Flow, ...]) -> bool:
    """Waits until something can move; False when it took too long."""
    wanted: dict[socket.socket, int] = {}
    for flow in flows:
        if flow.buffer:
            wanted[flow.target] = wanted.get(flow.target, 0) | selectors.EVENT_WRITE
        elif not flow.ended:
            wanted[flow.source] = wanted.get(flow.source, 0) | selectors.EVENT_READ
    with selectors.PollSelector() as selector:
        for end, events in wanted.items():
            selector.register(end, events)
        return bool(selector.select(IDLE_SECONDS_MAX))
