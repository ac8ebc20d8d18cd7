"""The last lines of what scripts of a node's hosts have written, where the hosts are on this
machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from podyard.domain.host import host_name

HOSTS_MAX = 16  # of one page
LINES_MAX = 60  # of one script
_TAIL_BYTES = 16 << 10


class HostLog(NamedTuple):
    host: int
    script: str
    lines: list[str]


def last_lines(data: Path, node_key: str, host_count: int) -> list[HostLog]:
    """`data`: Podyard's folder. By host, then by time."""
    found = []
    for host in range(min(host_count, HOSTS_MAX)):
        for path in sorted(
            data.glob(f"agents/*/hosts/{host_name(node_key, host)}/processes/*.log")
        ):
            if lines := _tail(path):
                found.append(HostLog(host, path.stem, lines))
    return found


def _tail(path: Path) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return []
            file.seek(max(0, status.st_size - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except OSError:
        return []
    lines = data.decode(errors="replace").splitlines()
    return lines[1 if status.st_size > _TAIL_BYTES else 0 :][-LINES_MAX:]
