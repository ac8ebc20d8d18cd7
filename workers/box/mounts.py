"""Mounts that a box gets after it was made: file systems of disks, folders of this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podyard.workers.box import calls as box_calls
from podyard.workers.box.box import Box
from podyard.workers.box.plan import USER_ID
from podyard.workers.box.space import run

_HELPER = Path(__file__).with_name("disk.py")


@dataclasses.dataclass(frozen=True, slots=True)
class DiskMount:
    """A file system to mount. `image`: the file on this machine; `device`: its name below /dev;
    `program`: fuse2fs."""

    image: str
    device: str
    target: str
    program: str
    read_only: bool


def mount_disk(box: Box, wanted: DiskMount) -> int:
    """Returns the pid of the fuse2fs that serves it. Raises OSError that says why not."""
    request = _request(box, "mount", wanted.target) | dataclasses.asdict(wanted)
    return int(_ask(box, request))


def mount_folder(box: Box, folder: Path, target: str, *, read_only: bool) -> None:
    """A folder of this machine, whose owners the box sees as its own. Raises OSError."""
    _ask(box, _request(box, "folder", target) | {"image": str(folder), "read_only": read_only})


def mount_file(box: Box, image: Path, target: str, *, read_only: bool) -> None:
    """The contents of a disk, which the box's root owns from now on, at a file of the box. Raises
    OSError."""
    _ask(box, _request(box, "file", target) | {"image": str(image), "read_only": read_only})


def unmount(box: Box, target: str, *, lazy: bool = False) -> None:
    """Raises OSError where nothing is mounted, or, unless `lazy`, programs use it."""
    _ask(box, _request(box, "umount", target) | {"lazy": lazy})


def _request(box: Box, action: str, target: str) -> dict[str, Any]:
    is_root = os.geteuid() == 0
    return {
        "action": action,
        "pid": box.pid,
        "target": target,
        "user": 0 if is_root else USER_ID,
        "owner": box.outside(0) if is_root else 0,
        "cgroups": [str(path) for path in box.cgroups] if is_root else [],
        "calls": box_calls.profile_of_boxes(mounts=True),
    }


def _ask(box: Box, request: Mapping[str, Any]) -> str:
    command = box.space.command(sys.executable, "-I", "-S", str(_HELPER))
    return run(command, json.dumps(request), str(request.get("target")))
