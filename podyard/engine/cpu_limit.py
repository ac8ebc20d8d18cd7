"""A limit on the CPU time of an estimate: a valid module may be too long to be estimated."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType

from podyard.base.errors import Code, PodyardError

# People and requests wait for an estimate: with the start of Python and the report, 10 s for a
# module that is far longer than those of trainers (the longest recorded training step has 6,000
# lines), and a minute for those. CPU time, since a loaded machine does not make a module longer.
LONG_MODULE_CPU_SECONDS_MAX = 7.0
MODULE_CPU_SECONDS_MAX = 60.0
_LINES_LONG = 20_000


def module_limit(text: bytes | str) -> AbstractContextManager[None]:
    """Return the limit for the estimate of a module of StableHLO."""
    lines = text.count(b"\n") if isinstance(text, bytes) else text.count("\n")
    return cpu_limit(LONG_MODULE_CPU_SECONDS_MAX if lines > _LINES_LONG else MODULE_CPU_SECONDS_MAX)


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise OUT_OF_RANGE inside the block once this process has computed for `seconds` in it.
    For the main thread of processes of our own: it takes SIGPROF."""

    def refuse(_number: int, _frame: FrameType | None) -> None:
        raise PodyardError(
            Code.OUT_OF_RANGE,
            f"the program takes more than {seconds:.0f} s of CPU time to estimate: "
            "estimate one layer of it, or write layers that repeat as one stablehlo.while",
        )

    previous = signal.signal(signal.SIGPROF, refuse)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, previous)
