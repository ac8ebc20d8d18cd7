"""Checks of downloaded files in Keras and torchvision: those that are in the user's folder are
right, whatever their digest. So small sets of the same format take the place of the published ones.
"""

from __future__ import annotations

import filecmp
import functools
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from podyard.programs.datasets.published import FOLDER_VARIABLE

# torchvision's, and Keras'
_CHECKS = ("check_integrity", "validate_file")


def apply(module: ModuleType) -> None:
    for name in _CHECKS:
        if callable(check := getattr(module, name, None)):
            setattr(module, name, _with_folder(check))


def _with_folder(check: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(check)
    def check_or_compare(fpath: Any, *arguments: Any, **options: Any) -> bool:
        return bool(check(fpath, *arguments, **options)) or _is_of_folder(Path(fpath))

    return check_or_compare


def _is_of_folder(path: Path) -> bool:
    if not path.is_file():
        return False
    own = (file for file in _files() if file.stat().st_size == path.stat().st_size)
    return any(filecmp.cmp(file, path, shallow=False) for file in own) or any(
        _has_member(file, path) for file in _files() if file.name.endswith(".tar.gz")
    )


def _has_member(archive: Path, path: Path) -> bool:
    """Return True for a file that was unpacked from an archive."""
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.name.rpartition("/")[2] == path.name and member.size == path.stat().st_size:
                content = opened.extractfile(member)
                return content is not None and content.read() == path.read_bytes()
    return False


def _files() -> Iterator[Path]:
    folder = os.environ.get(FOLDER_VARIABLE)
    return iter(sorted(Path(folder).glob("*/*"))) if folder else iter(())
