"""The supervisor of one service: starts it, writes its output to a journal, starts it again by
`Restart=`, and ends it. It lives as long as the service does.

Processes that a service leaves behind become children of their supervisor (a subreaper), so that
nothing of a service is missed when it is ended: a box cannot make cgroups.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import selectors
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.workers.box import login
from podyard.workers.box.units import decide, store
from podyard.workers.box.units.decide import ServiceEnd
from podyard.workers.box.units.journal import LINE_BYTES_MAX, SYSTEM, Journal
from podyard.workers.box.units.store import State
from podyard.workers.box.units.unit_file import (
    Kills,
    ServiceKind,
    Unit,
    UnitCommand,
    environment_of,
    expand,
)

_SUBREAPER = 36  # prctl(2)
_LOOK_SECONDS = 0.5  # at what a forked service has left, which tells nobody of its end
# systemd.exec(5): exit codes of a process that did not become the program
_EXIT_CHDIR, _EXIT_EXEC, _EXIT_USER = 200, 203, 217
# of a session, not of the host
_DROPPED = ("HOME", "USER", "LOGNAME", "SHELL", "MAIL", "TERM", "PWD", "OLDPWD", "SHLVL", "_")
_DROPPED_PREFIXES = ("SUDO_", "SSH_", "XDG_")


class ServiceSupervisor:
    """`tell`: is called once, with why the service could not be started, or an empty text."""

    def __init__(
        self, unit: Unit, environ: Mapping[str, str], tell: Callable[[str], None], clock: RealClock
    ) -> None:
        self._unit = unit
        self._environ = environ
        self._tell = tell
        self._clock = clock
        self._journal = Journal(unit.name, clock)
        own = os.getpid()
        self._state = State(unit.name, supervisor=own, supervisor_started=store.start_time(own))
        self._main = 0
        self._watched: set[int] = set()
        self._ends: dict[int, ServiceEnd] = {}
        self._stopping = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_stop)
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> None:
        """The whole life of the service."""
        starts: list[float] = []
        while True:
            now = self._clock.monotonic_seconds()
            if not decide.may_start(self._unit, starts, now):
                self._say("Start request repeated too quickly.")
                return self._finish(decide.START_LIMIT)
            starts.append(now)
            try:
                end = self._live()
            except OSError as error:
                self._say(f"cannot be run: {error}")
                end = ServiceEnd(decide.EXIT_RESOURCES)
            self._end_rest(run_stop=self._stopping.is_set() or end == ServiceEnd())
            self._set("deactivating", "stop-post")
            self._run_all(self._unit.stop_post, self._unit.stop_seconds)
            result = decide.result_of(self._unit, end)
            if self._stopping.is_set() or not decide.is_started_again(self._unit, end):
                return self._finish(decide.SUCCESS if self._stopping.is_set() else result)
            self._set("activating", "auto-restart", result=result)
            self._wait_stop(lambda: False, self._unit.restart_seconds)
            if self._stopping.is_set():
                return self._finish(decide.SUCCESS)
            self._set("activating", "start", restarts=self._state.restarts + 1)
            self._say(f"Scheduled restart job, restart counter is at {self._state.restarts}.")

    def _live(self) -> ServiceEnd:
        """One start, and all that comes until the main process has ended."""
        unit, self._main = self._unit, 0
        self._watched.clear()
        self._ends.clear()
        self._set("activating", "start-pre" if unit.start_pre else "start", code=0, signal=0)
        end = self._run_all(unit.start_pre, unit.start_seconds)
        if end is None:
            end = self._start()
        if end is None:
            end = self._run_all(unit.start_post, unit.start_seconds)
        if end is None:
            self._say(f"Started {unit.name} - {unit.description}.")
            self._tell("")
            sub = "exited" if unit.kind is ServiceKind.ONESHOT else "running"
            if unit.kind is not ServiceKind.ONESHOT or unit.remains:
                self._set("active", sub, result=decide.SUCCESS)
            end = self._wait_ended()
        elif not self._stopping.is_set():
            self._tell(decide.result_of(unit, end))
        if end.code or end.signal:
            said = f"status={end.code}" if not end.signal else signal.Signals(end.signal).name
            self._say(f"Main process exited, {said}")
        self._state = dataclasses.replace(self._state, code=end.code, signal=end.signal)
        return end

    def _start(self) -> ServiceEnd | None:
        """Start the main process. Returns how it ended, if that is a failure."""
        unit = self._unit
        self._set("activating", "start")
        if unit.kind is ServiceKind.ONESHOT:
            return self._run_all(unit.start, float("inf"))
        if unit.kind is not ServiceKind.FORKING:
            self._main = self._spawn(unit.start[0])
            return None
        failed = self._run_all(unit.start, unit.start_seconds)
        if failed is None:
            self._main = self._find_main()
            self._watched.add(self._main)
        return failed

    def _find_main(self) -> int:
        """The main process of a service that has gone to the background."""
        living = store.descendants(os.getpid())
        if self._unit.pid_file:
            path = Path("/run", self._unit.pid_file)
            self._wait(path.exists, self._unit.start_seconds)
            text = path.read_text().strip() if path.exists() else ""
            return int(text) if text.isdigit() else 0
        return living[0] if len(living) == 1 else 0

    def _wait_ended(self) -> ServiceEnd:
        unit = self._unit
        if unit.kind is ServiceKind.ONESHOT:
            if unit.remains:
                self._wait_stop(lambda: False)
            return ServiceEnd()
        if self._main:
            main = self._main
            self._wait_stop(lambda: self._is_over(main))
            return self._ends.pop(main, ServiceEnd())
        own = os.getpid()
        self._wait_stop(lambda: not store.descendants(own))
        return ServiceEnd()

    def _is_over(self, pid: int) -> bool:
        return pid in self._ends or not store.stat_of(pid)  # an end that is not taken in has one

    def _run_all(self, commands: Sequence[UnitCommand], seconds: float) -> ServiceEnd | None:
        """Run commands one after the other. Returns how the first one that fails has ended."""
        for command in commands:
            pid = self._spawn(command)
            if self._unit.kind is ServiceKind.ONESHOT:
                self._set("activating", "start", main_pid=pid)
            is_over = self._wait(lambda pid=pid: self._is_over(pid), seconds)  # type: ignore[misc]
            timed_out = not is_over and not self._stopping.is_set()
            end = self._ends.pop(pid, ServiceEnd(timed_out=timed_out))
            if not command.may_fail and decide.result_of(self._unit, end) != decide.SUCCESS:
                return end
            if self._stopping.is_set() and not is_over:
                return ServiceEnd(signal=signal.SIGTERM)
        return None

    def _end_rest(self, *, run_stop: bool) -> None:
        """ServiceEnd what is left of the service."""
        unit, own = self._unit, os.getpid()
        is_up = self._state.active == "active"
        if run_stop and is_up:
            self._set("deactivating", "stop")
            self._run_all(unit.stop, unit.stop_seconds)
        if unit.kills is Kills.NONE or not store.descendants(own):
            return
        self._set("deactivating", "stop-sigterm")
        targets = (
            [self._main] if self._main and unit.kills is not Kills.ALL else store.descendants(own)
        )
        _signal(targets, unit.kill_signal)
        only_main = unit.kills is Kills.MAIN
        left = (
            (lambda: not store.start_time(self._main))
            if only_main
            else (lambda: not store.descendants(own))
        )
        if not self._wait(left, unit.stop_seconds) or unit.kills is Kills.MIXED:
            self._say("State 'stop-sigterm' timed out. Killing.")
            _signal([self._main] if only_main else store.descendants(own), signal.SIGKILL)
            self._wait(left, unit.stop_seconds)

    def _finish(self, result: str) -> None:
        failed = result != decide.SUCCESS
        if failed:
            self._say(f"Failed with result '{result}'.")
        else:
            self._say(f"{self._unit.name}: Deactivated successfully.")
        self._set("failed" if failed else "inactive", "failed" if failed else "dead", result=result)
        self._tell(result if failed else "")

    def _spawn(self, command: UnitCommand) -> int:
        """Start a program of the service, whose output goes to the journal."""
        environ = self._environment()
        words = expand(command.words, environ) or [""]
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(command, words, environ, writing)
        self._watched.add(pid)
        os.close(writing)
        os.set_blocking(reading, False)
        self._selector.register(reading, selectors.EVENT_READ, _Output(pid, Path(words[0]).name))
        return pid

    def _become(
        self, command: UnitCommand, words: list[str], environ: Mapping[str, str], writing: int
    ) -> None:
        """In the new process: never returns."""
        unit, code = self._unit, _EXIT_EXEC
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            for place, end in enumerate((os.open(os.devnull, os.O_RDONLY), writing, writing)):
                os.dup2(end, place)
            code = _EXIT_CHDIR
            self._change_folder()
            code = _EXIT_USER
            words = login.become(unit.user, unit.group, words) if unit.user else words
            code = _EXIT_EXEC
            os.execvpe(words[0], [command.name or words[0], *words[1:]], environ)
        except (OSError, KeyError) as error:
            os.write(2, f"Failed to execute {words[0]}: {error}\n".encode())
        finally:
            os._exit(code)

    def _change_folder(self) -> None:
        folder = self._unit.working_directory
        may_miss, folder = folder.startswith("-"), folder.removeprefix("-")
        account = store.home_of(self._unit.user or "root")
        home = "/root" if account is None else account.pw_dir
        try:
            os.chdir(home if folder == "~" else folder)
        except OSError:
            if not may_miss:
                raise

    def _environment(self) -> dict[str, str]:
        account = store.home_of(self._unit.user or "root")
        own = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh"}
        if account is not None:
            own |= {"HOME": account.pw_dir, "SHELL": account.pw_shell or "/bin/sh"}
            own |= dict.fromkeys(("USER", "LOGNAME"), account.pw_name)
        variables = host_environment(self._environ) | own | dict(self._unit.environment)
        for name in self._unit.environment_files:
            path = Path(name.removeprefix("-"))
            if path.exists() or not name.startswith("-"):
                variables |= environment_of(path.read_text(errors="replace"))
        if self._main:
            variables.update(MAINPID=str(self._main))
        return variables

    def _wait_stop(self, is_done: Callable[[], bool], seconds: float = float("inf")) -> None:
        """Wait until something is so, or the service is stopped."""
        self._wait(lambda: self._stopping.is_set() or is_done(), seconds)

    def _wait(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Write the journal and take in ends until something is so, at most `seconds`, or until
        the service is stopped; False if it is not so then."""
        until = self._clock.monotonic_seconds() + seconds
        stopped_before = self._stopping.is_set()
        while True:
            self._take_in()
            if is_done():
                return True
            left = until - self._clock.monotonic_seconds()
            if left <= 0 or (self._stopping.is_set() and not stopped_before):
                return False
            self._pump(min(left, _LOOK_SECONDS))

    def _take_in(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._pump(0)  # its last lines come before its end
            if pid in self._watched:
                self._ends[pid] = decide.end_of(status)

    def _pump(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fd == self._wake:
                os.read(self._wake, 4096)
                continue
            output: _Output = key.data
            try:
                data = os.read(key.fd, LINE_BYTES_MAX)
            except BlockingIOError:
                continue
            for line in output.lines(data):
                self._journal.write(output.pid, output.program, line)
            if not data:
                self._selector.unregister(key.fd)
                os.close(key.fd)

    def _say(self, text: str) -> None:
        self._journal.write(
            1, SYSTEM, text if self._unit.name in text else f"{self._unit.name}: {text}"
        )

    def _set(self, active: str, sub: str, **changes: object) -> None:
        since = self._clock.now().nanos if active != self._state.active else self._state.since
        main = {"main_pid": self._main if active in ("active", "deactivating") else 0}
        state = dataclasses.replace(self._state, active=active, sub=sub, since=since)
        self._state = dataclasses.replace(state, **{**main, **changes})  # type: ignore[arg-type]
        store.write(self._state)

    def _on_stop(self, *_: object) -> None:
        self._stopping.set()


class _Output:
    """The lines that one process writes."""

    def __init__(self, pid: int, program: str) -> None:
        self.pid = pid
        self.program = program
        self._rest = b""

    def lines(self, data: bytes) -> list[str]:
        """Whole lines; at the end also one without an end."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > LINE_BYTES_MAX):
            whole, self._rest = [*whole, self._rest], b""
        return [line.decode(errors="replace") for line in whole]


def host_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a session that are the host's."""
    variables = {
        name: value
        for name, value in environ.items()
        if name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
    }
    entries = environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(one for one in entries if not one.startswith("/home/"))
    return {**variables, "PATH": path}


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        if pid:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
