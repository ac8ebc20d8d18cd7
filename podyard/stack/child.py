"""One supervised process: how it is started, what it says on its pipe, how it is ended."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
from typing import IO

from podyard.base.heartbeat import CHILD_VARIABLE, ENDED_VARIABLE, MARK_VARIABLE, PIPE_VARIABLE
from podyard.base.rng import secret_token
from podyard.stack.progress import StartProgress

MARK_BYTES = 12  # no two processes of any machines have the same
_PIPE_BYTES = 65_536


@dataclasses.dataclass
class Child:
    """`beats`: whether it sends heartbeats, once it has started. `listener`: it is started by the
    first connection that comes there, and may end when it is not needed. Times are of the
    supervisor's monotonic clock."""

    name: str
    argv: list[str]
    env: dict[str, str]
    keep: tuple[int, ...] = ()
    beats: bool = True
    listener: socket.socket | None = None
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    quiet_since: float = 0.0
    has_beaten: bool = False
    restarts: int = 0
    restart_at: float | None = None
    _pipe: int | None = None
    _said: bytes = b""
    _mark: str = ""
    _progress: StartProgress = dataclasses.field(default_factory=lambda: StartProgress(0.0))

    def spawn(self, log: IO[bytes], now: float) -> None:
        """Raises OSError when it cannot be started."""
        self._close_pipe()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        self._pipe, self._said = read_end, b""
        has_ended = self.process is not None and self.process.poll() is not None
        ended, self._mark = self._mark if has_ended else "", secret_token(MARK_BYTES)
        marks = {CHILD_VARIABLE: self.name, MARK_VARIABLE: self._mark, ENDED_VARIABLE: ended}
        try:
            self.process = subprocess.Popen(
                self.argv,
                env={**self.env, **marks, PIPE_VARIABLE: str(write_end)},
                pass_fds=(*self.keep, write_end),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C in the terminal reaches the supervisor only, which then stops its
                # children in order.
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        self.started = self.quiet_since = now
        self._progress = StartProgress(now)
        self.has_beaten = False
        self.restart_at = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def gets_on(self, now: float) -> bool:
        """Tell whether a process that has not beaten yet has got on since the last call."""
        if self.has_beaten or self.process is None:
            return False
        before = self._progress.since
        self._progress.look([self.process.pid], now)
        return self._progress.since > before

    @property
    def waits(self) -> bool:
        """Return whether it is not needed until the first connection."""
        return self.listener is not None and self.process is None and self.restart_at is None

    def rest(self) -> None:
        """It has ended by itself, and is not needed any more."""
        self._close_pipe()
        self.process = None
        self.restarts = 0

    def listen(self, now: float) -> None:
        """Takes in what it has sent since."""
        while self._pipe is not None:
            try:
                received = os.read(self._pipe, _PIPE_BYTES)
            except BlockingIOError:
                return None
            if not received:
                return self._close_pipe()
            self.quiet_since, self.has_beaten = now, True
            # Heartbeats are empty lines: they come by the thousand, and nothing of them is kept.
            self._said = (self._said + received).lstrip(b"\n")
        return None

    def last_words(self) -> str:
        """Why it refused to start; empty when it did not say."""
        self.listen(self.quiet_since)
        lines = self._said.decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line), "")

    def kill(self) -> None:
        """SIGKILL; the end is seen when it is polled."""
        assert self.process is not None
        self.process.kill()

    def end(self, seconds: float) -> None:
        """SIGTERM, a bounded wait, SIGKILL."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
