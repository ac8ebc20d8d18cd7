"""Processes of a data folder, and who may start, take over or stop them.

A folder belongs to the process that holds the lock on `up.lock`. Processes are found in two ways:
by the record in `processes.json`, and by the marks that every child carries, so that a child is
known even if its supervisor was killed before it could record it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import RealClock
from podyard.base.files import read_json, write_atomically
from podyard.base.heartbeat import CHILD_VARIABLE

PROCESSES_FILE = "processes.json"
LOCK_FILE = "up.lock"
SUPERVISOR = "supervisor"
BROKER = "broker"
KILL_SECONDS_MAX = 5.0  # after SIGKILL the kernel needs a moment, not more
_POLL_SECONDS = 0.02
_BROKER_PROGRAMS = ("redis", "valkey")
_HAS_PROC = Path("/proc/self/stat").exists()
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True, slots=True)
class StackProcess:
    """One process of a stack. `started` tells it from every other process that has or had this
    pid."""

    name: str
    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return start_time(self.pid) == self.started

    @property
    def is_frozen(self) -> bool:
        """Tell whether a signal (SIGSTOP, Ctrl-Z) or a debugger has stopped it."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            stopped = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
            return psutil.Process(self.pid).status() in stopped
        return False

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ask_to_end(self) -> None:
        """SIGTERM, which a frozen process gets only when it goes on."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def wait_gone(self, clock: RealClock, seconds: float) -> bool:
        deadline = clock.monotonic_seconds() + seconds
        while self.is_alive:
            if clock.monotonic_seconds() > deadline:
                return False
            clock.sleep(_POLL_SECONDS)
        return True

    def stop(self, clock: RealClock, grace_seconds: float) -> None:
        """SIGTERM, a bounded wait, SIGKILL. Without grace SIGKILL at once."""
        if grace_seconds > 0:
            self.ask_to_end()
            if self.wait_gone(clock, grace_seconds):
                return
        self.signal(signal.SIGKILL)
        self.wait_gone(clock, KILL_SECONDS_MAX)

    def as_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started}


def start_time(pid: int) -> str | None:
    """When the process started; None when there is none: a pid alone may be another's. On Linux it
    is counted from the start of the machine, since dates of processes move when the clock is
    set."""
    if _HAS_PROC:
        try:
            # proc(5): the name in parentheses may hold anything; 3 is the state, 22 the start in
            # ticks since boot.
            fields = (
                Path(f"/proc/{pid}/stat")
                .read_text(encoding="utf-8", errors="replace")
                .rpartition(")")[2]
                .split()
            )
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in ("Z", "X") else f"{fields[19]}@{_boot_id()}"
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.NoSuchProcess:
        return None


def find_process(name: str, pid: int) -> StackProcess | None:
    """The living process; None when it is gone."""
    started = start_time(pid)
    return None if started is None else StackProcess(name, pid, started)


def claim(data: Path) -> int | None:
    """Makes the folder this process's own until the descriptor is closed; None when another process
    has it. Raises OSError when the folder cannot be written."""
    path = data / LOCK_FILE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # `podyard down --delete-data` may have removed the file between the two calls.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.close(descriptor)


def recorded_processes(data: Path) -> list[StackProcess]:
    """Return what the folder's file says, living or dead."""
    found = []
    for name, entry in read_json(data / PROCESSES_FILE).items():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found.append(StackProcess(name, int(entry["pid"]), str(entry["started"])))
    return found


def record(data: Path, found: Sequence[StackProcess]) -> None:
    write_json(data / PROCESSES_FILE, {process.name: process.as_json() for process in found})


def living(data: Path) -> list[StackProcess]:
    """Every living process of the folder's stack, the supervisor included, recorded or not."""
    found = {process.pid: process for process in _marked_processes(data)}
    found |= {process.pid: process for process in recorded_processes(data) if process.is_alive}
    return sorted(found.values(), key=lambda process: (process.name, process.pid))


def supervisor(data: Path) -> StackProcess | None:
    """The living supervisor of the folder, once it has recorded itself."""
    return next(
        (one for one in recorded_processes(data) if one.name == SUPERVISOR and one.is_alive), None
    )


def stop_orphans(
    orphans: Sequence[StackProcess], clock: RealClock, grace_seconds: Mapping[str, float]
) -> list[str]:
    """Stops what a killed supervisor left running, in the order of `grace_seconds`; returns the
    names."""
    order = list(grace_seconds)
    for process in sorted(
        orphans, key=lambda one: order.index(one.name) if one.name in order else -1
    ):
        process.stop(clock, grace_seconds.get(process.name, 0.0))
    return sorted({process.name for process in orphans})


def folder_with(variable: str, value: str) -> str | None:
    """The data folder of a running Podyard whose API has this value of an environment variable."""
    apis = (env for _, env in _children() if env[CHILD_VARIABLE] == "api")
    return next((env.get("PODYARD_DATA") for env in apis if env.get(variable) == value), None)


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, json.dumps(data, indent=1).encode())


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _marked_processes(data: Path) -> Iterator[StackProcess]:
    """The children of this folder by the environment that they were started with, and the broker by
    its working
    folder: Redis overwrites its environment when it sets its title."""
    own = data.resolve()
    for pid, env in _children():
        if Path(env.get("PODYARD_DATA", "/")).resolve() == own:
            process = find_process(env[CHILD_VARIABLE], pid)
            if process is not None:
                yield process
    for pid in _brokers(own / "broker"):
        process = find_process(BROKER, pid)
        if process is not None:
            yield process


def _children() -> Iterator[tuple[int, Mapping[str, str]]]:
    """Supervised processes of any folder, with their environment. What they start themselves does
    not count: each child of a supervisor leads a session."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            env = process.environ()
            if CHILD_VARIABLE in env and os.getsid(process.pid) == process.pid:
                yield process.pid, env


def _brokers(folder: Path) -> Iterator[int]:
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name().startswith(_BROKER_PROGRAMS) and Path(process.cwd()) == folder:
                yield process.pid
