"""The pipe on which a child of `podyard up` tells its supervisor that it is alive, and why it
refuses to start.

A pipe works with a full disk and without a network, and the kernel closes it when either end dies.
An empty line is a heartbeat; any other line is the reason for an end with the exit code of a failed
set-up.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import MutableMapping

PIPE_VARIABLE = "PODYARD_SUPERVISOR_PIPE"  # the descriptor of the pipe's write end
# the child's name; with PODYARD_DATA it marks the processes of one stack
CHILD_VARIABLE = "PODYARD_CHILD"
# Of each process that a supervisor starts, and of the one before it, which has ended: what that one
# holds is free.
MARK_VARIABLE, ENDED_VARIABLE = "PODYARD_CHILD_MARK", "PODYARD_CHILD_ENDED"
WORDS_BYTES_MAX = 4096  # a longer reason is cut: a pipe takes this much in one piece


class Heartbeat:
    """`descriptor` None: nobody listens, as for a process that was started by hand. `mark`: of this
    process; `ended`:
    of the one before it, once the supervisor has seen its end. Empty: there is none."""

    def __init__(self, descriptor: int | None = None, mark: str = "", ended: str = "") -> None:
        self._descriptor = descriptor
        self.mark, self.ended = mark, ended

    def beat(self) -> None:
        """Cheap enough for every round of a loop. Call it where a process that hangs would not get
        to."""
        self._write(b"\n")

    def say(self, reason: str) -> None:
        self._write(" ".join(reason.split()).encode()[: WORDS_BYTES_MAX - 1] + b"\n")

    def _write(self, line: bytes) -> None:
        if self._descriptor is None:
            return
        # A supervisor that stands still has a full pipe, one that was killed has none.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._descriptor, line)


def from_environment(environ: MutableMapping[str, str]) -> Heartbeat:
    """The heartbeat of this process. Takes all variables out, so that no child of it passes for
    it."""
    environ.pop(CHILD_VARIABLE, None)
    marks = [environ.pop(name, "") for name in (MARK_VARIABLE, ENDED_VARIABLE)]
    descriptor = environ.pop(PIPE_VARIABLE, None)
    if descriptor is None:
        return Heartbeat()
    os.set_inheritable(int(descriptor), False)
    return Heartbeat(int(descriptor), *marks)
