"""Whether this machine can give hosts boxes, and what users are told where it cannot. Light: `podyard up` asks, too."""

from __future__ import annotations

import os
import shutil
import sys

BOXES_AUTO, BOXES_ON, BOXES_OFF = "auto", "on", "off"  # PODYARD_BOXES; auto: where the machine can
TOOLS = ("ip", "nsenter", "setsid", "setpriv")  # of iproute2 and util-linux
_MACHINES = ("x86_64", "aarch64")  # whose system calls box_init.py knows by number
_KERNEL_MIN = (5, 19)  # overlays over mounts whose owners are translated
# What hosts without boxes share: the whole list, in the order in which users read it.
SHARED = ("files", "processes", "ports", "the network", "memory and CPU")


def tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def why_not(mode: str) -> str:
    """What keeps hosts of this machine out of boxes, as far as a look shows; empty: nothing."""
    if mode == BOXES_OFF:
        return "PODYARD_BOXES is off"
    if sys.platform != "linux":
        return "boxes need Linux"
    system = os.uname()
    if os.geteuid() != 0:
        return "Podyard does not run as root"
    if system.machine not in _MACHINES:
        return f"boxes are not made for {system.machine}"
    numbers = [int(part) for part in system.release.split("-")[0].split(".")[:2] if part.isdigit()]
    if tuple(numbers) < _KERNEL_MIN:
        return f"boxes need Linux 5.19, this is {system.release}"
    missing = [name for name in TOOLS if tool(name) is None]
    return f"{missing[0]} is missing" if missing else ""


def sentence(why: str) -> str:
    """What `podyard up`, the console and reports of hosts say."""
    if not why:
        return "Each host runs in a box: its files, processes, ports, network, memory and CPU are its own."
    shared = f"{', '.join(SHARED[:-1])}, {SHARED[-1]}"
    return f"Hosts are not isolated ({why}): they share {shared} with this machine and each other."
