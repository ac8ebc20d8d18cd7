"""What the kernel keeps for a user, its keyrings, is not in any namespace: programs of boxes must
not see it."""

from __future__ import annotations

import ctypes
import functools
import os
import struct

_JOIN_SESSION_KEYRING = 1
# Of a machine: the calls add_key, request_key and keyctl, in this order; seccomp; and its number in
# linux/audit.h.
_CALLS = {"x86_64": (248, 317, 0xC000003E), "aarch64": (217, 277, 0xC00000B7)}
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1
_LOAD, _IS_EQUAL, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_ALLOWED, _REFUSED = 0x7FFF0000, 0x00050001  # linux/seccomp.h; with EPERM
_OTHER_ABI = 0x40000000  # the same calls of x32 programs begin here


def leave_keys_behind() -> None:
    """A new session keyring for this thread and all that it starts: the login's may hold keys."""
    calls = _CALLS.get(os.uname().machine)
    if calls is not None:
        ctypes.CDLL(None).syscall(
            ctypes.c_long(calls[0] + 2), ctypes.c_int(_JOIN_SESSION_KEYRING), None
        )


@functools.cache
def refuse_calls() -> None:
    """Without root boxes are the same user to the kernel: then this process, and all that it
    starts, can make no calls that deal with keys from now on. Raises OSError."""
    if os.geteuid() == 0:
        return
    first, seccomp, machine = _CALLS[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    text = _filter(first, machine)
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(text) // 8, ctypes.addressof(text))
    )
    failed = libc.prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if failed or libc.syscall(ctypes.c_long(seccomp), _SET_FILTER, _ALL_THREADS, program) != 0:
        raise OSError(ctypes.get_errno(), "the user's keys cannot be kept from boxes")


def _filter(first: int, machine: int) -> ctypes.Array[ctypes.c_char]:
    """For seccomp: refuses the three calls, and all of programs for another kind of machine, which
    have other numbers. Each step: what to do, how many steps to skip if it holds and if not, and
    with which value."""
    steps = (
        (_LOAD, 0, 0, 4),  # the kind of machine
        (_IS_EQUAL, 0, 5, machine),
        (_LOAD, 0, 0, 0),  # the call
        (_IS_AT_LEAST, 3, 0, _OTHER_ABI),
        (_IS_AT_LEAST, 1, 0, first + 3),
        (_IS_AT_LEAST, 1, 0, first),
        (_RETURN, 0, 0, _ALLOWED),
        (_RETURN, 0, 0, _REFUSED),
    )
    return ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
