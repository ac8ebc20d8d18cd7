"""A replica's use of the machine that it runs on: CPU time, and resident memory over time."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from podyard.base.clock import RealClock

_STATM = Path("/proc/self/statm")  # Linux: its second number are resident pages
_PAGE_KIB = resource.getpagesize() // 1024


class MachineMeter:
    """Sums, as integers. CPU time is exact, with that of child processes that have ended. Memory is
    looked at when it
    is asked for, and counts as if it had been so since the last time."""

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._since = clock.monotonic_seconds()
        self._kib_milliseconds = 0

    def read(self) -> dict[str, int]:
        """As a report has them. Two threads must not ask at the same time."""
        now = self._clock.monotonic_seconds()
        self._kib_milliseconds += _resident_kib() * max(0, round((now - self._since) * 1000))
        self._since = now
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        seconds = sum(one.ru_utime + one.ru_stime for one in used)
        return {
            "cpuMicroseconds": round(seconds * 1e6),
            "memoryKibSeconds": self._kib_milliseconds // 1000,
        }


def _resident_kib() -> int:
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_KIB
    except (OSError, ValueError, IndexError):
        # Elsewhere the highest that it has been: on macOS in bytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak
