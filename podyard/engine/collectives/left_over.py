"""Window files that processes have left behind. For the agent, which owns their folder; imports
next to nothing."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path

PREFIX = "podyard-window-"


def remove_left_over(folder: Path) -> int:
    """Removes the files of processes that have ended; how many. The makers of the others hold a
    lock on them."""
    removed = 0
    for path in sorted(folder.glob(PREFIX + "*")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink()
            removed += 1
    return removed
