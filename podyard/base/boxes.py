"""A check that this machine can give hosts boxes, and the sentence for users where it cannot.
Light: `podyard up` asks, too."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

BOXES_AUTO, BOXES_ON, BOXES_OFF = "auto", "on", "off"  # PODYARD_BOXES; auto: where the machine can
TOOLS = ("ip", "nsenter", "setsid", "setpriv", "unshare", "prlimit")  # of iproute2 and util-linux
_MACHINES = ("x86_64", "aarch64")  # whose system calls box/init.py knows by number
_KERNEL_MIN = (5, 19)  # overlays over mounts whose owners are translated
# Of `unshare`: where an ordinary user is root. What is unmounted on the machine is unmounted there,
# too.
NAMESPACES = ("--user", "--map-root-user", "--mount", "--net", "--propagation", "slave", "--")
_TRY_SECONDS_MAX = 20.0  # some milliseconds, on a machine that is not overloaded
BOXED = "Each host runs in a box: its files, processes, ports, network, memory and CPU are its own."
BOXED_WITHOUT_ROOT = (
    "Each host runs in a box without root: its files, processes, ports and network are its own; "
    "memory and CPU are shared, and sudo gives no more rights."
)
# What hosts without boxes share: the whole list, in the order in which users read it.
SHARED = ("files", "processes", "ports", "the network", "memory and CPU")


def tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def why_not(mode: str) -> str:
    """Return what keeps hosts of this machine out of boxes, as far as a look shows; empty:
    nothing."""
    if mode == BOXES_OFF:
        return "PODYARD_BOXES is off"
    if sys.platform != "linux":
        return "boxes need Linux"
    system = os.uname()
    if system.machine not in _MACHINES:
        return f"boxes are not made for {system.machine}"
    numbers = [int(part) for part in system.release.split("-")[0].split(".")[:2] if part.isdigit()]
    if tuple(numbers) < _KERNEL_MIN:
        return f"boxes need Linux 5.19, this is {system.release}"
    missing = [name for name in TOOLS if tool(name) is None]
    if missing:
        return f"{missing[0]} is missing"
    return "" if os.geteuid() == 0 else _why_no_namespaces()


@functools.cache
def _why_no_namespaces() -> str:
    """Some systems refuse user namespaces, others the rights in them: only a try tells."""
    words = (tool("unshare") or "", *NAMESPACES, "mount", "-t", "tmpfs", "podyard", "/run")
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_TRY_SECONDS_MAX, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    else:
        said = (
            ""
            if done.returncode == 0
            else done.stderr.strip().rpartition("\n")[2] or str(done.returncode)
        )
    return said and f"Podyard does not run as root, and user namespaces are not allowed: {said}"


def sentence(why: str) -> str:
    """Return what `podyard up`, the console and reports of hosts say."""
    if not why:
        return BOXED if os.geteuid() == 0 else BOXED_WITHOUT_ROOT
    shared = f"{', '.join(SHARED[:-1])}, {SHARED[-1]}"
    return f"Hosts are not isolated ({why}): they share {shared} with this machine and each other."
