"""Waiting for a number in shared memory: some microseconds of looking, then asleep in the kernel.

The kernel puts the caller to sleep only while the number is still what the caller saw, so no
wake-up is lost. Linux only, on processors that show stores to others in the order in which they
were made (x86-64): Python has no barriers.
"""

from __future__ import annotations

import ctypes
import platform
import sys

# asm/unistd_64.h of x86-64, and linux/futex.h. Without the private flag: between processes.
_SYS_FUTEX = 202
_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1
_NANOS = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanos", ctypes.c_long))


def is_supported() -> bool:
    return sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


class Sleeper:
    """Waits for changes of 32-bit numbers, by address; `wake` wakes those that wait in other
    processes."""

    def __init__(self) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall

    def wait(self, address: int, seen: int, seconds: float) -> None:
        """Returns when woken, at once when the number is not `seen` any more, and after `seconds`
        at the latest. May return early: the caller looks again."""
        nanos = int(seconds * _NANOS)
        limit = _Timespec(nanos // _NANOS, nanos % _NANOS)
        self._syscall(
            ctypes.c_long(_SYS_FUTEX), ctypes.c_void_p(address), ctypes.c_int(_WAIT),
            ctypes.c_uint32(seen),
            ctypes.byref(limit), None, ctypes.c_int(0),
        )  # fmt: skip

    def wake(self, address: int) -> None:
        self._syscall(
            ctypes.c_long(_SYS_FUTEX), ctypes.c_void_p(address), ctypes.c_int(_WAKE),
            ctypes.c_int(_EVERYBODY),
            None, None, ctypes.c_int(0),
        )  # fmt: skip
