"""A fair lock between processes, made of two files.

A process that wants the lock queues at the turnstile, waits there for the lock, and leaves the
turnstile once it has it. A process that has just released the lock must pass the turnstile again,
where the next one already stands: so
no process takes the lock twice while another waits. The kernel releases both files when a process
dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType


class FairFileLock:
    """Use as a context manager, from one thread of a process at a time. Not re-entrant."""

    def __init__(self, path: Path) -> None:
        self._turnstile = _open(path.with_name(path.name + ".turnstile"))
        self._lock = _open(path.with_name(path.name + ".lock"))

    def __enter__(self) -> None:
        fcntl.flock(self._turnstile, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def __del__(self) -> None:
        for descriptor in (getattr(self, "_turnstile", None), getattr(self, "_lock", None)):
            if descriptor is not None:
                os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
