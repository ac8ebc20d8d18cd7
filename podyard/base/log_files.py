"""Files that lines are appended to in chunks, below one folder. What is where, rows of the database
say: bytes behind the last chunk that a row names are of a unit that was not committed, and are
written over."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class LogFiles:
    """Names are relative paths. Nothing is synced: after a loss of power, lines may be missing."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, name: str, start: int, data: bytes) -> None:
        """Raises OSError."""
        path = self._root / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(descriptor, data[done:], start + done)
        finally:
            os.close(descriptor)

    def read(self, name: str, start: int, size: int) -> bytes:
        """As much of it as there is."""
        try:
            descriptor = os.open(self._root / name, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, size, start)
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._root / name).unlink()
