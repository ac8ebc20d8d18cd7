"""The processes of a job's program on one host: found, told to end, and ended by the process that
is left to do it.

The replica that started them does, while it lives. Killed, it leaves a record in its host's folder,
by which the agent ends them before it says that the replica is gone; and the next replica on the
host ends what others have left first. In a box they are the processes of a control group; elsewhere
they are those of a session, and all that carry the replica's id in their environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.programs.slice import PROGRAM_VARIABLE
from podyard.workers.host import scripts
from podyard.workers.kit import process_group
from podyard.workers.kit.process_group import ProcessRecord

FOLDER = "jobs"  # of records, in a host's folder
_POLL_SECONDS = 0.02
_TITLE_CHARACTERS_MAX = 80
_STATES = {"R": "running", "S": "sleeping", "D": "waiting for a disk", "T": "stopped", "Z": "ended"}


@dataclasses.dataclass(frozen=True, slots=True)
class JobProcesses:
    """Those of one replica on one host. `folder`: of the host's records. `cgroup`: of the program,
    in a box."""

    folder: Path
    record: ProcessRecord
    cgroup: Path | None

    def pids(self) -> list[int]:
        """Of those that live."""
        if self.cgroup is not None:
            try:
                return [int(pid) for pid in (self.cgroup / "cgroup.procs").read_text().split()]
            except OSError:
                return []
        return _pids(self.record)

    def signal(self, number: int, *, but: Sequence[int] = ()) -> None:
        for pid in self.pids():
            if pid not in but:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def end(self, clock: RealClock) -> bool:
        """SIGKILL until none is left, and the record goes; False if some do not end."""
        deadline = clock.monotonic_seconds() + process_group.KILL_SECONDS_MAX
        while self.pids():
            self.signal(signal.SIGKILL)
            if clock.monotonic_seconds() > deadline:
                return False
            clock.sleep(_POLL_SECONDS)
        if self.cgroup is not None:
            with contextlib.suppress(OSError):
                self.cgroup.rmdir()
        process_group.remove_record(self.folder, self.record.replica)
        return True


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal; False also for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    mask = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def title(pid: int) -> str:
    """The beginning of its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    return (
        " ".join(word.decode(errors="replace") for word in words if word)[:_TITLE_CHARACTERS_MAX]
        or "no command"
    )


def waits_for(pid: int) -> str:
    """Its state and, where the kernel tells, in which of its functions it sleeps."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        where = Path(f"/proc/{pid}/wchan").read_text().strip("\0\n0")
    except OSError:
        return "it is gone"
    return (
        f"{_STATES.get(state, state)}{f' in {where}' if where else ''}; it is not a "
        "Python that "
        "Podyard can ask"
    )


def on_host(host_folder: Path, cgroup_of_host: Path | None) -> list[JobProcesses]:
    """Return what replicas run on a host, or have left there. `cgroup_of_host`: of its box."""
    folder, found = host_folder / FOLDER, []
    for record in process_group.records(folder):
        cgroup = None if cgroup_of_host is None else cgroup_of_host / record.replica
        found.append(
            JobProcesses(folder, record, cgroup if cgroup is not None and cgroup.is_dir() else None)
        )
    return found


def of_replica(hosts_folder: Path, replica: str, cgroups: Path | None) -> list[JobProcesses]:
    """Return what one replica has left on the hosts of an agent. `cgroups`: of all boxes of the
    agent."""
    return [
        item
        for path in hosts_folder.glob(f"*/{FOLDER}/{replica}.json")
        for item in on_host(
            path.parent.parent, None if cgroups is None else cgroups / path.parent.parent.name
        )
        if item.record.replica == replica
    ]


def _pids(record: ProcessRecord) -> list[int]:
    import psutil

    session = record.pid if scripts.is_session(record) else None
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if (
                os.getsid(process.pid) == session
                or process.environ().get(PROGRAM_VARIABLE) == record.replica
            ):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found
