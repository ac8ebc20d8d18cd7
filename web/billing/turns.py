"""Threads take turns in an interpreter. While one of them works out a bill, turns are shorter than
usual, so that requests are answered meanwhile; shorter turns cost some throughput, so they end with
the work."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

TURN_SECONDS = 0.001  # the interpreter's own are 5 ms, and a request takes some five of them

_lock = threading.Lock()
_usual: list[float] = []  # the interval of before, once for each work that is under way


def begin() -> None:
    with _lock:
        _usual.append(_usual[-1] if _usual else sys.getswitchinterval())
        sys.setswitchinterval(TURN_SECONDS)


def end() -> None:
    """Once for each `begin`."""
    with _lock:
        usual = _usual.pop()
        if not _usual:
            sys.setswitchinterval(usual)


@contextlib.contextmanager
def short() -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        end()
