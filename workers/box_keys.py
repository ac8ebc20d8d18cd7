"""What the kernel keeps for a user, its keyrings, is not in any namespace: programs of boxes must not see it."""

from __future__ import annotations

import ctypes
import os
import struct

_JOIN_SESSION_KEYRING = 1
# Of a machine: the calls add_key, request_key and keyctl, in this order; seccomp; and its number in linux/audit.h.
_CALLS = {"x86_64": (248, 317, 0xC000003E), "aarch64": (217, 277, 0xC00000B7)}
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1
_LOAD, _IS_EQUAL, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_ALLOWED, _REFUSED = 0x7FFF0000, 0x00050001  # linux/seccomp.h; with EPERM
_OTHER_ABI = 0x40000000  # the same calls of x32 programs begin here


def leave_keys_behind() -> None:
    """For this process and all that it starts. A new session keyring, since the login's may hold keys; and without
    root, where boxes are the same user to the kernel, no calls that deal with keys. Raises OSError."""
    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        return
    first, seccomp, machine = calls
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(first + 2), ctypes.c_int(_JOIN_SESSION_KEYRING), None)
    if os.geteuid() == 0:
        return
    text = _filter(first, machine)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(text) // 8, ctypes.addressof(text)))
    failed = libc.prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if failed or libc.syscall(ctypes.c_long(seccomp), _SET_FILTER, _ALL_THREADS, program) != 0:
        raise OSError(ctypes.get_errno(), "the user's keys cannot be kept from boxes: set PODYARD_BOXES to off")


def _filter(first: int, machine: int) -> ctypes.Array[ctypes.c_char]:
    """For seccomp: refuses the three calls, and all of programs for another kind of machine, which have other numbers.
    Each step: what to do, how many steps to skip if it holds and if not, and with which value."""
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
