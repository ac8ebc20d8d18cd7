"""Process groups of replicas: started with a record, found again after a restart, stopped whole.

The record is written before the process starts (the intent) and again when it runs, so that an
agent that dies in between leaves a trace: the next one looks for a process with that replica's id
in its command line.

psutil is imported by what needs it: an agent whose machine runs nothing need not keep it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.base.files import write_atomically

# a replica leaves within one second of SIGTERM; a user's child of it may need more
STOP_GRACE_SECONDS = 3.0
KILL_SECONDS_MAX = 5.0  # after SIGKILL the kernel needs a moment, not more
_POLL_SECONDS = 0.02
_SAME_START_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A replica's process, as its folder records it; `pid` None: intended, perhaps never
    started."""

    replica: str
    fence: int
    pid: int | None
    started: float | None


class Group:
    """One replica's process group on this machine. `process` is None for an adopted one."""

    def __init__(self, pid: int, started: float, process: subprocess.Popen[bytes] | None) -> None:
        self.pid = pid
        self.started = started
        self._process = process

    def exit_code(self) -> tuple[bool, int | None]:
        """(whether the leader has ended, its exit code where we are its parent)."""
        if self._process is not None:
            code = self._process.poll()
            return code is not None, code
        return not _is(self.pid, self.started), None

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return

    def is_gone(self) -> bool:
        """Return whether no process of the group is left (the leader's zombie does not count: we
        reap it)."""
        if self._process is not None:
            self._process.poll()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return all(_is_zombie(pid) for pid in _members(self.pid))

    def wait_gone(self, clock: RealClock, seconds: float) -> bool:
        deadline = clock.monotonic_seconds() + seconds
        while not self.is_gone():
            if clock.monotonic_seconds() > deadline:
                return False
            clock.sleep(_POLL_SECONDS)
        return True


def start(
    folder: Path,
    replica: str,
    fence: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    umask: int = -1,
) -> Group:
    """Starts the process in a new session; `umask` -1: with ours. Raises OSError when it cannot be
    started."""
    import psutil

    write_record(folder, ProcessRecord(replica, fence, None, None))
    log = folder / f"{replica}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            close_fds=True,
            umask=umask,
        )
    started = psutil.Process(process.pid).create_time()
    write_record(folder, ProcessRecord(replica, fence, process.pid, started))
    return Group(process.pid, started, process)


def start_of(pid: int) -> float | None:
    """When a living process was started."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def adopt(record: ProcessRecord) -> Group | None:
    """The group of a record whose process still runs; None when it does not."""
    import psutil

    if record.pid is not None and record.started is not None:
        return Group(record.pid, record.started, None) if _is(record.pid, record.started) else None
    for process in psutil.process_iter(["cmdline", "create_time"]):
        if record.replica in (process.info["cmdline"] or ()):
            return Group(process.pid, process.info["create_time"], None)
    return None


def records(folder: Path) -> list[ProcessRecord]:
    """Every record of the folder; one that cannot be read is as good as none and is removed."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(ProcessRecord(**json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, TypeError):
            path.unlink(missing_ok=True)
    return found


def write_record(folder: Path, record: ProcessRecord) -> None:
    write_atomically(
        folder / f"{record.replica}.json", json.dumps(dataclasses.asdict(record)).encode()
    )


def remove_record(folder: Path, replica: str) -> None:
    (folder / f"{replica}.json").unlink(missing_ok=True)


def signal_stop(group: Group) -> None:
    group.signal(signal.SIGTERM)


def signal_kill(group: Group) -> None:
    group.signal(signal.SIGKILL)


def _is(pid: int, started: float) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < _SAME_START_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_zombie(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _members(group: int) -> list[int]:
    import psutil

    found = []
    for pid in psutil.pids():
        try:
            if os.getpgid(pid) == group:
                found.append(pid)
        except (ProcessLookupError, PermissionError):
            continue
    return found
