"""The end of a program that a TPU rejects, or a warning with `--lenient`."""

from __future__ import annotations

import os

from podyard.programs import slice as slices
from podyard.programs.say import say

_seen: set[str] = set()


def report(error: Exception) -> None:
    """Raise the error of a TPU; with `--lenient`, print it once and go on."""
    if os.environ.get(slices.LENIENT_VARIABLE) != "1":
        raise error
    text = str(error).partition("\n")[0]
    if text not in _seen:
        _seen.add(text)
        say(f"a TPU rejects this program: {type(error).__name__}: {text}")
