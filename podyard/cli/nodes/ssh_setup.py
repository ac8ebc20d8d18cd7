"""`podyard ssh setup`: lets OpenSSH find the hosts of TPU nodes where they cannot listen on port
22.

gcloud dials port 22 of a host's address. Without root, or where another ssh server has port 22 of
all addresses, hosts listen on another port, and on macOS they have no address of their own. One
Include line in ~/.ssh/config, which nobody but this command writes, leads to a file of the data
folder that says so.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import selectors
import shlex
import socket
from pathlib import Path

import click

from podyard.base.errors import Code, PodyardError
from podyard.base.files import write_atomically
from podyard.base.interpreter import python_command
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.options import (
    client_of,
    data_option,
    quiet_option,
    settings_of,
    target_options,
)
from podyard.cli.kit.output import say
from podyard.cli.kit.terminal import confirm
from podyard.cli.nodes.tpu_hosts import materialise
from podyard.domain.host import HAS_HOST_ADDRESSES, SSH_PORT, SSH_PORT_WITHOUT_ROOT
from podyard.settings import Settings

CONNECT_SOCKET = "connect.sock"  # of `podyard connect`: takes an address and leads to its host
_PROBE_ADDRESS = "127.255.255.254"  # the last one that a host can have
_CONNECT_SECONDS_MAX = 20.0
_PIECE_BYTES = 64 << 10
# 127.128.0.0/9 and 198.18.0.0/15, as patterns of ssh_config can say it.
_LOOPBACK_PATTERNS = " ".join(
    ["127.128.*", "127.129.*", *(f"127.1{tens}?.*" for tens in range(3, 10)), "127.2??.*"]
)
_NOWHERE_PATTERNS = "198.18.* 198.19.*"


@click.group(cls=CommandGroup)
def ssh() -> None:
    """Connect OpenSSH and gcloud to the hosts of TPU nodes."""


@ssh.command()
@data_option
@click.option("--remove", is_flag=True, help="Remove the Include line.")
@quiet_option
def setup(data: str | None, remove: bool, quiet: bool) -> None:
    """Add an Include line to $HOME/.ssh/config. Not needed if hosts listen on port 22."""
    settings = settings_of(data)
    path = Path.home() / ".ssh" / "config"
    line = include_line(settings)
    if remove:
        if not _change(path, [existing for existing in _lines(path) if existing != line]):
            say(f"{path} has no line of ours: nothing was changed")
            return
        say(f"removed from {path}: {line}")
        return
    _write_config(settings)
    if line in _lines(path):
        say(f"{path} has the line already: nothing was changed")
        return
    if not needs_setup():
        say(
            f"hosts listen on port {SSH_PORT} here, where gcloud and ssh look for them: this "
            "is not needed"
        )
    if not quiet:
        confirm(f"Add this line at the beginning of {path}?\n  {line}\n", "--yes")
    # At the beginning: below a Host line it would count for those hosts only.
    _change(path, [line, *_lines(path)])
    say(f"added to {path}; `podyard ssh setup --remove` takes it out again")
    if (own := _config_of_ssh()) != path:
        say(
            f"ssh reads {own} whatever HOME is: use `ssh -F {path}`, or "
            "`env -u HOME podyard ssh setup`"
        )


@ssh.command(hidden=True)
@click.argument("address")
@target_options
def connect(address: str, data: str | None, project: str | None, location: str | None) -> None:
    """Connect standard input and output to the ssh server of the host with this external
    address."""
    connected = settings_of(data).data / CONNECT_SOCKET
    if connected.exists():
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(str(connected))
            there.sendall(f"{address}\n".encode())
            _join(there)
        return
    client = client_of(data, project, location)
    try:
        place, node, worker = _find(client, address)
        (host,) = materialise(client, node, str(worker), place)
    finally:
        client.close()
    with socket.create_connection(
        (host["address"], host["ports"]["ssh"]), _CONNECT_SECONDS_MAX
    ) as there:
        there.settimeout(None)
        _join(there)


def include_line(settings: Settings) -> str:
    return f'Include "{_config_path(settings)}"'


def notes(settings: Settings) -> list[str]:
    """Return what a user of gcloud must know before `ssh`."""
    texts = [_setup_note(settings)]
    if getpass.getuser() == "root":
        texts.append(
            "podyard env: gcloud logs in as root here, which hosts in boxes refuse: name a user "
            "(`ssh USER@NODE`), or set LOGNAME"
        )
    return [text for text in texts if text is not None]


def _setup_note(settings: Settings) -> str | None:
    """Return that `podyard ssh setup` is needed. None when it is not, or is done."""
    if not needs_setup() or include_line(settings) in _lines(_config_of_ssh()):
        return None
    where = f"port {SSH_PORT_WITHOUT_ROOT}" if HAS_HOST_ADDRESSES else "other ports"
    return (
        f"podyard env: hosts listen on {where} for ssh, since port {SSH_PORT} cannot be opened "
        "here; run `podyard ssh "
        "setup` once before `gcloud compute tpus tpu-vm ssh` (it adds one Include line to "
        "~/.ssh/config)"
    )


def needs_setup() -> bool:
    """Return whether hosts cannot listen on port 22 of an address of their own."""
    if not HAS_HOST_ADDRESSES:
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_PROBE_ADDRESS, SSH_PORT))
            probe.listen(1)
        except OSError:
            return True
    return False


def config_text(settings: Settings) -> str:
    """Return what the Include line leads to."""
    lines = ["# Written by `podyard ssh setup`: where the hosts of TPU nodes listen for ssh.", ""]
    if HAS_HOST_ADDRESSES:
        lines += [f"Host {_LOOPBACK_PATTERNS}", f"  Port {SSH_PORT_WITHOUT_ROOT}"]
    else:
        program = "import podyard.main; podyard.main.cli()"
        words = ("ssh", "connect", "--data", str(settings.data), "%h")
        command = python_command("-c", program, *words)
        lines += [f"Host {_NOWHERE_PATTERNS}", f"  ProxyCommand {shlex.join(command)}"]
    return "\n".join(lines) + "\n"


def _config_path(settings: Settings) -> Path:
    return settings.data / "ssh" / "config"


def _write_config(settings: Settings) -> None:
    path = _config_path(settings)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, config_text(settings).encode())


def _config_of_ssh() -> Path:
    """Return the file that ssh reads: below the home that the user database names, whatever HOME
    is."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh" / "config"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise PodyardError(Code.FAILED_PRECONDITION, f"cannot read {path}: {error}") from None


