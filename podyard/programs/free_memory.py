"""Free memory of this machine, by its kernel: users' Pythons need not have psutil."""

from __future__ import annotations

import re
from pathlib import Path


def free_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """None where the system does not say."""
    try:
        found = re.search(
            r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(encoding="ascii"), re.MULTILINE
        )
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
