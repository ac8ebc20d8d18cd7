"""`podyard connect`: the ports of a Podyard on another machine, on this one."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from podyard.base.errors import Code, PodyardError, invalid
from podyard.base.files import read_json, write_atomically
from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.options import data_option, settings_of
from podyard.cli.kit.output import say
from podyard.cli.nodes.connect_tunnel import BACKLOG, LocalPorts
from podyard.cli.nodes.ssh_setup import CONNECT_SOCKET
from podyard.domain.host import HAS_HOST_ADDRESSES
from podyard.http import trust
from podyard.http.door_tunnel import DoorTarget
from podyard.http.gcloud_authority import PROXY_FILE, roots_path
from podyard.settings import Settings
from podyard.stack import processes

CONNECTION_FILE = "connection.json"  # what the next `podyard connect` of the folder goes on with
CA_FILE = "ca.pem"
LOOPBACK = "127.0.0.1"
LOOK_SECONDS = 1.0  # between two looks at the nodes; a user takes longer to type the next command
ANSWER_SECONDS_MAX = 20.0
EXIT_FAILED, EXIT_SETUP = 1, 2
# By the name of the target: the option that chooses another port.
_OPTIONS = {"api": "--port", "grpc": "--grpc-port", "storage": "--storage-port"}
_FILE = click.Path(dir_okay=False, path_type=Path)
_PORT = click.IntRange(0, 65535)


@click.command()
@click.argument("url", required=False)
@data_option
@click.option(
    "--token",
    metavar="TOKEN",
    help="Your token (default: PODYARD_TOKEN, else that of the last time).",
)
@click.option(
    "--ca",
    type=_FILE,
    metavar="FILE",
    help="Certificate to trust (PEM), instead of this machine's roots.",
)
@click.option(
    "--fingerprint",
    metavar="sha256:HEX",
    help="Fingerprint of the certificate to trust: see podyard status.",
)
@click.option(
    "--port", type=_PORT, help="Local HTTP port (default: the same as there); 0 picks a free port."
)
@click.option(
    "--grpc-port",
    type=_PORT,
    help="Local gRPC port (default: the same as there); 0 picks a free port.",
)
@click.option(
    "--storage-port",
    type=_PORT,
    help="Local port of storage (default: the same as there); 0: a free one.",
)
def connect(  # noqa: PLR0913
    url: str | None,
    data: str | None,
    token: str | None,
    ca: Path | None,
    fingerprint: str | None,
    port: int | None,
    grpc_port: int | None,
    storage_port: int | None,
) -> int:
    """Open the ports of the Podyard at URL on this machine, until Ctrl-C.

    Then `eval "$(podyard env)"`, gcloud, ssh and all other clients work as on the server.
    """
    settings = settings_of(data)
    try:
        folder = _Folder(settings)
    except PodyardError as error:
        say(f"podyard connect: {error.message}")
        return EXIT_SETUP
    listeners: dict[str, socket.socket] = {}
    try:
        door = folder.door(url, token, ca, fingerprint)
        described = _ask(door)
        wanted = {"api": port, "grpc": grpc_port, "storage": storage_port}
        listeners = {
            name: _listen(name, wanted.get(name), there)
            for name, there in described["ports"].items()
        }
        folder.write(door, described, listeners)
        return asyncio.run(_run(folder, door, described, listeners))
    except PodyardError as error:
        say(f"podyard connect: {error.message}")
        return EXIT_SETUP
    except OSError as error:
        say(f"podyard connect: {error.filename or settings.data}: {error.strerror}")
        return EXIT_SETUP
    finally:
        for listener in listeners.values():
            listener.close()
        folder.close()


class _Folder:
    """The data folder of a connection: `podyard env` and all commands find the ports there, as
    those of `podyard up`.

    Raises FAILED_PRECONDITION for the folder of a Podyard of this machine, or one in use.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        data = settings.data
        if settings.database_path is not None and settings.database_path.exists():
            text = f"{data} belongs to a Podyard of this machine: choose another folder with --data"
            raise PodyardError(Code.FAILED_PRECONDITION, text)
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            claim = processes.claim(data)
        except OSError as error:
            raise PodyardError(
                Code.FAILED_PRECONDITION, f"cannot write to {data}: {error.strerror}"
            ) from None
        if claim is None:
            text = (
                f"{data} is in use by another `podyard connect` or `podyard up`: stop it, or "
                "choose another --data"
            )
            raise PodyardError(Code.FAILED_PRECONDITION, text)
        self._claim = claim
        self._written: list[Path] = []
        os.umask(0o077)

    def door(
        self, url: str | None, token: str | None, ca: Path | None, fingerprint: str | None
    ) -> DoorTarget:
        """Return what the options say, else what was said the last time. Raises INVALID_ARGUMENT,
        UNAUTHENTICATED."""
        before = read_json(self.settings.data / CONNECTION_FILE)
        if url is None:
            url = before.get("url")
        elif url.rstrip("/") != before.get("url"):
            before = {}  # another Podyard: neither its authority nor its token
        if not url:
            raise invalid(
                "which Podyard? Use `podyard connect https://HOST:8743`; `podyard status` "
                "says it there"
            )
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/"):
            raise invalid(f"URL {url!r} must be https:// with a host and a port only")
        own_ca = self.settings.data / CA_FILE
        if fingerprint is not None:
            write_atomically(own_ca, trust.fetch_authority(url, fingerprint).encode())
        elif ca is not None:
            trust.context(ca)
            write_atomically(own_ca, ca.read_bytes())
        elif "url" not in before:
            own_ca.unlink(missing_ok=True)
        token = (
            token
            or os.environ.get("PODYARD_TOKEN")
            or (_token_of(self.settings) if before else None)
        )
        if not token:
            token = click.prompt("Token", hide_input=True, err=True) if os.isatty(0) else ""
        if not token:
            raise invalid("no token: use --token, or set PODYARD_TOKEN")
        tls = trust.context(own_ca if own_ca.exists() else None)
        return DoorTarget(
            url.rstrip("/"), token.strip(), tls, lambda text: say(f"podyard connect: {text}")
        )

    def write(
        self, door: DoorTarget, described: Mapping[str, Any], listeners: Mapping[str, socket.socket]
    ) -> None:
        data, ports = (
            self.settings.data,
            {name: one.getsockname()[1] for name, one in listeners.items()},
        )
        write_atomically(data / CONNECTION_FILE, json.dumps({"url": door.url}).encode())
        write_atomically(self.settings.token_path, f"{door.token}\n".encode())
        write_atomically(roots_path(data), described["gcloudRoots"].encode())
        write_atomically(data / PROXY_FILE, json.dumps({"port": ports.get("gcloud", 0)}).encode())

    def write_state(
        self, door: DoorTarget, listeners: Mapping[str, socket.socket], ssh_port: int
    ) -> None:
        """As `podyard up` does when it is ready."""
        ports = {name: one.getsockname()[1] for name, one in listeners.items()}
        own = processes.find_process(processes.SUPERVISOR, os.getpid())
        assert own is not None, "this process lives"
        processes.record(self.settings.data, [own])
        grpc: dict[str, Any] = {"grpcPort": ports["grpc"]} if "grpc" in ports else {}
        state: dict[str, Any] = {
            "url": f"http://{LOOPBACK}:{ports['api']}",
            "ports": {
                "http": ports["api"],
                **{name: ports[name] for name in ("storage", "grpc") if name in ports},
            },
            "pids": {processes.SUPERVISOR: own.as_json()},
            "connectedTo": door.url,
            "sshPort": ssh_port,
            **grpc,
        }
        processes.write_json(self.settings.state_path, state)
        self._written = [self.settings.state_path, self.settings.data / processes.PROCESSES_FILE]

    @property
    def socket_path(self) -> Path:
        return self.settings.data / CONNECT_SOCKET

    def forget_token(self) -> None:
        self.settings.token_path.unlink(missing_ok=True)

    def close(self) -> None:
        for path in (*self._written, self.socket_path):
            path.unlink(missing_ok=True)
        os.close(self._claim)


