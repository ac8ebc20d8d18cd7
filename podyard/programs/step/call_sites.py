"""The places of a program from which modules are called."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

_PODYARD = f"{Path(__file__).parents[1]}{os.sep}"
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_JAX = tuple(f"{os.sep}{name}{os.sep}" for name in ("jax", "jaxlib"))
_PROGRAM, _LIBRARY, _HIDDEN = range(3)
_kinds: dict[CodeType, int] = {}

Site = tuple[CodeType, int]  # a function, and the place of the call in its code


def call_site() -> Site | None:
    """The innermost frame of the program itself; of a program that is an installed package, the
    innermost frame outside of JAX and Podyard."""
    frame: FrameType | None = sys._getframe(1)
    nearest: FrameType | None = None
    while frame is not None:
        code = frame.f_code
        kind = _kinds.get(code)
        if kind is None:
            kind = _kinds[code] = _kind(code.co_filename)
        if kind == _PROGRAM:
            return code, frame.f_lasti
        if kind == _LIBRARY and nearest is None:
            nearest = frame
        frame = frame.f_back
    return None if nearest is None else (nearest.f_code, nearest.f_lasti)


def label(site: Site) -> str:
    """Such as `train.py:14`."""
    code, place = site
    line = next(
        (line for start, end, line in code.co_lines() if start <= place < end and line),
        code.co_firstlineno,
    )
    return file_line(code.co_filename, line)


def file_line(filename: str, line: int) -> str:
    return f"{Path(filename).name}:{line}"


def is_of_program(filename: str) -> bool:
    """Return True for a file of the program itself, not of an installed package."""
    return _kind(filename) == _PROGRAM


def is_program_file(filename: str) -> bool:
    """Return False for files of JAX, Podyard and Python; packages are the program's."""
    return _kind(filename) != _HIDDEN


def _kind(filename: str) -> int:
    if filename.startswith((_PODYARD, "<frozen")):
        return _HIDDEN
    if any(part in filename for part in _INSTALLED):
        return _HIDDEN if any(part in filename for part in _JAX) else _LIBRARY
    return _HIDDEN if filename.startswith(_STANDARD) else _PROGRAM
