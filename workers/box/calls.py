"""System calls that programs of boxes cannot make: what the kernel does for a user or a machine and
no namespace divides.

As root a box has the calls that containers usually have: those that docker's default profile
(moby, profiles/seccomp/default.json) gives to a container without added capabilities, but for
packet sockets. Without root, where a box's user is the machine's, those for keys are refused.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import struct
from collections.abc import Sequence

from podyard.workers.box.init import refuse_calls as refuse

_JOIN_SESSION_KEYRING = 1
_NO_NEW_PRIVILEGES = 38
_LOAD, _IS_EQUAL, _IS_AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # bpf_common.h
_ALLOWED, _REFUSED, _MISSING = 0x7FFF0000, 0x00050001, 0x00050026  # seccomp.h: EPERM, ENOSYS
_CALL, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # linux/seccomp.h: offsets in seccomp_data
_OTHER_ABI = 0x40000000  # the same calls of x32 programs begin here
_NAMESPACES = 0x7E020000  # linux/sched.h: CLONE_NEWNS, and from CLONE_NEWCGROUP to CLONE_NEWNET
# Families of sockets: of packets (AF_PACKET), of the kernel's ciphers (AF_ALG), to a hypervisor
# (AF_VSOCK).
_FAMILIES = (17, 38, 40)


@dataclasses.dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of calls on one kind of machine (asm/unistd_64.h; asm-generic/unistd.h). `number`:
    linux/audit.h. `first_key`: add_key; request_key and keyctl follow."""

    number: int
    seccomp: int
    first_key: int
    clone: int
    socket: int
    refused: tuple[int, ...]
    mounts: tuple[int, int]  # mount, umount2


# Since Linux 5.1 the numbers are the same on all machines: io_uring, mounts by descriptors,
# clone3, quotactl_fd, mount_setattr.
_IO_URING, _MOUNT_FDS, _CLONE3 = (425, 426, 427), (428, 429, 430, 431, 432, 433, 442), 435
_LATER = (*_IO_URING, *_MOUNT_FDS, 443)
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 317, 248, 56, 41,
        (
            103, 134, 136, 139, 153, 155, 156,  # syslog uselib ustat sysfs vhangup pivot sysctl
            163, 164, 165, 166, 167, 168, 169,  # acct settimeofday mount umount2 swap* reboot
            172, 173, 174, 175, 176, 177, 178, 179, 180,  # iopl ioperm modules quotactl nfsservctl
            212, 227, 246, 272, 298, 300, 304, 305,  # cookies clocks kexec unshare perf fanotify
            313, 320, 321, 323, *_LATER,  # finit_module kexec_file_load bpf userfaultfd
        ),
        (165, 166),
    ),
    "aarch64": _Machine(
        0xC00000B7, 277, 217, 220, 198,
        (
            18, 39, 40, 41, 42, 58, 60, 89, 97, 104, 105, 106, 112, 116, 142, 170,
            224, 225, 241, 262, 265, 266, 273, 280, 282, 294, *_LATER,
        ),
        (40, 39),
    ),
}  # fmt: skip


def leave_keys_behind() -> None:
    """Make a new session keyring for this thread and all that it starts: the login's may hold
    keys."""
    machine = _MACHINES.get(os.uname().machine)
    if machine is not None:
        ctypes.CDLL(None).syscall(
            ctypes.c_long(machine.first_key + 2), ctypes.c_int(_JOIN_SESSION_KEYRING), None
        )


@functools.cache
def refuse_calls() -> None:
    """Refuse calls for keys to this process and all that it starts, where it has no root: boxes are
    the same user to the kernel then. Raises OSError."""
    if os.geteuid() == 0:
        return
    machine = _MACHINES[os.uname().machine]
    failed = ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if failed:
        raise OSError("the user's keys cannot be kept from boxes")
    refuse(keys_filter(machine), machine.seccomp)


def profile_of_boxes(*, mounts: bool = False) -> tuple[str, int] | None:
    """Return the filter of a box that root makes, in hexadecimal digits, and the number of the call
    that sets it. None: boxes without root, whose filter their host server has; machines whose calls
    are not known. `mounts`: of a program of ours that mounts a file system in a box."""
    machine = _MACHINES.get(os.uname().machine)
    if os.geteuid() != 0 or machine is None:
        return None
    return box_filter(machine, machine.mounts if mounts else ()).hex(), machine.seccomp


def keys_filter(machine: _Machine) -> bytes:
    """Return the program that refuses the three calls for keys."""
    return _program(machine, range(machine.first_key, machine.first_key + 3), ())


def box_filter(machine: _Machine, allowed: Sequence[int] = ()) -> bytes:
    """Return the program for a box that root makes. `allowed`: calls that it refuses otherwise."""
    refused = (call for call in machine.refused if call not in allowed)
    calls = [*range(machine.first_key, machine.first_key + 3), *refused]
    checks = (
        # glibc takes clone where clone3, whose flags no filter sees, is missing.
        (_IS_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _MISSING),
        (_IS_EQUAL, 0, 4, machine.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_HAS_BITS, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _REFUSED),
        (_RETURN, 0, 0, _ALLOWED),
        (_IS_EQUAL, 0, len(_FAMILIES) + 1, machine.socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_IS_EQUAL, len(_FAMILIES) - place, 0, family) for place, family in enumerate(_FAMILIES)),
    )
    return _program(machine, calls, checks)


_Step = tuple[int, int, int, int]


def _program(machine: _Machine, calls: Sequence[int], checks: Sequence[_Step]) -> bytes:
    """Return a program for seccomp: refuse all calls of programs for another kind of machine, which
    have other numbers, then these calls; `checks` come last before what is allowed. Each step: what
    to do, how many steps to skip if it holds and if not, and with which value."""
    ending = (*checks, (_RETURN, 0, 0, _ALLOWED), (_RETURN, 0, 0, _REFUSED))
    to_refusal = len(calls) + len(ending) - 1  # from the first of `calls`
    steps = (
        (_LOAD, 0, 0, _MACHINE),
        (_IS_EQUAL, 1, 0, machine.number),
        (_RETURN, 0, 0, _REFUSED),
        (_LOAD, 0, 0, _CALL),
        (_IS_AT_LEAST, to_refusal, 0, _OTHER_ABI),
        *((_IS_EQUAL, to_refusal - place - 1, 0, call) for place, call in enumerate(calls)),
        *ending,
    )
    return b"".join(struct.pack("HBBI", *step) for step in steps)
