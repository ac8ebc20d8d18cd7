"""Runtime versions (v2: software of the TPU VMs; v1: TensorFlow versions), and the generations each serves.

A version that only a person's memory vouches for says so; the list is open: `serves` refuses what is known not to fit,
never what is unknown, because Google adds versions every few weeks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.errors import invalid
from podyard.hardware.generations import Generation

_SEEN = "seen in clients' configurations (documents of Cloud TPU and its clients)"
_UNVERIFIED = "from memory, unverified"
_UP_TO_V4 = frozenset({"v2", "v3", "v4"})
_V2_V3 = frozenset({"v2", "v3"})
_ALL = frozenset({"v2", "v3", "v4", "v5e", "v5p", "v6e"})


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """`generations` are the names of the generations the version runs on."""

    version: str
    generations: frozenset[str]
    source: str


RUNTIME_VERSIONS: Mapping[str, RuntimeVersion] = {
    item.version: item
    for item in (
        RuntimeVersion("tpu-vm-base", _V2_V3, _UNVERIFIED),
        RuntimeVersion("tpu-ubuntu2204-base", _ALL, _UNVERIFIED),
        RuntimeVersion("tpu-vm-cos-stable", _ALL, _SEEN),
        RuntimeVersion("tpu-vm-v4-base", frozenset({"v4"}), _SEEN),
        RuntimeVersion("v2-alpha-tpuv4", frozenset({"v4"}), _UNVERIFIED),
        RuntimeVersion("v2-alpha-tpuv5", frozenset({"v5p"}), _SEEN),
        RuntimeVersion("v2-alpha-tpuv5-lite", frozenset({"v5e"}), _SEEN),
        RuntimeVersion("v2-alpha-tpuv6e", frozenset({"v6e"}), _UNVERIFIED),
        RuntimeVersion("v2-alpha", _V2_V3, _UNVERIFIED),
        RuntimeVersion("tpu-vm-pt-1.13", _V2_V3, _UNVERIFIED),
        RuntimeVersion("tpu-vm-pt-2.0", _UP_TO_V4, _UNVERIFIED),
        RuntimeVersion("tpu-vm-tf-2.11.0", _V2_V3, _UNVERIFIED),
        RuntimeVersion("tpu-vm-tf-2.16.1", _V2_V3, _UNVERIFIED),
        RuntimeVersion("tpu-vm-tf-2.16.1-pod", _V2_V3, _UNVERIFIED),
        RuntimeVersion("tpu-vm-tf-2.16.1-pjrt", _ALL, _UNVERIFIED),
        RuntimeVersion("tpu-vm-tf-2.16.1-pod-pjrt", _ALL, _UNVERIFIED),
        RuntimeVersion("tpu-vm-tf-2.18.0-pjrt", _ALL, _SEEN),
        RuntimeVersion("tpu-vm-tf-2.18.0-pod-pjrt", _ALL, _UNVERIFIED),
    )
}

# API v1 (TPU Node) names TensorFlow versions instead; from memory, unverified.
TENSORFLOW_VERSIONS: tuple[str, ...] = ("1.15", "2.1", "2.3", "2.8.0", "2.11.0", "2.12.0", "nightly")

DEFAULT_RUNTIME_VERSION: Mapping[str, str] = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5e": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}


def runtime_versions_of(generation: Generation) -> tuple[RuntimeVersion, ...]:
    return tuple(item for item in RUNTIME_VERSIONS.values() if generation.name in item.generations)


def check_serves(version: str, generation: Generation) -> None:
    """Raises INVALID_ARGUMENT when `version` is known and does not run on `generation`, naming those that do."""
    known = RUNTIME_VERSIONS.get(version)
    if known is not None and generation.name not in known.generations:
        names = ", ".join(item.version for item in runtime_versions_of(generation))
        raise invalid(
            f"runtime version {version!r} does not run on {generation.name} "
            f"(it serves {', '.join(sorted(known.generations))}): one of {names}",
            "runtimeVersion",
        )
