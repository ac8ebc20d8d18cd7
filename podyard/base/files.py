"""Files that other processes read at any time."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podyard.base.errors import Code, PodyardError, failed_precondition

_LISTED_MAX = 100_000  # entries of a folder that another user fills


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes to a temporary file in the same folder and renames it: readers see the old contents or
    the new, and after an error (OSError, for example of a full disk) the old ones."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path next to `path` to make a large file at, which gets its name, synced, at the end of the
    block. Nothing is left of a block that fails, and what a killed process left is used again.
    Raises ALREADY_EXISTS, ABORTED."""
    if path.exists():
        raise PodyardError(
            Code.ALREADY_EXISTS, f"there is a file at {path}: name one that does not exist"
        )
    partial = path.with_name(f"{path.name}.partial")
    try:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise failed_precondition(f"{path} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PodyardError(Code.ABORTED, f"another process writes {path}") from None
        os.ftruncate(descriptor, 0)
        try:
            yield partial
            os.fsync(descriptor)
            # unlike a rename, it does not replace a file that appeared meanwhile
            os.link(partial, path)
            sync_folder(path.parent)
        except FileExistsError:
            raise PodyardError(
                Code.ALREADY_EXISTS, f"there is a file at {path} meanwhile"
            ) from None
        finally:
            partial.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def make_inner_folder(path: Path) -> None:
    """Make a folder that has the rights of the one around it: several users may share that."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return
    path.chmod(stat.S_IMODE(path.parent.stat().st_mode))


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_inside(folder: Path, name: str, suffix: str, most: int) -> list[str]:
    """Names in `folder`/`name` that end with `suffix`, the oldest first, at most `most`; see
    `read_inside`."""
    found = []
    try:
        inner = _open_folder(folder, name)
        try:
            with os.scandir(inner) as entries:
                for entry in itertools.islice(entries, _LISTED_MAX):
                    if entry.name.endswith(suffix) and not entry.name.startswith("."):
                        found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        finally:
            os.close(inner)
    except OSError:
        return []
    return [entry for _, entry in sorted(found)[:most]]


def read_inside(folder: Path, name: str, file: str, most: int) -> bytes | None:
    """The contents of `folder`/`name`/`file`, which another user may write: links are not followed,
    pipes and
    devices are not read, and no file of more than `most` bytes is. None for all of these."""
    try:
        inner = _open_folder(folder, name)
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inner)
        finally:
            os.close(inner)
        with os.fdopen(descriptor, "rb") as source:
            status = os.fstat(source.fileno())
            return (
                source.read(most)
                if stat.S_ISREG(status.st_mode) and status.st_size <= most
                else None
            )
    except OSError:
        return None


def _open_folder(folder: Path, name: str) -> int:
    """A descriptor of `folder`/`name`, which is not followed if it is a link. Raises OSError."""
    own = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=own)
    finally:
        os.close(own)


def read_json(path: Path) -> dict[str, Any]:
    """The file's object; empty when there is no file to read or it is not JSON."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
