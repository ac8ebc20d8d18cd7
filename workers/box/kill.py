"""Ends every process of a box but its first: `python -I -S box/kill.py PID`, with the pid of that
one.

It is one call, which no fork can slip past. Nothing is executed in the box, where programs may have
become anything, and its root has no right on this process, which was executed outside. For boxes
without root: where there are cgroups, they do it (`box/limit.py`). Standard library only, as for
`box/init.py`.
"""

import contextlib
import ctypes
import os
import signal
import sys

_NEWUSER, _NEWPID = 0x10000000, 0x20000000


def main(pid: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    first = os.pidfd_open(pid)
    if libc.setns(first, _NEWUSER | _NEWPID) != 0:
        print(f"the box cannot be entered: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    child = os.fork()
    if child != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
