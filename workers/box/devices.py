"""The disks of a host as files of its box. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from podyard.domain.disk import HostDisk, device_of
from podyard.workers.box.plan import BoxPlan

DISKS_PORT = 3130  # of the host server, next to the metadata server: `disk_commands.py` asks it
_FOLDER = "/podyard/disks"
_BY_ID = "/dev/disk/by-id"
_COMMANDS = "/run/podyard/disk-commands"
_COMMAND_PATHS = ("/usr/bin/mount", "/usr/bin/umount", "/usr/bin/lsblk", "/usr/bin/df",
    "/usr/local/sbin/blkid",
)  # fmt: skip
_MAKERS = tuple(
    f"/usr/local/sbin/{name}" for name in ("mkfs.ext2", "mkfs.ext3", "mkfs.ext4", "mke2fs")
)


def disk_file(disk: HostDisk) -> str:
    """The file of a box that is the disk; all names below /dev are links to it."""
    return f"{_FOLDER}/{disk.disk_key}"


def link_command(disks: Sequence[HostDisk]) -> str:
    """A command of a shell that gives disks, in this order, their names below /dev, and takes away
    all others."""
    lines = [f"rm -rf /dev/sd* {_BY_ID}", f"mkdir -p -m 755 /dev/disk {_BY_ID}"]
    for number, disk in enumerate(disks):
        device = f"/dev/{device_of(number)}"
        links = {device: disk_file(disk)}
        links |= {f"{_BY_ID}/google-{name}": device for name in disk.names}
        lines += [f"ln -sfn {target} {shlex.quote(name)}" for name, target in links.items()]
    return " && ".join(lines)


def files_of(mounts: str) -> set[str]:
    """The files that are disks, of a box with these mounts (/proc/PID/mounts)."""
    targets = (line.split()[1] for line in mounts.splitlines())
    return {target for target in targets if target.startswith(f"{_FOLDER}/")}


def with_disk_commands(plan: BoxPlan) -> BoxPlan:
    """`plan` with the commands that mount disks."""
    # Without root a box has one user, who must own what it makes.
    makers = _MAKERS if "own" in plan.maps else ()
    source = Path(__file__).with_name("disk_commands.py").read_text(encoding="utf-8")
    return dataclasses.replace(
        plan,
        links={**plan.links, **dict.fromkeys((*_COMMAND_PATHS, *makers), _COMMANDS)},
        files={**plan.files, _COMMANDS: (0o755, f"#!{sys.executable} -IS\n{source}")},
    )
