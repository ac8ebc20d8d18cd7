"""A host as the replica of a user's program uses it: scripts are run there to their end, in the box
if it has one.

Nothing outside of the box is run with what the user has chosen: variables are set and paths are
followed inside. What a script writes comes through pipes, so that it waits when the platform cannot
take it.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from podyard.base.clock import RealClock
from podyard.base.errors import PodyardError
from podyard.base.text.terminal_text import is_progress_bar, last_frame, without_colours
from podyard.programs.slice import PROGRAM_VARIABLE
from podyard.workers.box import box
from podyard.workers.box import calls as box_calls
from podyard.workers.box import limit as box_limit
from podyard.workers.box import plan as box_plan
from podyard.workers.box.box import Box
from podyard.workers.host import scripts
from podyard.workers.host.job_files import JobHost
from podyard.workers.kit import process_group
from podyard.workers.kit.process_group import ProcessRecord
from podyard.workers.replica import job_processes
from podyard.workers.replica.job_processes import JobProcesses
from podyard.workers.replica.reporter import Reporter

POLL_SECONDS = 0.05
GRACE_SECONDS = 8.0  # from SIGTERM to SIGKILL, within what the agent gives the replica
# the host server tells the programs of a node that is taken back; past it nobody has
TOLD_SECONDS = 3.0
DRAIN_SECONDS = 2.0  # for the last lines, once every process is gone
TAIL_LINES = 50
SAID_CHARACTERS_MAX = 300  # of a reason: it stands in lists
STACKS_SIGNAL = signal.SIGQUIT  # sitecustomize.py has faulthandler answer it
LINE_CHARACTERS_MAX = 8192


class LeaveError(Exception):
    """The platform has asked the replica to leave, and nothing of the program runs any more."""


class ProgramHost:
    """One host that runs. `environment`: of all scripts, in addition to the host's. `where`: the
    working folder, below the home folder. `tail`: the last lines that a script has written to
    stderr. `is_measured`: what it prints may be metrics."""

    def __init__(  # noqa: PLR0913
        self,
        folder: Path,
        host: JobHost,
        host_box: Box | None,
        replica_id: str,
        environment: Mapping[str, str],
        where: str,
        reporter: Reporter,
        stopping: threading.Event,
        clock: RealClock,
    ) -> None:
        self._folder = folder
        self._host = host
        self._box = host_box
        self._replica = replica_id
        self._environment = {**host.environment, **environment, PROGRAM_VARIABLE: replica_id}
        self._where = where
        self._reporter = reporter
        self._stopping = stopping
        self._clock = clock
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        self.is_measured = False
        self._processes: JobProcesses
        reporter.on_stacks = self._log_stacks
        self._count = self._ends = 0
        cgroups = None if host_box is None else box.program_cgroups(folder.parent.parent)
        self._cgroup = None if cgroups is None else cgroups / folder.name

    @property
    def folder(self) -> Path:
        """Return what the host server keeps of the host, outside of its box."""
        return self._folder

    @property
    def topology(self) -> str:
        return self._host.environment.get("TPU_TOPOLOGY", "")

    @property
    def home(self) -> str:
        return self._host.environment["HOME"]

    @property
    def software(self) -> str:
        return self._host.software

    @property
    def has_box(self) -> bool:
        return self._box is not None

    @property
    def has_network(self) -> bool:
        """Return whether programs reach anything outside."""
        return self._box is None or "https_proxy" in self._host.environment

    def clear(self) -> None:
        """Ends what earlier replicas have left. Raises OSError."""
        if self._box is not None:
            box_calls.leave_keys_behind()
            box_calls.refuse_calls()
        (self._folder / job_processes.FOLDER).mkdir(mode=0o700, exist_ok=True)
        for left in job_processes.on_host(self._folder, self._cgroup):
            if not left.end(self._clock):
                raise OSError("processes of an earlier attempt do not end")

    def activate(self, packages: str) -> None:
        """Scripts run in the environment of packages at this path from now on."""
        path = self._environment.get("PATH", os.defpath)
        self._environment |= {"PATH": f"{packages}/bin:{path}", "VIRTUAL_ENV": packages}

    def run(
        self,
        text: str,
        *,
        stdin: IO[bytes] | Iterable[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        as_root: bool = False,
    ) -> int:
        """Runs a script of the shell to its end; what it writes is the log, unless `stdout` takes
        it. Returns its exit code. Raises LeaveError, OSError, and PodyardError of what comes from
        `stdin`."""
        self.check_leaving()
        self.tail.clear()
        self._ends = self._ends_of_programs()
        self._count += 1
        script = self._place(f"{self._replica}-{self._count}.sh", text)
        start = self._place(
            f"{self._replica}-{self._count}", self._launcher(script, as_root=as_root)
        )
        piece_by_piece = stdin is not None and not hasattr(stdin, "fileno")
        process = self._start(
            (start,),
            subprocess.DEVNULL if stdin is None else subprocess.PIPE if piece_by_piece else stdin,  # type: ignore[arg-type]
            subprocess.PIPE if stdout is None else stdout,
            as_root=as_root,
        )
        feeder = _Feeder(process, stdin) if piece_by_piece else None  # type: ignore[arg-type]
        code = self._follow(process)
        if feeder is not None and feeder.error is not None:
            raise feeder.error
        return code

    def _log_stacks(self) -> None:
        """A Python that the hook has prepared writes its stacks to stderr; of others, what the
        kernel says."""
        for pid in self._processes.pids() if hasattr(self, "_processes") else ():
            if job_processes.catches(pid, STACKS_SIGNAL):
                with contextlib.suppress(OSError):
                    os.kill(pid, STACKS_SIGNAL)
                self.say(f"process {pid} ({job_processes.title(pid)}): its stacks are on stderr")
            else:
                self.say(
                    f"process {pid} ({job_processes.title(pid)}): {job_processes.waits_for(pid)}"
                )

    def check_leaving(self) -> None:
        if self._stopping.is_set() or self._reporter.yielding():
            raise LeaveError

    def say(self, text: str) -> None:
        self._reporter.log(text, "platform")

    def failure(self, code: int) -> str:
        """One line about the last script, which has ended with this code; its log has the rest."""
        said = error_line(self.tail)
        if self._box is not None and self._ends_of_programs() > self._ends:
            said = box_limit.reason(self._box)
        return _exit_text(code) + (f": {said}" if said else "")

    def _ends_of_programs(self) -> int:
        host = JobHost.read(self._folder)
        return 0 if host is None else host.ends

    def _launcher(self, script: str, *, as_root: bool) -> str:
        """Sets the environment and goes to the working folder, inside: the script's shell has both
        from its start."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self._environment.items()]
        where = f'"$HOME"/{shlex.quote(self._where)}'
        # SkyPilot's name of the working folder, which its users' scripts have.
        go = f'mkdir -p {where} && cd {where} && ln -sfn "$PWD" "$HOME/sky_workdir" || exit 1'
        lines.append('cd "$HOME" || exit 1' if as_root else go)
        lines.append(f"exec {scripts.SHELL} {shlex.quote(script)}")
        return "\n".join((f"#!{scripts.SHELL}", *lines, ""))

    def _place(self, name: str, text: str) -> str:
        """Writes a program where the host finds it, and its user does not change it."""
        if self._box is not None:
            return self._box.place(name, text)
        path = self._folder / job_processes.FOLDER / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o700)
        return str(path)

    def _start(
        self,
        command: Sequence[str],
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        *,
        as_root: bool,
    ) -> subprocess.Popen[bytes]:
        """Starts a command on the host. Its processes are found by the record."""
        folder, cgroup = self._folder / job_processes.FOLDER, None
        process_group.write_record(folder, ProcessRecord(self._replica, 0, 0, 0.0))
        if self._box is None:
            argv = ["/bin/sh", "-c", 'exec "$@"', "sh", *command]
            env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": self.home}
        else:
            if self._cgroup is not None:
                cgroup = self._cgroup / self._replica
                cgroup.mkdir(exist_ok=True)
            argv = self._box.enter(command, as_root=as_root, cgroup=cgroup)
            env = {"PATH": box_plan.PATH, "HOME": str(box_plan.HOME)}
        process = subprocess.Popen(
            argv, env={**env, PROGRAM_VARIABLE: self._replica}, stdin=stdin, stdout=stdout,
            stderr=subprocess.PIPE, start_new_session=True, umask=scripts.USERS_UMASK,
        )  # fmt: skip
        started = process_group.start_of(process.pid) or 0.0
        record = ProcessRecord(self._replica, 0, process.pid, started)
        process_group.write_record(folder, record)
        self._processes = JobProcesses(folder, record, cgroup)
        return process

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of a process, whose lines are passed on. None of its processes is left
        then. Raises LeaveError after the platform has asked for the end."""
        readers = [
            threading.Thread(target=self._read, args=(pipe, stream), daemon=True)
            for pipe, stream in ((process.stdout, "stdout"), (process.stderr, "stderr"))
            if pipe is not None
        ]
        for reader in readers:
            reader.start()
        told_at, yield_at = None, None
        while process.poll() is None or (told_at is not None and self._processes.pids()):
            now = self._clock.monotonic_seconds()
            if self._reporter.yielding() and yield_at is None:
                yield_at = now
            if told_at is None and (self._stopping.is_set() or self._has_to_tell(yield_at, now)):
                # The process that entered the box for it is not the program's: it waits for the
                # exit code.
                self._processes.signal(
                    signal.SIGTERM, but=() if self._box is None else (process.pid,)
                )
                told_at = now
            if self._stopping.is_set() and told_at is not None and now > told_at + GRACE_SECONDS:
                self._processes.signal(signal.SIGKILL)
            self._clock.sleep(POLL_SECONDS)
        is_over = self._processes.end(self._clock)
        for reader in readers:
            reader.join(DRAIN_SECONDS)
        if not is_over:
            raise OSError("processes of the program do not end")
        if self._stopping.is_set() or told_at is not None:
            raise LeaveError
        return process.returncode

    def _has_to_tell(self, yield_at: float | None, now: float) -> bool:
        """Return whether the program is to leave and has not been told yet: of a node that is taken
        back the host server tells all programs, and twice might disturb one that is saving."""
        if yield_at is None:
            return False
        host = JobHost.read(self._folder)
        if host is not None and host.is_told:
            return False
        return now > yield_at + TOLD_SECONDS

    def _read(self, pipe: IO[bytes], stream: str) -> None:
        with open(
            pipe.fileno(), encoding="utf-8", errors="replace", newline="\n", closefd=False
        ) as lines:
            for text in whole_lines(lines):
                self._reporter.log(text, stream)
                if stream == "stdout" and self.is_measured:
                    self._reporter.measure(text)
                if stream == "stderr" and text.strip():
                    self.tail.append(text)


class _Feeder:
    """Writes to a process what it reads on standard input. `error`: what kept it from writing
    all."""

    def __init__(self, process: subprocess.Popen[bytes], pieces: Iterable[bytes]) -> None:
        self.error: PodyardError | None = None
        self._process = process
        self._pieces = pieces
        threading.Thread(target=self._feed, daemon=True).start()

    def _feed(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            for piece in self._pieces:
                pipe.write(piece)
            pipe.close()
        except PodyardError as error:
            self.error = error
            self._process.kill()
        except OSError:
            return  # it has ended, and its exit code says how


def whole_lines(pipe: IO[str]) -> Iterator[str]:
    """Yield the lines of a program as a terminal shows them at their end: of the frames of a
    progress bar the last one. A line of another kind that is too long is cut."""
    frames = ""
    while piece := pipe.readline(LINE_CHARACTERS_MAX):
        frames += piece
        if not piece.endswith("\n") and "\r" in frames:
            frames = "\r".join(frames.rsplit("\r", 2)[-2:])  # the last one may go on
            if len(frames) < LINE_CHARACTERS_MAX:
                continue
        yield last_frame(frames.removesuffix("\n"))
        frames = ""
    if frames:
        yield last_frame(frames)


def lacks_module(lines: Sequence[str]) -> bool:
    """Tell whether a failed import has ended a program, as it would end each attempt."""
    return error_line(lines).startswith(("ModuleNotFoundError:", "ImportError:"))


def error_line(lines: Sequence[str]) -> str:
    """Return the last message of a program: of Python's traceback the exception, which others may
    write after, else the last line. A progress bar is not a message."""
    lines = [line for line in map(without_colours, lines) if not is_progress_bar(line)]
    pairs = reversed(list(itertools.pairwise(lines)))
    last = lines[-1] if lines else ""
    said = next(
        (line for before, line in pairs if before.startswith("  ") and not line[:1].isspace()), last
    )
    return said if len(said) <= SAID_CHARACTERS_MAX else said[: SAID_CHARACTERS_MAX - 1] + "…"


def _exit_text(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        name = f" ({signal.Signals(number).name})" if number > 0 else ""
    except ValueError:
        name = ""
    if code < 0:
        return f"the program was killed by signal {number}{name}"
    return f"the program ended with exit code {code}{name}"
