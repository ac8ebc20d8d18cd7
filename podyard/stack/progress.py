"""Progress of a start, in CPU time: on a loaded machine seconds on a clock say nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

# a start takes about 4 s of CPU time; beyond this something is wrong
START_CPU_SECONDS_MAX = 60.0
# without progress: a process waits for something that does not come
STALL_SECONDS_MAX = 60.0
# of CPU time in that time: less is what idle processes take
PROGRESS_CPU_SECONDS = 1.0


@dataclasses.dataclass
class StartProgress:
    """CPU time of processes that start. `since`: when they last got on, by the monotonic clock."""

    since: float
    _counted_seconds: float = 0.0

    def look(self, pids: Sequence[int], now: float) -> None:
        """Take in the CPU time of the processes; of a restarted one it begins again."""
        used = sum(cpu_seconds(pid) for pid in pids)
        if used < self._counted_seconds:
            self._counted_seconds = used
        if used - self._counted_seconds >= PROGRESS_CPU_SECONDS and used < START_CPU_SECONDS_MAX:
            self._counted_seconds, self.since = used, now

    def is_stalled(self, now: float) -> bool:
        return now - self.since > STALL_SECONDS_MAX


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; 0.0 when it is gone."""
    with contextlib.suppress(OSError, ValueError):
        # proc(5): the name in parentheses may hold anything; 14 and 15 are user and system time
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    if Path("/proc/self/stat").exists():
        return 0.0
    import psutil

    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0
