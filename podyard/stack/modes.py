"""Files of the platform are their owner's alone, whatever the folder's mode and the user's umask
are.

New files get their modes from the umask of our processes. What an earlier version left open is
closed at each start.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from podyard.settings import UMASK

# The whole list: `--data` may name a folder that holds other things, and those keep their modes.
_FOLDERS = (
    "agents", "broker", "cache", "contents", "datasets", "gcloud", "logs", "objects", "programs",
    "scratch", "ssh",
    "tls",
)  # fmt: skip
_FILES = (
    "podyard.*",
    "token",
    "agent-*.token",
    "gcloud-*",
    "fleet",
    "database-url",
    "processes.json",
    "up.lock",
    "yard.id",
    "secrets.key",
)
# of a host, below a folder that is closed: programs of users chose these modes
_USERS_OWN = ("home", "tmp")


def close_to_others(data: Path, database: Path | None) -> None:
    """Takes all rights of group and others from the platform's files. `database` None: it is not a
    file."""
    for pattern in _FILES:
        for path in data.glob(pattern):
            _close(path)
    if database is not None:
        for path in database.parent.glob(f"{database.name}*"):
            _close(path)
    for name in _FOLDERS:
        _close_folder(data / name)


def _close_folder(folder: Path) -> None:
    """From the inside out: a folder that is closed has been dealt with, so that a later start need
    not look again."""
    try:
        mode = folder.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISDIR(mode) or not mode & UMASK:
        return
    for parent, folders, files in os.walk(folder, topdown=True):
        if Path(parent).parent.name == "hosts":
            folders[:] = [name for name in folders if name not in _USERS_OWN]
        for name in (*folders, *files):
            _close(Path(parent, name))
    _close(folder)


def _close(path: Path) -> None:
    # It may be gone meanwhile, or another user's: what we may not change is not ours.
    with contextlib.suppress(OSError):
        mode = path.lstat().st_mode
        if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and mode & UMASK:
            path.chmod(stat.S_IMODE(mode) & ~UMASK)
