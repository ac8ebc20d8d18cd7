"""Persistent disks of Compute Engine, which TPU nodes are attached to: what they may be."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid_field

# Types with the size in GB that a disk has if nobody says one
# (cloud.google.com/compute/docs/disks).
DISK_TYPES: Mapping[str, int] = {"pd-standard": 500, "pd-balanced": 100, "pd-ssd": 100}
DEFAULT_DISK_TYPE = "pd-standard"
DISK_GB_MIN, DISK_GB_MAX = 10, 65_536  # the same page
TPU_BOOT_DISK_GB = 100  # of every TPU VM
DISKS_PER_PROJECT_MAX = 1000  # one answer lists them all


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """`usage_version`: how many usage events it has. `agent_id`: the agent that has its contents;
    None: it has none yet. `source`: the path of the image that it was made of; empty: it was made
    blank."""

    disk_key: str
    project: str
    zone: str
    name: str
    number: int
    type: str
    size_gb: int
    description: str
    labels: Mapping[str, str]
    created: PlatformTime
    created_by: str
    usage_version: int
    agent_id: str | None = None
    source: str = ""

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/disks/{self.name}"

    @property
    def label_fingerprint(self) -> str:
        """The same labels have the same."""
        digest = hashlib.sha256(json.dumps(self.labels, sort_keys=True).encode()).digest()
        return base64.urlsafe_b64encode(digest[:8]).decode()


def check_disk_type(name: str) -> None:
    if name not in DISK_TYPES:
        raise invalid_field(
            f"disk type {name[:63]!r} does not exist: use {', '.join(DISK_TYPES)}", "type"
        )


def check_size(size_gb: int) -> None:
    if not DISK_GB_MIN <= size_gb <= DISK_GB_MAX:
        raise invalid_field(
            f"sizeGb is {size_gb}: it must be from {DISK_GB_MIN} to {DISK_GB_MAX}", "size_gb"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class HostDisk:
    """`names`: what follows `google-` in the names below /dev/disk/by-id. `hosts`: which hosts of
    the node have it; empty: all."""

    disk_key: str
    names: tuple[str, ...]
    size_gb: int
    read_only: bool
    hosts: tuple[int, ...] = ()

    def is_on(self, index: int) -> bool:
        return not self.hosts or index in self.hosts


def device_of(number: int) -> str:
    """The name below /dev of a host's data disk: `sdb` for 0, since `sda` is its boot disk."""
    letters = "bcdefghijklmnopqrstuvwxyz"
    first, last = divmod(number, len(letters))
    return f"sd{chr(ord('a') + first - 1) if first else ''}{letters[last]}"
