"""Pokes between processes of one machine: a FIFO whose reader waits until another process writes to
it.

A poke says only that it is worth looking now. Who is not there misses it, and looks by itself some
time later.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

_READ_BYTES = 65_536  # all that a FIFO holds: what came during one wait is one poke


def path_of_agent(data: Path, agent_id: str) -> Path:
    """Return where an agent listens, by its data folder."""
    return data / "agents" / agent_id / "poke"


class Pokes:
    """The reader's end. A FIFO: a path of any length will do, unlike a socket's."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> bool:
        """Return whether there was a poke, which ends the wait."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return False
        os.read(self._descriptor, _READ_BYTES)
        return True

    def wake(self) -> None:
        """For a signal's handler, which alone ends no wait."""
        _write(self._descriptor)


@contextlib.contextmanager
def listen(path: Path) -> Iterator[Pokes]:
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    # Opened for both, so that it never ends and never blocks.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield Pokes(descriptor)
    finally:
        with contextlib.suppress(FileNotFoundError):
            # else a successor listens there already
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                path.unlink()
        os.close(descriptor)


def send(path: str | Path) -> None:
    """Pokes who listens there. One that is not there, or is being poked already, needs none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return
        raise
    try:
        _write(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int) -> None:
    # A FIFO that is full ends the wait as well, and one without a reader needs no poke.
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(descriptor, b".")
