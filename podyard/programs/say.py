"""What a program's user is told."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    print(f"podyard: {text}", file=sys.stderr, flush=True)
