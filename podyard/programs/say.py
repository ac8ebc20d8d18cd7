"""Messages to a program's user: once for each cause, however many processes the program has."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

SAID_VARIABLE = "PODYARD_SAID"  # folder with a file for each message; unset: each process says it
_TOLD_VARIABLE = "PODYARD_TOLD"  # digests of what a process has said, for those that it starts


def say(text: str) -> None:
    folder = os.environ.get(SAID_VARIABLE)
    if not folder or _is_first(Path(folder), text):
        print(f"podyard: {text}", file=sys.stderr, flush=True)


def say_once(text: str) -> None:
    """Say it in one process of the run; outside of a run, in the first process of a program."""
    digest = _digest(text)
    told = os.environ.get(_TOLD_VARIABLE, "").split()
    if digest not in told:
        os.environ[_TOLD_VARIABLE] = " ".join((*told, digest))
        say(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_first(folder: Path, text: str) -> bool:
    """Return True for the first process of a run that has this message, and where that is not
    known."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a file, or a disk that is full: rather twice than never
        return True
    try:
        (folder / _digest(text)).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
