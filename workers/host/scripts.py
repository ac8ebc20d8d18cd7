"""Programs on a host: scripts with a record and a result, and everything that can be found of the
host's processes.

Every process of a host carries the host's id in its environment, and each script and session has a
record of its leader: a host server that was killed leaves nothing that the next one could not find,
adopt, or end.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podyard.base.clock import RealClock
from podyard.workers.kit import process_group
from podyard.workers.kit.process_group import Group, ProcessRecord

if TYPE_CHECKING:
    import psutil

    from podyard.workers.box.box import Box

HOST_VARIABLE = "PODYARD_HOST"
# "look now" to the host server; nothing to a process that does not listen for it yet
POKE_SIGNAL = signal.SIGURG
SHELL = shutil.which("bash") or "/bin/sh"
# Runs a command and leaves its exit code in a file ($1), so that it is known even when nobody
# watched the end.
_WRAPPER = (
    'file=$1; shift; "$@"; code=$?; echo "$code" > "$file.new" && mv "$file.new" "$file"; '
    'exit "$code"'
)

# of what users run on a host, as on Google's machines: all of it lies in a folder that is closed
USERS_UMASK = 0o022
LOGS_KEPT_MAX = 10  # of the scripts of one host: the last few boots are what anybody looks at
CONSOLE_BYTES = 8 << 10  # of each script's output in a report, for an instance's serial port
_SWEEP_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """One living process; `host_id` is empty for one that belongs to no host."""

    process: psutil.Process
    session: int
    host_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class ScriptState:
    """`state`: RUNNING or DONE; `exit_code` None: not known, since nobody saw the end."""

    state: str
    exit_code: int | None = None

    def to_json(self, output: str) -> dict[str, Any]:
        """`output`: the end of what it has written."""
        return {"state": self.state, "exitCode": self.exit_code, "output": output}


class HostProcesses:
    """The processes of one host. `folder` is the host's; scripts, records, logs and results lie in
    `processes`."""

    def __init__(self, folder: Path, host_id: str, generation: int, box: Box | None = None) -> None:
        self._folder = folder / "processes"
        self._folder.mkdir(exist_ok=True)
        self._host_id = host_id
        self._generation = generation
        self.box = box
        self._running: dict[str, Group] = {}
        self._states: dict[str, ScriptState] = {}

    def run_script(self, kind: str, text: str, env: Mapping[str, str]) -> None:
        """Starts a script once in this life of the host: one that runs is adopted, one that has
        ended stays so. One
        that vanished with the machine, its end unseen, runs again. Raises OSError when it cannot be
        started."""
        name = self._name(kind)
        if self._result(name) is not None:
            self._states[kind] = ScriptState("DONE", self._result(name))
            return
        record = next((r for r in process_group.records(self._folder) if r.replica == name), None)
        group = None if record is None else process_group.adopt(record)
        if group is None:
            if self.box is not None:
                command = self.box.enter((self.box.place(kind, text),), as_root=True)
            else:
                script = self._folder / name
                script.write_text(text, encoding="utf-8")
                script.chmod(0o700)
                command = [SHELL, "-c", 'cd "$HOME" || exit 1; exec "$0"', str(script)]
            argv = (SHELL, "-c", _WRAPPER, name, str(self._folder / f"{name}.exit"), *command)
            group = process_group.start(
                self._folder, name, self._generation, argv, env, USERS_UMASK
            )
        self._running[kind] = group
        self._states[kind] = ScriptState("RUNNING")

    def look(self) -> dict[str, ScriptState]:
        """The scripts as they stand now. The leader's end is the script's: what it left in the
        background goes on."""
        for kind, group in list(self._running.items()):
            ended, code = group.exit_code()
            if ended:
                found = self._result(self._name(kind))
                self._states[kind] = ScriptState("DONE", code if found is None else found)
                del self._running[kind]
        return dict(self._states)

    def tell(self) -> dict[str, dict[str, Any]]:
        """The state of each script, for a report."""
        return {kind: state.to_json(self._console(kind)) for kind, state in self.look().items()}

    def _console(self, kind: str) -> str:
        """The end of what a script has written: `CONSOLE_BYTES` at most."""
        try:
            with (self._folder / f"{self._name(kind)}.log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - CONSOLE_BYTES))
                return log.read(CONSOLE_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def is_running(self, kind: str) -> bool:
        return self.look().get(kind) == ScriptState("RUNNING")

    def record_session(self, name: str, pid: int) -> None:
        """Records the leader of a new session, so that its processes are found whatever they do."""
        import psutil

        try:
            started = psutil.Process(pid).create_time()
        except psutil.NoSuchProcess:
            return
        process_group.write_record(
            self._folder, ProcessRecord(name, self._generation, pid, started)
        )

    def forget_session_if_gone(self, name: str, pid: int) -> None:
        """Drops the record unless the session goes on in the background."""
        if not find((), {pid}):
            process_group.remove_record(self._folder, name)

    def find(self, table: Sequence[Seen]) -> list[psutil.Process]:
        """Every living process of the host."""
        return find([self._host_id], _sessions(self._folder), table)

    def forget_all(self) -> None:
        """After the last process is gone: records and results are of a life that is over; logs
        stay."""
        self.look()  # takes in the exit codes of those that were ended, so that no zombie stays
        for path in self._folder.iterdir():
            if path.suffix != ".log":
                path.unlink(missing_ok=True)
        for path in sorted(self._folder.glob("*.log"), key=lambda p: p.stat().st_mtime)[
            :-LOGS_KEPT_MAX
        ]:
            path.unlink(missing_ok=True)

    def _name(self, kind: str) -> str:
        return f"{self._host_id}-{kind}-{self._generation}"

    def _result(self, name: str) -> int | None:
        try:
            return int((self._folder / f"{name}.exit").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


def process_table() -> list[Seen]:
    """Every living process of the machine that we may look at."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(
                    Seen(process, os.getsid(process.pid), process.environ().get(HOST_VARIABLE, ""))
                )
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def find(
    host_ids: Collection[str], sessions: Collection[int] = (), table: Sequence[Seen] | None = None
) -> list[psutil.Process]:
    """Living processes that carry one of the ids in their environment, or belong to one of the
    sessions."""
    looked = process_table() if table is None else table
    return [seen.process for seen in looked if seen.session in sessions or seen.host_id in host_ids]


