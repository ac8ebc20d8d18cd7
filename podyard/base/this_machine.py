"""The resources of this machine, as an agent declares them: cores, memory, and what decides the
bits of its results."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from podyard import __version__
from podyard.base.clock import RealClock

_CPUINFO = Path("/proc/cpuinfo")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
_NETWORK = Path("/proc/self/ns/net")
# x86-64 levels, by flags as Linux names them: https://gitlab.com/x86-psABIs/x86-64-ABI
_LEVELS = (
    ("v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    ("v2", {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
)
# XLA's and OpenBLAS' kernels for these differ from those of their level.
_FEATURES = ("avx512_bf16", "avx512_fp16", "amx_tile")
_NUMERIC_PACKAGES = ("jaxlib", "numpy")


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Of the machine, or of the container that this process runs in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_MEMORY.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def host_name() -> str:
    return socket.gethostname()[:256]


def kernels() -> str:
    """Return what decides the bits of sums and products here. Machines of which it differs are not
    mixed in one gang."""
    versions = [f"{name} {_version(name)}" for name in _NUMERIC_PACKAGES]
    return ", ".join([_processor(_cpuinfo()), *versions])


def place(folder: Path) -> str:
    """Tells this machine, since its last start, and the folder from every other place that a
    process may run at."""
    parts = [str(folder.resolve()), host_name()]
    with contextlib.suppress(OSError):
        parts.append(_BOOT_ID.read_text(encoding="ascii").strip())
    if _NETWORK.is_symlink():
        parts.append(str(_NETWORK.readlink()))  # containers share a boot id
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def address_towards(host: str, port: int) -> str:
    """The address of this machine that connections to `host` come from. Nothing is sent. Raises
    OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _processor(text: str) -> str:
    """`x86_64-v4 AuthenticAMD avx512_bf16`, from /proc/cpuinfo; elsewhere the machine's
    architecture alone."""
    machine = platform.machine()
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            break  # the first processor says it for all
        found[name.strip()] = value.strip()
    flags = set(found.get("flags", found.get("Features", "")).split())
    if machine != "x86_64" or not flags:
        maker = found.get("CPU implementer", "")
        return " ".join(filter(None, (machine, maker, "sve" if "sve" in flags else "")))
    level = next((name for name, needed in _LEVELS if needed <= flags), "v1")
    features = [name for name in _FEATURES if name in flags]
    return " ".join(filter(None, (f"{machine}-{level}", found.get("vendor_id", ""), *features)))


def _cpuinfo() -> str:
    try:
        return _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def declaration(
    folder: Path,
    clock: RealClock,
    *,
    cores_said: int = 0,
    memory_said: int = 0,
    labels: Mapping[str, str],
    runtimes: Sequence[str],
) -> dict[str, object]:
    """Return what an agent of this machine declares, as the API reads it. `cores_said`,
    `memory_said`: what its operator gives of them; 0 is all."""
    has_cores, has_bytes = cores(), memory_bytes()
    return {
        "release": __version__,
        "hostName": host_name(),
        "place": place(folder),
        "cores": cores_said or has_cores,
        "coresMeasured": has_cores,
        "memoryBytes": memory_said or has_bytes,
        "memoryBytesMeasured": has_bytes,
        "kernels": kernels(),
        "runtimes": list(runtimes),
        "labels": dict(labels),
        "now": clock.now().rfc3339(),
    }
