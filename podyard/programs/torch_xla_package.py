"""The choice of a program's torch_xla: the one that is installed, else Podyard's own where there is
torch, and a TPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import metadata, util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from podyard.programs import slice as slices

NAME = "torch_xla"
VERSION = "2.9.0"  # whose names are there
_FOLDER = Path(__file__).parent / NAME


def find_spec(find_installed: Callable[[], ModuleSpec | None]) -> ModuleSpec | None:
    """None: the other finders go on."""
    if not _is_on():
        return None
    if (installed := find_installed()) is not None:
        os.environ.setdefault("PJRT_DEVICE", "CPU")
        print(
            "podyard: the installed torch_xla is used: it sees CPU devices, and no TPU",
            file=sys.stderr,
        )
        return installed
    if util.find_spec("torch") is None:
        return None
    return util.spec_from_file_location(
        NAME, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )


def find_distributions(
    find_installed: Callable[[], ModuleSpec | None],
) -> list[metadata.Distribution]:
    """For programs that ask which version is there."""
    return (
        [_Own()]
        if _is_on() and find_installed() is None and util.find_spec("torch") is not None
        else []
    )


def _is_on() -> bool:
    return os.environ.get(slices.TYPE_VARIABLE, slices.OFF) not in ("", slices.OFF)


class _Own(metadata.Distribution):
    def read_text(self, filename: str) -> str | None:
        return (
            f"Metadata-Version: 2.1\nName: torch-xla\nVersion: {VERSION}\n"
            if filename == "METADATA"
            else None
        )

    def locate_file(self, path: Any) -> Any:
        return _FOLDER.parent / path
