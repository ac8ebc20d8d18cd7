"""A command, started once for each host of a slice, as `gcloud ... ssh --worker=all` would."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import BinaryIO

from podyard.base.clock import RealClock

# from the first failure to the end of the last worker; SIGKILL comes a second earlier
END_SECONDS = 10.0
_KILL_AFTER_SECONDS = END_SECONDS - 1.0
_LOOK_SECONDS = 0.05
_OUTPUT_SECONDS = 2.0  # for what a worker's own children still write after its end
_PDEATHSIG = 1  # linux/prctl.h
_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGINT,
    signal.SIGQUIT,
)
_FROM_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_NOISE = b"[Gloo] Rank "  # what XLA sums with on CPUs says how it is connected; no TPU says so
_CHUNK_BYTES = 1 << 16


@dataclasses.dataclass(slots=True)
class _LaunchedWorker:
    index: int
    process: subprocess.Popen[bytes]
    readers: list[threading.Thread]

    has_group: bool

    def signal(self, number: int) -> None:
        """To the worker, and to all that it started where it leads a group."""
        try:
            if self.has_group:
                os.killpg(self.process.pid, number)
            elif self.process.poll() is None:
                self.process.send_signal(number)
        except ProcessLookupError:
            return


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchEnd:
    """The end of all workers: `code` of the first that failed (minus the signal that it died of),
    or 0."""

    code: int
    failed_worker: int | None


def launch(
    command: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    clock: RealClock,
    look: Callable[[], None] | None = None,
) -> LaunchEnd:
    """Runs `command` in each of the environments, passes signals on, and waits for all. `look` is
    called until then.

    Lines of several workers begin with `[worker 2] `; one alone writes where this process does.
    Worker 0 gets the standard input. After the first failure the others get SIGTERM, and SIGKILL
    before END_SECONDS are over.
    Raises OSError for a command that cannot be started.
    """
    workers: list[_LaunchedWorker] = []
    ends_asked: list[float] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        for worker in workers:
            # What was typed reaches a command in this process group by itself: it would get it
            # twice.
            if worker.has_group or not (number in _FROM_KEYBOARD and at_the_keyboard()):
                worker.signal(number)
        if number in _ENDING and len(workers) > 1:
            ends_asked.append(clock.monotonic_seconds())

    before = {number: signal.signal(number, forward) for number in _PASSED_ON}
    try:
        for index, environ in enumerate(environments):
            workers.append(_start(index, command, environ, len(environments) > 1))
        lock = threading.Lock()
        for worker in workers:  # threads come last: a process that has some should not fork
            _read(worker, lock)
        if look is None and len(workers) == 1:
            workers[0].process.wait()
        return _wait(workers, ends_asked, clock, look)
    finally:
        for worker in workers:
            worker.signal(signal.SIGKILL)
            worker.process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(
    workers: list[_LaunchedWorker],
    ends_asked: list[float],
    clock: RealClock,
    look: Callable[[], None] | None,
) -> LaunchEnd:
    failed: _LaunchedWorker | None = None
    running = list(workers)
    while True:
        for worker in [one for one in running if one.process.poll() is not None]:
            running.remove(worker)
            _drain(worker)
            if worker.process.returncode and failed is None:
                failed = worker
                ends_asked.append(clock.monotonic_seconds())
                for other in running:
                    other.signal(signal.SIGTERM)
        if not running:
            return LaunchEnd(
                failed.process.returncode if failed else 0, failed.index if failed else None
            )
        if ends_asked and clock.monotonic_seconds() > ends_asked[0] + _KILL_AFTER_SECONDS:
            for worker in running:
                worker.signal(signal.SIGKILL)
        if look is not None:
            look()
        clock.sleep(_LOOK_SECONDS)


def _start(
    index: int, command: Sequence[str], environ: Mapping[str, str], several: bool
) -> _LaunchedWorker:
    if not several:
        # In this process group, so that the terminal is the command's: its keys reach it by
        # themselves.
        process = subprocess.Popen(command, env=dict(environ), preexec_fn=_die_with(os.getpid()))
        return _LaunchedWorker(index, process, [], has_group=False)
    reads_terminal = index == 0 and sys.stdin is not None and sys.stdin.isatty()
    stdin = subprocess.DEVNULL if index else (subprocess.PIPE if reads_terminal else None)
    process = subprocess.Popen(
        command, env=dict(environ), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        process_group=0,
        preexec_fn=_die_with(os.getpid()),
    )  # fmt: skip
    return _LaunchedWorker(index, process, [], has_group=True)


def _read(worker: _LaunchedWorker, lock: threading.Lock) -> None:
    """Passes on what a worker writes, and to it what is typed."""
    process = worker.process
    for source, target in (
        (process.stdout, sys.stdout.buffer),
        (process.stderr, sys.stderr.buffer),
    ):
        if source is not None:
            reader = threading.Thread(
                target=_prefix, args=(worker.index, source, target, lock), daemon=True
            )
            reader.start()
            worker.readers.append(reader)
    if process.stdin is not None:
        threading.Thread(target=_pass_input, args=(process.stdin,), daemon=True).start()


def _prefix(index: int, source: BinaryIO, target: BinaryIO, lock: threading.Lock) -> None:
    """Whole lines, so that those of two workers do not mix."""
    mark = f"[worker {index}] ".encode()
    for line in source:
        if line.startswith(_NOISE):
            continue
        with lock:
            target.write(mark + line if line.endswith(b"\n") else mark + line + b"\n")
            target.flush()


def _pass_input(target: BinaryIO) -> None:
    while data := os.read(sys.stdin.fileno(), _CHUNK_BYTES):
        try:
            target.write(data)
            target.flush()
        except OSError:
            return
    target.close()


def _drain(worker: _LaunchedWorker) -> None:
    """Take in what it has written, before what is said of its end. Its children may hold the pipes
    open: not for long."""
    for reader in worker.readers:
        reader.join(_OUTPUT_SECONDS)


def _die_with(parent: int) -> Callable[[], None]:
    """Linux ends a worker with its launcher, even if that is killed."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)

    return prepare


def at_the_keyboard() -> bool:
    """Return whether this process is in the foreground of its terminal, whose keys signal all that
    is there."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(descriptor)
