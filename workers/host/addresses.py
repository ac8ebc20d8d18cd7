"""The sockets of a host that shares the machine's network: which address and which ports it
gets."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from podyard.base.files import read_json
from podyard.domain.host import LOOPBACK, NOTEBOOK, SSH_PORT, TENSORFLOW_PORT
from podyard.settings import STORAGE_PORT

LISTEN_BACKLOG = 64
# The port that each service has on a machine of Google's, and storage here; taken when the address
# is the host's own and it is free.
USUAL_PORTS = {
    "metadata": 80,
    "ssh": SSH_PORT,
    "tensorflow": TENSORFLOW_PORT,
    "storage": STORAGE_PORT,
    NOTEBOOK: 0,  # any: a TPU VM has none
}
_PORTS = "ports.json"


def open_sockets(
    bind_address: str, own_address: str | None, before: Mapping[str, int], *, listens: bool
) -> tuple[str, dict[str, socket.socket]]:
    """(this machine's own address of the host, bound sockets by service).

    Ports: those of before, the usual ones on an own address, else any. The metadata server gives
    tokens to all who reach it, so it never listens on an address that other machines reach; ssh
    does when the agent does. `listens`: the host has an ssh listener already, and needs none for
    this machine.
    """
    local_only = bind_address.startswith("127.") or bind_address in ("localhost", "::1")
    for local in (own_address, LOOPBACK):
        if local is None:
            continue
        usual = USUAL_PORTS if local == own_address else dict.fromkeys(USUAL_PORTS, 0)
        wanted: dict[str, tuple[str, tuple[int | None, ...]]] = {
            name: (local, (before.get(name), port, 0)) for name, port in usual.items()
        }
        if not local_only:
            wanted["ssh"] = (bind_address, (before.get("ssh"), 0))
        elif listens:
            del wanted["ssh"]
        try:
            return local, _bind_all(wanted)
        except OSError:
            if local == LOOPBACK:
                raise
    raise AssertionError("unreachable")


def store_ports(folder: Path, ports: Mapping[str, int]) -> None:
    """Keep the ports of a host for its next life."""
    (folder / _PORTS).write_text(json.dumps(ports), encoding="utf-8")


def read_ports(folder: Path) -> dict[str, int]:
    """Return the ports of the host's life before."""
    ports = read_json(folder / _PORTS)
    return {
        name: port for name, port in ports.items() if name in USUAL_PORTS and isinstance(port, int)
    }


def _bind_all(wanted: Mapping[str, tuple[str, tuple[int | None, ...]]]) -> dict[str, socket.socket]:
    """A socket for each (address, ports to try in order)."""
    found: dict[str, socket.socket] = {}
    try:
        for name, (address, ports) in wanted.items():
            found[name] = bind(address, [port for port in ports if port is not None])
    except OSError:
        for opened in found.values():
            opened.close()
        raise
    return found


def bind(address: str, ports: Sequence[int]) -> socket.socket:
    """A socket on the first port that can be had. Raises OSError of the last try."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in ports:
        # Named as TCP, so that asyncio switches Nagle off.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(LISTEN_BACKLOG)
            listener.setblocking(False)
            return listener
        except OSError:
            listener.close()
            if port == ports[-1]:
                raise
    raise AssertionError("no port to try")
