"""Counts of the operations of each bucket, in a file that outlives its process.

A line has a bucket, a class of operations and their number, which is written over: an operation
costs a system call, and the file grows with the buckets in use only. It is not synced: a kill of
the process loses nothing, but a power failure loses what the kernel has not written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from pathlib import Path

from podyard.base.rng import secret_token

_LINE = re.compile(r"([\w.-]+) ([\w-]+) (\d{12})")


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """`count_id` is always the same for the same file and line, so that it is written to the
    database once."""

    count_id: str
    bucket: str
    of_class: str
    number: int


class OperationCounts:
    """Counts in files of `folder`. `count` and `close` are called by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None
        # of each line: where its number is, and the number
        self._places: dict[str, tuple[int, int]] = {}

    def count(self, bucket: str, of_class: str) -> None:
        """Raises OSError, for example when the disk is full."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._folder / secret_token(12)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        key = f"{bucket} {of_class} "
        if key in self._places:
            place, number = self._places[key]
            os.pwrite(self._file, b"%012d" % (number + 1), place)
        else:
            place, number = os.lseek(self._file, 0, os.SEEK_END) + len(key), 0
            os.write(self._file, f"{key}{1:012}\n".encode("ascii"))
        self._places[key] = place, number + 1

    def close(self) -> list[Path]:
        """Ends the file. Returns all files that there are: those of processes that were killed,
        too."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._places.clear()
        return sorted(self._folder.glob("*"))


def read_counts(path: Path) -> list[Counted]:
    """The counts of a file that was ended. A line that a full disk has cut off is left out."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return []  # another process has written it
    found = (_LINE.fullmatch(line) for line in lines)
    return [_count_of(path, match[1], match[2], int(match[3])) for match in found if match]


def _count_of(path: Path, bucket: str, of_class: str, number: int) -> Counted:
    digest = hashlib.sha256(f"{path.name} {bucket} {of_class}".encode()).hexdigest()
    return Counted(digest[:24], bucket, of_class, number)