def _change(path: Path, lines: list[str]) -> bool:
    """Writes the file; returns whether it is another now. Its mode stays, and so does a link that
    it is."""
    if lines == _lines(path):
        return False
    real = path.resolve()
    real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = real.stat().st_mode & 0o777 if real.exists() else 0o600
    write_atomically(real, "".join(f"{line}\n" for line in lines).encode(), mode)
    return True


def _find(client: Client, address: str) -> tuple[str, str, int]:
    """(zone, node, worker) of the host with this external address. Raises NOT_FOUND."""
    for item in client.pages(client.zone_path("-") + "/nodes", "nodes"):
        networks = max(1, len(item.get("networkConfigs", ())))
        for index, endpoint in enumerate(item.get("networkEndpoints", ())):
            if endpoint.get("accessConfig", {}).get("externalIp") == address:
                _, _, _, zone, _, node = item["name"].split("/")
                return zone, node, index // networks
    raise PodyardError(
        Code.NOT_FOUND, f"no host of project {client.target.project} has the address {address}"
    )


def _join(there: socket.socket) -> None:
    """Copies both ways until the other side has ended."""
    with selectors.DefaultSelector() as selector, contextlib.suppress(ConnectionError):
        selector.register(0, selectors.EVENT_READ)
        selector.register(there, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is there:
                    piece = there.recv(_PIECE_BYTES)
                    if not piece:
                        return
                    while piece:
                        piece = piece[os.write(1, piece) :]
                elif data := os.read(0, _PIECE_BYTES):
                    there.sendall(data)
                else:
                    selector.unregister(0)
                    there.shutdown(socket.SHUT_WR)


COMMANDS = {"ssh": ssh}
