"""Tunnels of Identity-Aware Proxy, as gcloud opens them, and as a client that loses its connection
does."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Event, RejectConnection, Request

from podyard.http.gcloud_authority import PROXY_FILE, ROOTS_FILE
from tests.conftest import require
from tests.gcloud import Terminal
from tests.stack import Stack, open_stack, until
from tests.waiting import patient

ZONE = "us-central1-b"
HERE = f"/compute/v1/projects/demo/zones/{ZONE}"
PORT = 8090  # where the instance's own server listens
HOST = "tunnel.cloudproxy.app"
SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
SERVER = f"""#!/bin/bash
cat > /tmp/server.py <<'PROGRAM'
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while piece := self.request.recv(65536):
            self.request.sendall(piece.upper())
socketserver.ThreadingTCPServer(("0.0.0.0", {PORT}), Echo).serve_forever()
PROGRAM
setsid python3 /tmp/server.py >/tmp/server.log 2>&1 &
echo started
"""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("iap"), {"PODYARD_BOXES": boxes}) as found:
        yield found


@pytest.fixture(scope="module")
def instance(stack: Stack) -> str:
    """An instance without an external address, on which a server upper-cases what it gets."""
    body = {
        "name": "inner",
        "machineType": f"zones/{ZONE}/machineTypes/e2-standard-2",
        "networkInterfaces": [{}],
        "disks": [{"boot": True, "autoDelete": True}],
        "metadata": {"items": [{"key": "startup-script", "value": SERVER}]},
    }
    stack.call("POST", f"{HERE}/instances", body)

    def started() -> bool | None:
        shown = stack.http.request("GET", f"{HERE}/instances/inner/serialPort")
        return "started" in shown.text or None

    until(started, 90, "the start-up script")
    return "inner"


def _allow(stack: Stack, source: str) -> str:
    rule = {
        "name": "allow-iap", "network": "global/networks/default", "direction": "INGRESS",
        "sourceRanges": [source], "allowed": [{"IPProtocol": "tcp", "ports": [str(PORT)]}],
    }  # fmt: skip
    stack.call("POST", "/compute/v1/projects/demo/global/firewalls", rule)
    return "allow-iap"


class TunnelClient:
    """The client's end of the relay protocol, over the proxy that `podyard env` names. `status`: of
    the answer to the handshake."""

    def __init__(self, stack: Stack, path: str, token: str | None = None, **query: Any) -> None:
        port = json.loads((stack.data / PROXY_FILE).read_text())["port"]
        plain = socket.create_connection(("127.0.0.1", port), timeout=patient(60))
        plain.sendall(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode())
        while not plain.recv(4096).endswith(b"\r\n\r\n"):
            pass
        context = ssl.create_default_context(cafile=stack.data / ROOTS_FILE)
        self._socket = context.wrap_socket(plain, server_hostname=HOST)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        headers = [(b"Authorization", f"Bearer {token or stack.token}".encode())]
        target = f"/v4/{path}?{urlencode(query)}"
        self._send(Request(HOST, target, extra_headers=headers, subprotocols=[SUBPROTOCOL]))
        self._events: list[Event] = []
        answer = self._next()
        self.status = answer.status_code if isinstance(answer, RejectConnection) else 101

    def receive(self) -> tuple[int, bytes]:
        """(tag, what follows it)."""
        event = self._next()
        assert isinstance(event, BytesMessage), event
        return struct.unpack_from(">H", event.data)[0], bytes(event.data[2:])

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            tag, data = self.receive()
            if tag == 4:
                found += data[4:]
        return found

    def write(self, data: bytes) -> None:
        self._send(BytesMessage(data=struct.pack(">HI", 4, len(data)) + data))

    def ack(self, count: int) -> None:
        self._send(BytesMessage(data=struct.pack(">HQ", 7, count)))

    def end(self) -> tuple[int, str]:
        """(code, reason) of the websocket's end."""
        event = self._next()
        assert isinstance(event, CloseConnection), event
        return int(event.code), event.reason or ""

    def close(self) -> None:
        """Say that the tunnel is over."""
        self._send(CloseConnection(code=1000))
        self.end()

    def drop(self) -> None:
        """Lose the connection without a word."""
        self._socket.close()

    def _send(self, event: Event) -> None:
        self._socket.sendall(self._protocol.send(event))

    def _next(self) -> Event:
        while not self._events:
            self._protocol.receive_data(self._socket.recv(65536) or None)
            self._events += self._protocol.events()
        return self._events.pop(0)


