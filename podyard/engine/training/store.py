"""Places of checkpoints and other artefacts: bytes by name."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Protocol

from podyard.base.errors import PodyardError, invalid, not_found
from podyard.base.files import sync_folder

UNFINISHED_PREFIX = ".unfinished-"


class CheckpointStore(Protocol):
    """`put` is atomic: a name has the old bytes or the new ones, never a part. `get` raises
    NOT_FOUND."""

    def put(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def list(self, prefix: str) -> list[str]: ...
    def delete(self, name: str) -> None: ...


class FileStore:
    """Files under one root. Names are relative, of parts joined by "/"."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, data: bytes) -> None:
        """Writes a temporary file, syncs and renames it: after a crash the name has the old bytes
        or the new ones."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.parent / f"{UNFINISHED_PREFIX}{secrets.token_hex(8)}"
        try:
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()
            raise
        sync_folder(path.parent)

    def get(self, name: str) -> bytes:
        try:
            return self.path(name).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise not_found(name) from error

    def list(self, prefix: str) -> list[str]:
        """All names that begin with `prefix`, sorted."""
        names = (
            path.relative_to(self._root).as_posix()
            for path in self._root.rglob("*")
            if path.is_file() and not path.name.startswith(UNFINISHED_PREFIX)
        )
        return sorted(name for name in names if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """A name that is not there stays not there."""
        with contextlib.suppress(FileNotFoundError):
            self.path(name).unlink()

    def append(self, name: str, _offset: int, data: bytes) -> None:
        """More of a file that grows; the other stores need to know where it ends. Raises
        OSError."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def path(self, name: str) -> Path:
        """Return where the file of this name lies, or would. Raises INVALID_ARGUMENT for what is
        not a name."""
        parts = name.split("/")
        if not _is_plain(name) or any(
            part in ("", ".", "..") or part.startswith(UNFINISHED_PREFIX) for part in parts
        ):
            raise _bad_name(name)
        path = self._root.joinpath(*parts)
        # A link inside the root could still lead out of it.
        if not path.resolve().is_relative_to(self._root.resolve()):
            raise _bad_name(name)
        return path


def _is_plain(name: str) -> bool:
    return "\\" not in name and name.isprintable() and len(name) <= 512


def _bad_name(name: str) -> PodyardError:
    return invalid(
        f"{name!r} is not the name of an artefact: parts joined by '/', none of them "
        "empty, '.' or '..'"
    )