async def _run(
    folder: _Folder,
    door: DoorTarget,
    described: Mapping[str, Any],
    listeners: Mapping[str, socket.socket],
) -> int:
    """Until a signal, or until the token is not valid any more."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    ports = LocalPorts(door)
    try:
        await ports.serve(listeners)
        folder.socket_path.unlink(missing_ok=True)
        await ports.serve_socket(str(folder.socket_path))
        await ports.follow(_addresses(described))
        folder.write_state(door, listeners, ports.ssh_port)
        url = f"http://{LOOPBACK}:{listeners['api'].getsockname()[1]}"
        click.echo(
            f"Connected to {door.url}: {url}  (console {url}/console, data {folder.settings.data})"
        )
        click.echo(f'In another terminal: eval "$(podyard env --data {folder.settings.data})"')
        return await _watch(folder, door, ports, listeners, stop)
    finally:
        ports.close()


async def _watch(
    folder: _Folder,
    door: DoorTarget,
    ports: LocalPorts,
    listeners: Mapping[str, socket.socket],
    stop: asyncio.Event,
) -> int:
    away, problem, ssh_port = False, "", ports.ssh_port
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await stop.wait()
            return 0
        try:
            described = await asyncio.to_thread(_ask, door)
        except PodyardError as error:
            if error.code in (Code.UNAUTHENTICATED, Code.INVALID_ARGUMENT):
                say(f"podyard connect: the token is not valid any more: {error.message}")
                folder.forget_token()
                return EXIT_FAILED
            if not away:
                say(f"podyard connect: {error.message}; trying again")
            away = True
            continue
        if away:
            say(f"podyard connect: {door.url} answers again")
        away = False
        await ports.follow(_addresses(described))
        if ports.ssh_port != ssh_port:
            ssh_port = ports.ssh_port
            folder.write_state(door, listeners, ssh_port)
        if ports.problem and ports.problem != problem:
            problem = ports.problem
            say(f"podyard connect: cannot listen for ssh on {problem}")
    return 0


def _ask(door: DoorTarget) -> dict[str, Any]:
    client = Client(
        Target(door.url, door.token, "", ""), timeout_seconds=ANSWER_SECONDS_MAX, tls=door.tls
    )
    try:
        return client.call("GET", "/podyard/v1/connection")
    finally:
        client.close()


def _addresses(described: Mapping[str, Any]) -> set[str]:
    """Of all hosts; none on macOS, where only 127.0.0.1 is this machine."""
    if not HAS_HOST_ADDRESSES:
        return set()
    found = set()
    for row in described["hosts"]:
        first = ipaddress.IPv4Address(row["address"])
        found |= {str(first + index) for index in range(int(row["count"]))}
    # The server is not to choose among all addresses of this machine.
    return {
        address
        for address in found
        if ipaddress.IPv4Address(address) in ipaddress.IPv4Network("127.128.0.0/9")
    }


def _listen(target: str, wanted: int | None, there: int) -> socket.socket:
    """Raises FAILED_PRECONDITION for a port in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port = there if wanted is None else wanted
    try:
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            if target in _OPTIONS:
                raise
            listener.bind((LOOPBACK, 0))  # of gcloud's proxy: `podyard env` says which it is
    except OSError as error:
        listener.close()
        option = _OPTIONS.get(target, "")
        text = f"cannot listen on {LOOPBACK}:{port}: {error.strerror}; choose another with {option}"
        raise PodyardError(Code.FAILED_PRECONDITION, text) from None
    listener.listen(BACKLOG)
    return listener


def _token_of(settings: Settings) -> str | None:
    try:
        return settings.token_path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


COMMANDS = {"connect": connect}
