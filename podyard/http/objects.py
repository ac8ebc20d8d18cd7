"""The objects folder that replicas write to, for reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from podyard.base.errors import not_found


class ObjectFiles:
    """Files below one root, by their path below it. What a name could lead to outside of the root
    is not there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def sizes(self, prefix: str) -> Mapping[str, int]:
        folder = self._root / prefix.rpartition("/")[0]
        found = {path.relative_to(self._root).as_posix(): path for path in folder.rglob("*")}
        # A file whose name begins with a dot is being written.
        return {
            name: path.stat().st_size
            for name, path in sorted(found.items())
            if name.startswith(prefix) and not path.name.startswith(".") and self._is_ours(path)
        }

    def get(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def path(self, name: str) -> Path:
        """Return where a file lies that is too large to be read at once. Raises NOT_FOUND."""
        path = self._root / name
        if not self._is_ours(path):
            raise not_found(name)
        return path

    def _is_ours(self, path: Path) -> bool:
        """Return whether it is a file, and no link inside of the root leads out of it."""
        return path.is_file() and path.resolve().is_relative_to(self._root.resolve())