def signal_all(processes: Collection[psutil.Process], number: signal.Signals) -> None:
    import psutil

    for process in processes:
        try:
            process.send_signal(number)
        except (psutil.Error, OSError):
            continue


def end_all(host_ids: Collection[str], folders: Collection[Path], clock: RealClock) -> bool:
    """Ends what is left of hosts whose server is gone; True when nothing is left."""
    deadline = clock.monotonic_seconds() + process_group.KILL_SECONDS_MAX
    while True:
        sessions = {pid for folder in folders for pid in _sessions(folder / "processes")}
        left = find(host_ids, sessions)
        if not left:
            return True
        if clock.monotonic_seconds() > deadline:
            return False
        signal_all(left, signal.SIGKILL)
        clock.sleep(_SWEEP_SECONDS)


def _sessions(folder: Path) -> set[int]:
    """Sessions whose leaders are recorded."""
    found = process_group.records(folder) if folder.is_dir() else ()
    return {record.pid for record in found if record.pid is not None and is_session(record)}


def is_session(record: ProcessRecord) -> bool:
    """Return whether the record's process began a session that may still live. A leader's pid is
    not used again while its session lives, so a process that has this pid and another start time
    says that the session is gone; so does a start of the machine since."""
    import psutil

    if record.pid is None or record.started is None:
        return False
    # 0 is what getsid says of every session that began outside our pid namespace, 1 leads the
    # machine's own; and
    # each leader of a host has a separate session, so ours is not among them.
    if record.pid <= 1 or record.pid == os.getsid(0) or record.started < psutil.boot_time():
        return False
    try:
        return bool(abs(psutil.Process(record.pid).create_time() - record.started) < 1.0)
    except psutil.NoSuchProcess:
        return True
