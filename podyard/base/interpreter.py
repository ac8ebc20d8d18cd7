"""The command of a Python process of ours."""

from __future__ import annotations

import sys


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this Python with `arguments`.

    `-P` keeps the current folder off its path: with `-m` and `-c` Python looks there first, so a
    user's `json.py`, or a folder named `podyard`, would be imported in place of the real one.
    """
    return [sys.executable, "-P", *arguments]
