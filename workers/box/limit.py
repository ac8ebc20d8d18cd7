"""Ends the programs of a box that go on asking for processes at its limit.

Linux refuses them, but that has a cost for the whole machine: 256 processes that asked all the time
have kept a command elsewhere waiting for 46 s. Why it does is not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from podyard.workers.box import kill as box_kill
from podyard.workers.box.box import Box
from podyard.workers.box.space import run

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# in a row: a program that fails at the limit does not ask that long, and a shell waits 1, 2, 4 and
# 8 s
LOOKS = 3
# in a row, where nobody counts refusals: a shell that is refused has given up by then
FULL_LOOKS = 30
# of SIGKILL; the 640 processes of a bomb have been gone after 0.2 s
ROUND_SECONDS, ROUNDS_MAX = 0.1, 300
REASON = "all programs of the host were ended: they stayed at its limit of {} processes"


class RefusedForks:
    """Of the processes of one box."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._count = self._read()
        self._looks = self._full_looks = 0

    def look(self) -> bool:
        """Return whether processes were refused before each of the last `LOOKS` looks. Where nobody
        counts that: whether the box had all its processes at these while half as many wanted to run
        on the machine, or at the last `FULL_LOOKS` while they did not, as bombs that mostly
        sleep."""
        if self._box.cgroups:
            before, self._count = self._count, self._read()
            is_refused = self._count > before
        else:
            most = self._box.processes_max
            is_full = _process_count(self._box.pid) >= most - most // 64
            self._full_looks = self._full_looks + 1 if is_full else 0
            is_refused = is_full and _running_count() >= most // 2
        self._looks = self._looks + 1 if is_refused else 0
        return self._looks >= LOOKS or self._full_looks >= FULL_LOOKS

    def _read(self) -> int:
        """In the box's life. Some versions of Linux count where the limit is, others in the group
        of who asks."""
        found = 0
        for cgroup in self._box.cgroups:
            for path in (cgroup / "pids.events", *cgroup.glob("*/pids.events")):
                with contextlib.suppress(OSError):
                    found += int(path.read_text().split()[1])
        return found


def _running_count() -> int:
    """Threads that want to run on the machine."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


def _process_count(first: int) -> int:
    """Threads of the box whose first process this is, by its own /proc, which shows no others; 0
    once it has ended."""
    found = 0
    with contextlib.suppress(OSError):
        for path in Path("/proc", str(first), "root", "proc").iterdir():
            if path.name.isdigit():
                with contextlib.suppress(OSError):  # gone meanwhile
                    found += (path / "task").stat().st_nlink - 2
    return found


async def watch(box: Box, on_end: Callable[[str], None]) -> None:
    """As long as the host lives. `on_end` hears why the box's programs are going to be ended."""
    refusals = RefusedForks(box)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not refusals.look():
            continue
        box.ends += 1
        on_end(reason(box))
        try:
            if box.cgroups:
                await _end_programs(box)
            else:
                await asyncio.to_thread(
                    run, (sys.executable, "-I", "-S", box_kill.__file__, str(box.pid))
                )
        except OSError as error:
            logger.warning("the programs of a box cannot be ended: %s", error)
        refusals = RefusedForks(box)


async def _end_programs(box: Box) -> None:
    """Kills all but the box's first process. Nothing is started for it: on a machine that bears a
    fork bomb that may take long. While the limit is 0 there are no new ones."""
    group = next((path for path in box.cgroups if (path / "pids.max").exists()), None)
    if group is None:
        return  # the box has ended meanwhile
    (group / "pids.max").write_text("0")
    try:
        for _ in range(ROUNDS_MAX):
            found = [
                int(pid)
                for path in (group, *group.glob("*/"))
                for pid in (path / "cgroup.procs").read_text().split()
            ]
            if set(found) <= {box.pid}:
                return
            for pid in found:
                if pid != box.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(ROUND_SECONDS)
        raise OSError("they do not end")
    finally:
        (group / "pids.max").write_text(str(box.processes_max))


def reason(box: Box) -> str:
    return REASON.format(box.processes_max)
