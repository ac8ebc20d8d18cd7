"""The disk of a data folder: enough room for a start, and a log that stays short."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from podyard.stack.errors import SetupError

# an empty Podyard writes about 1 MiB; with less than this the first job ends in errors
DISK_BYTES_MIN = 8 << 20
LAST_BYTES = 4096  # of a log, in which its last line is looked for
LOG_BYTES_MAX = 64 << 20  # of podyard.log, and again of podyard.log.1: weeks of a busy stack


def check_disk(data: Path) -> None:
    disk = os.statvfs(data)
    if disk.f_bavail * disk.f_frsize < DISK_BYTES_MIN or (disk.f_files and not disk.f_favail):
        raise SetupError(full_disk(data))


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full_disk(data: Path) -> str:
    return (
        f"the disk of {data} is full: free at least {DISK_BYTES_MIN >> 20} MiB, or "
        "choose another "
        "folder with --data"
    )


def last_line(path: Path) -> str:
    """Return the last line of a log that is not empty, or an empty text."""
    with contextlib.suppress(OSError), path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - LAST_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


def keep_log_short(path: Path) -> None:
    """Moves the contents of a log that has become too long to NAME.1. All processes append to the
    same file, so it is copied and emptied; lines of the moment between are lost. A full disk only
    loses the old lines."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_BYTES_MAX:
            with contextlib.suppress(OSError):
                shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)
