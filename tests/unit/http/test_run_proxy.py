"""The proxy of `podyard run`: what it answers itself, what it passes on, and to whom."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import OsClock
from podyard.cli.kit.client import Target
from podyard.cli.nodes import env
from podyard.cli.redirect import google as redirect_google
from podyard.cli.redirect import proxy as redirect_proxy
from podyard.cli.redirect import redirect
from podyard.cli.redirect import tls as redirect_tls
from podyard.cli.redirect import tunnel as redirect_tunnel
from podyard.cli.redirect.metadata import Metadata
from podyard.domain.host import HAS_HOST_ADDRESSES
from podyard.settings import from_environment
from tests.conftest import require
from tests.stack import until
from tests.waiting import patient

ZONE = "us-central1-f"


class _Other(BaseHTTPRequestHandler):
    """Another party's server: it echoes the request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        asked = {
            "line": self.requestline,
            "body": self.rfile.read(length).decode(),
            "headers": dict(self.headers),
        }
        self.server.asked.append(asked)  # type: ignore[attr-defined]
        body = json.dumps(asked).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def do_CONNECT(self) -> None:
        self.server.asked.append({"line": self.requestline, "headers": dict(self.headers)})  # type: ignore[attr-defined]
        if "refused" in self.path:
            self.send_error(403)
            return
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        host, port = self.server.leads_to  # type: ignore[attr-defined]
        with socket.create_connection((host, port)) as other:
            redirect_tunnel.pipe(self.connection, other)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _OtherServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), _Other)
        self.asked: list[dict[str, Any]] = []
        self.leads_to = self.server_address

    @property
    def address(self) -> str:
        return f"{self.server_address[0]}:{self.server_address[1]}"


@contextlib.contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def other() -> Iterator[_OtherServer]:
    with _serving(_OtherServer()) as found:
        yield found


@contextlib.contextmanager
def _proxy(
    tmp_path: Path,
    environ: dict[str, str],
    grpc: tuple[str, int] | None = None,
    url: str = "http://127.0.0.1:1",
    refuses_google: bool = True,
) -> Iterator[Any]:
    hosts = redirect_proxy.REDIRECTED + redirect_google.CERTIFICATE_NAMES
    protocols = (("http/1.1", "h2") if grpc else ("http/1.1",), ("http/1.1",))
    contexts, authority = redirect_tls.server_contexts(tmp_path, hosts, protocols, OsClock())
    (tmp_path / "authority.pem").write_bytes(authority)
    told = Metadata("demo", "7", ZONE, "a@b", "secret")
    found = redirect_proxy.Proxy(
        url, contexts, told, redirect_tunnel.Upstream.of(environ), grpc, refuses_google
    )
    found.start()
    try:
        yield found
    finally:
        found.close()


def _through(proxy: redirect_proxy.Proxy, url: str, data: bytes | None = None) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy.address}))
    with opener.open(urllib.request.Request(url, data), timeout=patient(10)) as response:
        return json.loads(response.read())


def _connect(proxy: redirect_proxy.Proxy, target: str) -> tuple[socket.socket, str]:
    found = socket.create_connection(("127.0.0.1", proxy.server_address[1]), 10)
    found.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    return found, found.recv(4096).decode().split("\r\n")[0]


