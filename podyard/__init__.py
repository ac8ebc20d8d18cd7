"""Podyard: a Cloud TPU that you run yourself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

# In the repository these packages are folders at the root; a wheel holds them inside `podyard/`.
ROOT_FOLDERS = ("api", "scheduler", "workers", "pricing", "web", "migrations")


class RootFolderFinder:
    """Import the packages of `ROOT_FOLDERS` from a checkout's root, so that every module has the
    path that git knows: `api/app.py`, not `podyard/api/app.py`. Source:
    docs/decisions/0001-import-root-and-symlinks.md."""

    __slots__ = ("_names", "_root")

    def __init__(self, root: Path) -> None:
        self._names = frozenset(f"{__name__}.{folder}" for folder in ROOT_FOLDERS)
        self._root = (str(root),)

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package in its root folder; None for every other module. Submodules follow from its
        `__path__`."""
        return (
            PathFinder.find_spec(fullname, self._root, target) if fullname in self._names else None
        )


def is_checkout(root: Path) -> bool:
    """Return whether `root` holds Podyard's own sources: a checkout or an unpacked sdist.

    Folders that happen to be called `api` or `web` prove nothing, nor does another project's
    `pyproject.toml`: some wheels leave theirs in site-packages.
    """
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return f'\n[project]\nname = "{__name__}"\n' in text


if is_checkout(Path(__file__).parents[1]):
    # First, because the links in `podyard/` would lead every other finder to a second path.
    sys.meta_path.insert(0, RootFolderFinder(Path(__file__).parents[1]))


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext podyard`. Loaded by name, as the command line loads its commands: no layer imports
    it."""
    importlib.import_module("podyard.cli.programs.notebook").load(ipython)
