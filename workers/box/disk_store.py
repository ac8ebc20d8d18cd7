"""Contents of disks on this machine: one sparse file for each, of the size that the disk has."""

from __future__ import annotations

import shutil
from pathlib import Path

from podyard.domain.disk import HostDisk
from podyard.domain.usage import GIB

DISKS_FOLDER = "disks"  # of an agent's folder
_IMAGE, _FILES = "image", "files"


class DiskStore:
    """`folder` has a folder for each disk, by its key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def image(self, disk: HostDisk) -> Path:
        """The file with the disk's contents, made or grown to its size. Raises OSError."""
        folder = self._folder / disk.disk_key
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / _IMAGE
        with path.open("ab") as file:
            if file.tell() < disk.size_gb * GIB:
                file.truncate(disk.size_gb * GIB)
        path.chmod(0o644)  # boxes that only read it are not its owners; its folder is closed
        return path

    def files(self, disk: HostDisk) -> Path:
        """The folder that is mounted instead of the file where this machine has no fuse2fs."""
        path = self._folder / disk.disk_key / _FILES
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
        return path

    def keys(self) -> list[str]:
        """The disks that have contents here."""
        return sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []

    def remove(self, disk_key: str) -> None:
        """Drop the contents of a disk that is deleted."""
        folder = self._folder / disk_key
        if folder.parent == self._folder:
            shutil.rmtree(folder, ignore_errors=True)