def _refused(stack: Stack, path: str, token: str | None = None, **query: Any) -> tuple[int, str]:
    client = TunnelClient(stack, path, token, **query)
    found = client.end() if client.status == 101 else (client.status, "")
    client.drop()
    return found


def _place(instance: str, port: int) -> dict[str, Any]:
    return {
        "project": "demo", "zone": ZONE, "instance": instance, "interface": "nic0", "port": port,
        "newWebsocket": True,
    }  # fmt: skip


def test_what_stands_in_the_way_closes_the_websocket_with_a_reason(
    stack: Stack, instance: str
) -> None:
    code, why = _refused(stack, "connect", **_place("nobody", 22))
    assert (code, "nobody" in why) == (4047, True)
    code, why = _refused(stack, "connect", **_place(instance, PORT))
    assert code == 4003 and "no firewall rule of network default" in why
    assert _refused(stack, "connect", "nonsense", **_place(instance, 22)) == (401, "")
    made = stack.command(
        "auth", "token", "create", "eve@example.com", "--role", "tpu.viewer",
        "--data", str(stack.data),
    )  # fmt: skip
    token = next(word for word in made.stdout.split() if word.startswith("pdy_"))
    assert _refused(stack, "connect", token, **_place(instance, 22))[0] == 4033


def test_a_lost_connection_goes_on_where_it_was(stack: Stack, instance: str) -> None:
    name = _allow(stack, "35.235.240.0/20")
    client = TunnelClient(stack, "connect", **_place(instance, PORT))
    tag, data = client.receive()
    sid = data[4:].decode()
    assert tag == 1
    client.write(b"hello")
    assert client.read(5) == b"HELLO"
    client.ack(5)
    client.write(b"x" * 16_000 + b"y")
    client.drop()  # before a byte of the answer is read

    again = TunnelClient(stack, "reconnect", sid=sid, ack=5, zone=ZONE)
    tag, data = again.receive()
    received = struct.unpack(">Q", data)[0]
    assert tag == 2 and received in (5, 16_006)
    if received == 5:
        again.write(b"x" * 16_000 + b"y")
    assert again.read(16_001) == b"X" * 16_000 + b"Y"
    again.close()
    again.drop()
    assert _refused(stack, "reconnect", sid=sid, ack=0, zone=ZONE)[0] == 4001
    stack.call("DELETE", f"/compute/v1/projects/demo/global/firewalls/{name}")


def test_a_port_at_which_nothing_listens_is_said(stack: Stack, instance: str) -> None:
    name = _allow(stack, "0.0.0.0/0")
    stack.call(
        "PATCH", f"/compute/v1/projects/demo/global/firewalls/{name}",
        {"allowed": [{"IPProtocol": "tcp", "ports": ["1-65535"]}]},
    )  # fmt: skip
    code, why = _refused(stack, "connect", **_place(instance, 4444))
    assert code == 4003 and "4444" in why
    stack.call("DELETE", f"/compute/v1/projects/demo/global/firewalls/{name}")


def test_gcloud_reaches_an_instance_without_an_external_address(
    stack: Stack, instance: str, tmp_path: Path
) -> None:
    require(shutil.which("gcloud"), "gcloud")
    require(shutil.which("ssh"), "the ssh client")
    terminal = Terminal(stack, tmp_path)
    done = terminal.run(
        f"gcloud compute ssh {instance} --zone={ZONE} --tunnel-through-iap --quiet "
        "--command='echo on $(hostname)' --strict-host-key-checking=no"
    )
    assert done.returncode == 0 and f"on {instance}" in done.stdout, done.stderr


def test_gcloud_reaches_a_host_of_a_node(stack: Stack, tmp_path: Path) -> None:
    require(shutil.which("gcloud"), "gcloud")
    stack.create_node("pair", "v3-32", "europe-west4-a")
    terminal = Terminal(stack, tmp_path)
    done = terminal.run(
        "gcloud alpha compute tpus tpu-vm ssh pair --zone=europe-west4-a --tunnel-through-iap "
        "--worker=2 --quiet --command='echo worker $TPU_WORKER_ID' --strict-host-key-checking=no"
    )
    assert done.returncode == 0 and "worker 2" in done.stdout, done.stderr
    stack.delete_node("pair", "europe-west4-a")
