"""A reader's terminal: one bash for the commands of a page, with an empty home folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.waiting import until

_END_SECONDS_MAX = 60  # from Ctrl-C to the prompt: `podyard up` stops its processes meanwhile
_KEPT = ("PIP_", "SSL_", "LANG", "REQUESTS_CA", "NODE_EXTRA_CA")


@dataclasses.dataclass(frozen=True, slots=True)
class CommandOutcome:
    """`code`: None if the command did not end in time. `printed`: stdout and stderr."""

    code: int | None
    printed: str


def environment(home: Path, path: str) -> dict[str, str]:
    """Return the variables of a new login on a machine where no other Podyard runs: the usual ports
    may be taken on this one, so free ones stand in for them."""
    names = ("PODYARD_PORT", "PODYARD_GRPC_PORT", "PODYARD_STORAGE_PORT", "PODYARD_PUBLIC_PORT")
    ports = _free_ports(len(names))
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    own = {"HOME": str(home), "PATH": path, "USER": "reader"}
    return {**kept, **dict(zip(names, ports, strict=True)), **own}


def reader_path() -> str:
    """Return a PATH with this environment's commands first, then the interpreter's behind a version
    manager's shims, which look for their files in the home folder."""
    folders = (str(Path(sys.executable).parent), f"{sys.base_prefix}/bin", os.environ["PATH"])
    return os.pathsep.join(folders)


class ReaderShell:
    """A bash in a folder that runs one command after the other."""

    def __init__(self, folder: Path, log: Path, variables: dict[str, str]) -> None:
        self._script, self._log, self._codes = (
            log.with_suffix(suffix) for suffix in (".sh", ".log", ".codes")
        )
        script, printed, codes = (
            shlex.quote(str(path)) for path in (self._script, self._log, self._codes)
        )
        self._line = f'eval "$(cat {script})" </dev/null >>{printed} 2>&1; echo $? >>{codes}'
        self._count = 0
        self._offset = 0
        self._codes.touch()
        self._log.touch()
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            preexec_fn=_take_interrupts,
        )
        self._send("trap : INT")

    def run(self, command: str, seconds: float) -> CommandOutcome:
        """Type a command and wait for its end."""
        self.start(command)
        return self._outcome(seconds)

    def start(self, command: str) -> None:
        """Type a command and leave it running."""
        self._offset = self._log.stat().st_size
        self._count += 1
        self._script.write_text(command, encoding="utf-8")
        self._send(self._line)

    def wait_text(self, text: str, seconds: float) -> bool:
        """Wait until the running command has printed `text`; False if it ends or takes longer."""

        def look() -> bool | None:
            if text in self.printed():
                return True
            return False if self._is_idle() else None

        try:
            return bool(until(look, seconds, text))
        except AssertionError:
            return False

    def interrupt(self) -> CommandOutcome:
        """Press Ctrl-C and wait for the prompt."""
        os.killpg(self._bash.pid, signal.SIGINT)
        return self._outcome(_END_SECONDS_MAX)

    def printed(self) -> str:
        """Return what the last command has printed so far."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            return file.read().decode(errors="replace")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        if self._bash.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._bash.stdin.close()

    def _outcome(self, seconds: float) -> CommandOutcome:
        """Wait for the end of a command; one that does not end is killed with its terminal."""
        with contextlib.suppress(AssertionError):
            until(lambda: True if self._is_idle() else None, seconds, "the prompt")
        if self._is_idle():
            return CommandOutcome(self._last_code(), self.printed())
        self.close()
        return CommandOutcome(None, self.printed())

    def _send(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(line + "\n")
        self._bash.stdin.flush()

    def _is_idle(self) -> bool:
        return len(self._codes.read_text().splitlines()) == self._count

    def _last_code(self) -> int:
        return int(self._codes.read_text().splitlines()[-1])


def _take_interrupts() -> None:
    """Undo what a test run in the background has inherited: processes that ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _free_ports(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [str(listener.getsockname()[1]) for listener in sockets]