def test_other_hosts_are_passed_on_untouched(tmp_path: Path, other: _OtherServer) -> None:
    with _proxy(tmp_path, {}) as proxy:
        found = _through(proxy, f"http://{other.address}/a?b=c", b"x" * 100_000)
        assert found["line"] == "POST /a?b=c HTTP/1.1"
        assert found["body"] == "x" * 100_000
        assert found["headers"]["Connection"] == "close"
        assert "Proxy-Connection" not in found["headers"]
        connection, status = _connect(proxy, other.address)
        with connection:
            assert status == "HTTP/1.1 200 Connection established"
            connection.sendall(b"GET /tunnel HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert "GET /tunnel HTTP/1.1" in _read_all(connection)


def test_the_user_s_own_proxy_goes_on_being_used_for_other_hosts(
    tmp_path: Path, other: _OtherServer
) -> None:
    environ = {
        "HTTPS_PROXY": f"http://me:pass%21@{other.address}",
        "http_proxy": other.address,
        "NO_PROXY": "127.0.0.1",
    }
    with _proxy(tmp_path, environ) as proxy:
        assert (
            _through(proxy, "http://example.invalid/x")["line"]
            == "GET http://example.invalid/x HTTP/1.1"
        )
        connection, status = _connect(proxy, "example.invalid:443")
        with connection:
            assert status == "HTTP/1.1 200 Connection established"
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert connection.recv(10)
        assert other.asked[1]["line"] == "CONNECT example.invalid:443 HTTP/1.1"
        assert other.asked[1]["headers"]["Proxy-Authorization"] == "Basic bWU6cGFzcyE="
        refused, status = _connect(proxy, "refused.invalid:443")
        refused.close()
        assert status.startswith("HTTP/1.1 502")
        asked = len(other.asked)
        # NO_PROXY names it
        assert _through(proxy, f"http://{other.address}/direct")["line"] == "GET /direct HTTP/1.1"
        assert len(other.asked) == asked + 1


def test_loopback_addresses_never_go_to_the_user_s_own_proxy(
    tmp_path: Path, other: _OtherServer
) -> None:
    port = other.address.rpartition(":")[2]
    environ = {"HTTPS_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    with _proxy(tmp_path, environ) as proxy:
        for address in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert _through(proxy, f"http://{address}/direct")["line"] == "GET /direct HTTP/1.1"
            connection, status = _connect(proxy, address)
            connection.close()
            assert status == "HTTP/1.1 200 Connection established"


_CLIENTS = {
    "curl": "exec curl -sS --max-time 10 $0",
    "requests": (
        "exec python -c 'import requests, sys; print(requests.get(sys.argv[1], "
        "timeout=10).text)' $0"
    ),
    "urllib": (
        "exec python -c 'import sys, urllib.request as u; "
        "print(u.urlopen(sys.argv[1]).read().decode())' $0"
    ),
    "httpx": (
        "exec python -c 'import httpx, sys; print(httpx.get(sys.argv[1], timeout=10).text)' $0"
    ),
}


@pytest.mark.skipif(
    not HAS_HOST_ADDRESSES, reason="hosts have addresses of their own on Linux only"
)
@pytest.mark.parametrize(
    ("client", "reads_the_range"),
    [("curl", True), ("requests", True), ("urllib", False), ("httpx", False)],
)
def test_a_command_reaches_the_addresses_of_hosts(
    tmp_path: Path, client: str, reads_the_range: bool
) -> None:
    if client == "curl":
        require(shutil.which("curl"), "curl")
    environ = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    dead = {"http_proxy": "http://127.0.0.1:1"}  # the user's own proxy never hears of it
    with _serving(_OtherServer("127.128.9.9")) as host, _proxy(tmp_path, dead) as proxy:
        # Who reads the range asks no proxy at all.
        told = "127.0.0.1:1" if reads_the_range else proxy.address
        target = Target("http://127.0.0.1:2", "", "demo", ZONE)
        env = redirect.environment(target, environ, told, tmp_path / "authority.pem")
        command = ["/bin/sh", "-c", _CLIENTS[client], f"http://{host.address}/{client}"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["line"] == f"GET /{client} HTTP/1.1"


def test_a_host_that_cannot_be_reached_or_read_is_said(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
        with _proxy(tmp_path, {}) as proxy:
            for target, status in ((closed, "502"), ("nothing", "400"), ("x:99999", "400")):
                connection, line = _connect(proxy, target)
                connection.close()
                assert line.startswith(f"HTTP/1.1 {status}"), target
            with pytest.raises(urllib.error.HTTPError, match="502"):
                _through(proxy, f"http://{closed}/")
        with _proxy(tmp_path, {"https_proxy": "socks5://127.0.0.1:9"}) as proxy:
            connection, line = _connect(proxy, "example.invalid:443")
            connection.close()
            assert line.startswith("HTTP/1.1 502")


def _read_all(connection: socket.socket) -> str:
    found = b""
    while piece := connection.recv(65536):
        found += piece
    return found.decode()


def _answer(connection: socket.socket, method: str = "GET") -> tuple[str, str]:
    """(head, body) of one answer."""
    head = ""
    while not head.endswith("\r\n\r\n"):
        piece = connection.recv(1).decode()
        assert piece, f"the connection ended after {head!r}"
        head += piece
    length = (
        0 if method == "HEAD" else int(head.lower().partition("content-length: ")[2].split()[0])
    )
    return head, "".join(connection.recv(1).decode() for _ in range(length))


def _tls(
    proxy: redirect_proxy.Proxy, authority: Path, host: str, protocols: list[str]
) -> ssl.SSLSocket:
    connection, status = _connect(proxy, f"{host}:443")
    assert status.startswith("HTTP/1.1 200")
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(protocols)
    return context.wrap_socket(connection, server_hostname=host)


def test_a_podyard_that_does_not_answer_is_unavailable_in_its_own_envelope(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with _proxy(tmp_path, {}, url=url) as proxy:
            with _tls(
                proxy, tmp_path / "authority.pem", "tpu.googleapis.com", ["http/1.1"]
            ) as client:
                client.sendall(
                    b"GET /v2/x HTTP/1.1\r\nHost: tpu.googleapis.com\r\nConnection: close\r\n\r\n"
                )
                answer = _read_all(client)
            assert answer.startswith("HTTP/1.1 503")
            assert '"status": "UNAVAILABLE"' in answer


def test_grpc_reaches_the_front_in_the_clear_and_rest_stays_http_1(tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    from concurrent import futures

    server = grpc.server(futures.ThreadPoolExecutor(2))
    echo = grpc.method_handlers_generic_handler(
        "t.T", {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, _context: request * 3)}
    )
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with _proxy(tmp_path, {}, ("127.0.0.1", port)) as proxy:
            authority = tmp_path / "authority.pem"
            with _tls(proxy, authority, "tpu.googleapis.com", ["h2", "http/1.1"]) as client:
                assert client.selected_alpn_protocol() == "http/1.1"
            credentials = grpc.ssl_channel_credentials(authority.read_bytes())
            options = (
                ("grpc.http_proxy", f"http://{proxy.address}"),
                ("grpc.enable_http_proxy", 1),
            )
            with grpc.secure_channel("tpu.googleapis.com:443", credentials, options) as channel:
                body = b"x" * 1_000_000
                assert channel.unary_unary("/t.T/Echo")(body, timeout=patient(10)) == body * 3
    finally:
        server.stop(None).wait()


def test_google_s_other_hosts_get_nothing(tmp_path: Path, other: _OtherServer) -> None:
    environ = {"https_proxy": other.address, "http_proxy": other.address}
    with _proxy(tmp_path, environ) as proxy:
        authority = tmp_path / "authority.pem"
        with _tls(proxy, authority, "secretmanager.googleapis.com", ["http/1.1"]) as client:
            body = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123456789"
            client.sendall(body + b"HEAD /v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
            head, said = _answer(client)
            assert head.startswith("HTTP/1.1 501")
            assert "nothing was sent to Google" in json.loads(said)["error"]["message"]
            # the body was not taken for a request
            assert _answer(client, "HEAD")[0].startswith("HTTP/1.1 501")
        with _tls(proxy, authority, "Bucket.Storage.GoogleAPIs.com", ["http/1.1"]) as client:
            client.sendall(b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n")
            head, _ = _answer(client)
            assert head.startswith("HTTP/1.1 501")
            assert "Connection: close" in head
        refused = (
            "a.b.googleapis.com:443",
            "pubsub.googleapis.com.:80",
            "tpu.googleapis.com:80",
            "x.google.internal:444",
        )
        for target in refused:
            connection, status = _connect(proxy, target)
            connection.close()
            assert status.startswith("HTTP/1.1 501"), target
        with pytest.raises(urllib.error.HTTPError, match="501"):
            _through(proxy, "http://pubsub.googleapis.com./v1", b"secret")
        assert other.asked == []
        line = proxy.refusals.line()
    assert line.startswith("podyard run: not served, and nothing was sent to Google: ")
    for host in ("pubsub", "secretmanager"):
        assert f" {host}.googleapis.com (2)" in line
    for host in ("bucket.storage", "a.b", "tpu"):
        assert f"{host}.googleapis.com (1)" in line
    assert "x.google.internal (1)" in line


def test_a_host_that_was_not_even_asked_is_named_too(tmp_path: Path) -> None:
    with _proxy(tmp_path, {}, ("127.0.0.1", 1)) as proxy:
        with _tls(proxy, tmp_path / "authority.pem", "storage.googleapis.com", ["h2"]) as client:
            assert client.selected_alpn_protocol() is None  # gRPC is for Cloud TPU only
        connection, _ = _connect(proxy, "iam.googleapis.com:443")
        connection.sendall(b"no TLS at all, as from a client that hangs up")
        connection.close()
        for host in ("iam.googleapis.com (1)", "storage.googleapis.com (1)"):
            until(lambda host=host: host in str(proxy.refusals.line()) or None, 10, host)


def test_google_s_other_hosts_are_passed_on_when_the_user_wants_it(
    tmp_path: Path, other: _OtherServer
) -> None:
    environ = {"https_proxy": other.address, "http_proxy": other.address}
    with _proxy(tmp_path, environ, refuses_google=False) as proxy:
        connection, status = _connect(proxy, "storage.googleapis.com:443")
        with connection:
            assert status == "HTTP/1.1 200 Connection established"
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert connection.recv(10)
        assert (
            _through(proxy, "http://iam.googleapis.com/x")["line"]
            == "GET http://iam.googleapis.com/x HTTP/1.1"
        )
        passed = len(other.asked)
        for host in redirect_proxy.REDIRECTED:
            with _tls(proxy, tmp_path / "authority.pem", host, ["http/1.1"]) as client:
                client.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
                # by Podyard, which is not there
                assert _answer(client)[0].startswith("HTTP/1.1 503")
            connection, status = _connect(proxy, f"{host}:80")
            connection.close()
            assert status.startswith("HTTP/1.1 501")
        url = "http://metadata.google.internal/computeMetadata/v1/project/project-id"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy.address}))
        with opener.open(
            urllib.request.Request(url, headers={"Metadata-Flavor": "Google"}), timeout=patient(10)
        ) as response:
            assert response.read() == b"demo"
        assert len(other.asked) == passed


def test_cloud_tpu_s_document_is_podyard_s_wherever_it_is_asked_for(tmp_path: Path) -> None:
    with _proxy(tmp_path, {}) as proxy:
        for api, status in (("tpu", 503), ("storage", 501)):  # 503: by Podyard, which is not there
            with _tls(
                proxy, tmp_path / "authority.pem", "www.googleapis.com", ["http/1.1"]
            ) as client:
                client.sendall(
                    f"GET /discovery/v1/apis/{api}/v2/rest HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                )
                assert _answer(client)[0].startswith(f"HTTP/1.1 {status}"), api


def test_the_certificates_are_for_google_s_hosts_only(tmp_path: Path) -> None:
    with _proxy(tmp_path, {}) as proxy:
        for host in (
            *redirect_proxy.REDIRECTED,
            "compute.googleapis.com",
            "a.storage.googleapis.com",
        ):
            _tls(proxy, tmp_path / "authority.pem", host, ["http/1.1"]).close()
        connection, _ = _connect(proxy, "tpu.googleapis.com:443")
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        with connection, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(connection, server_hostname="www.example.com")
    assert [path.name for path in tmp_path.iterdir()] == ["authority.pem"]  # no key is left
    assert b"PRIVATE" not in (tmp_path / "authority.pem").read_bytes()


def test_the_roots_are_those_that_were_named_before(tmp_path: Path) -> None:
    one, folder = tmp_path / "one.pem", tmp_path / "folder"
    one.write_bytes(b"-----BEGIN CERTIFICATE-----\none\n")
    folder.mkdir()
    (folder / "two.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\ntwo\n")
    (folder / "notes").write_bytes(b"nothing")
    named = {
        "SSL_CERT_FILE": str(one),
        "CURL_CA_BUNDLE": str(one),
        "REQUESTS_CA_BUNDLE": str(folder),
    }
    found = redirect_tls.roots(named)
    assert (found.count(b"one"), found.count(b"two"), b"nothing" in found) == (1, 1, False)
    for environ in ({}, {"SSL_CERT_FILE": str(tmp_path / "missing")}):
        assert redirect_tls.roots(environ).count(b"BEGIN CERTIFICATE") > 50


def test_another_user_s_process_does_not_get_in(tmp_path: Path) -> None:
    me = os.getuid()

    def table(*rows: tuple[int, int, int], six: bool = False) -> Path:
        """(local port, remote port, user): as Linux prints it."""
        prefix = "0000000000000000FFFF0000" if six else ""
        address = f"{prefix}0100007F"
        lines = [
            (
                f"   {n}: {address}:{a:04X} {address}:{b:04X} 01 00000000:00000000 00:00000000 "
                f"00000000  {uid}        0 1 1"
            )
            for n, (a, b, uid) in enumerate(rows)
        ]
        path = tmp_path / f"tcp{len(list(tmp_path.iterdir()))}"
        path.write_text("\n".join(["  sl  local_address rem_address   st", *lines]))
        return path

    def own(*tables: Path) -> bool:
        return redirect_proxy.is_own(5000, 80, tables)

    ours = (80, 5000, me)
    assert own(table(ours, (5000, 80, me)))
    assert own(table(ours, (5000, 80, 0)))
    assert not own(table(ours, (5000, 80, me + 1)))
    assert not own(table(ours, (5000, 81, me)))
    assert own(table(ours), table((5000, 80, me), six=True))
    assert not own(table(ours), table((5000, 80, me + 1), six=True))
    assert own(tmp_path / "none")  # no table: everybody


def test_the_grpc_target_is_exported_when_there_is_one(tmp_path: Path) -> None:
    settings = from_environment({"PODYARD_DATA": str(tmp_path)})
    target = Target("http://127.0.0.1:8700", "t", "demo", ZONE)
    state: dict[str, Any] = {"url": target.url}
    for changes, expected in (
        ({}, None),
        ({"grpcPort": 8701}, "127.0.0.1:8701"),
        # the state of another Podyard than the one that is meant
        ({"url": "http://127.0.0.1:9"}, None),
    ):
        state |= changes
        settings.state_path.write_text(json.dumps(state))
        assert env.exports(target, settings).get("PODYARD_GRPC_TARGET") == expected


def test_the_metadata_server_answers_as_google_s_does() -> None:
    told = Metadata("demo", "7", ZONE, "a@b", "secret")
    root = "/computeMetadata/v1"

    def ask(
        path: str, query: str = "", flavor: str | None = "Google", method: str = "GET"
    ) -> tuple[int, str]:
        return told.answer(path, query, flavor, method)[:2]

    assert ask("/", flavor=None) == (200, "computeMetadata/\n")
    assert ask(f"{root}/project/project-id", flavor=None)[0] == 403
    assert ask(f"{root}/project/project-id") == (200, "demo")
    assert ask(f"{root}/instance/zone") == (200, f"projects/7/zones/{ZONE}")
    for account in ("default", "a@b"):
        status, text = ask(f"{root}/instance/service-accounts/{account}/token", "scopes=x")
        assert (status, json.loads(text)["access_token"]) == (200, "secret")
    for asked in ("recursive=true", "recursive=True", "recursive=false&recursive=TRUE"):
        assert (
            json.loads(ask(f"{root}/instance/service-accounts/default/", asked)[1])["email"]
            == "a@b"
        )
    assert ask(f"{root}/instance/service-accounts/default/", "recursive=false")[1].startswith(
        "aliases\n"
    )
    assert ask(f"{root}/instance/attributes/none")[0] == 404
    assert ask("/latest/meta-data")[0] == 404
    assert ask(f"{root}/project/project-id", method="PUT")[0] == 405
