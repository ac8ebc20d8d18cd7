"""The last lines of what scripts of a node's hosts have written, where the hosts are on this
machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from podyard.base.clock import RealTime
from podyard.domain.host import host_name

HOSTS_MAX = 16  # of one page
LINES_MAX = 60  # of one script
_TAIL_BYTES = 16 << 10


class HostLog(NamedTuple):
    """`written`: when the last line was."""

    host: int
    script: str
    lines: list[str]
    written: RealTime


def last_lines(data: Path, node_key: str, host_count: int) -> list[HostLog]:
    """`data`: Podyard's folder. By host, then by time."""
    found = []
    for host in range(min(host_count, HOSTS_MAX)):
        for path in sorted(
            data.glob(f"agents/*/hosts/{host_name(node_key, host)}/processes/*.log")
        ):
            lines, written = _tail(path)
            if lines:
                found.append(HostLog(host, path.stem, lines, written))
    return found


def _tail(path: Path) -> tuple[list[str], RealTime]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return [], RealTime(0)
            file.seek(max(0, status.st_size - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except OSError:
        return [], RealTime(0)
    lines = data.decode(errors="replace").splitlines()
    first = 1 if status.st_size > _TAIL_BYTES else 0
    return lines[first:][-LINES_MAX:], RealTime(status.st_mtime_ns)
