"""The disks of one host, as its box asks for them: which there are, and mounts.

The box's `mount` and `umount` (`box/disk_commands.py`) send one line of JSON and get one back.
Everybody in a box may ask, as everybody there has `sudo`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podyard.base.clock import RealClock
from podyard.domain.disk import HostDisk, device_of
from podyard.workers.box import mounts as box_mounts
from podyard.workers.box.box import Box
from podyard.workers.box.devices import disk_file, files_of, link_command
from podyard.workers.box.disk_store import DISKS_FOLDER, DiskStore
from podyard.workers.box.plan import PATH
from podyard.workers.box.space import run
from podyard.workers.host.metadata import MetadataSource
from podyard.workers.kit import process_group
from podyard.workers.kit.process_group import Group, ProcessRecord

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 << 10  # a path has 4 KiB at most
REQUEST_SECONDS_MAX = 10.0  # for a client that connects and says nothing
END_SECONDS_MAX = 10.0  # until fuse2fs has written what it holds
NO_FUSE = (
    "this machine has no {}: a folder of the machine is mounted instead; it keeps its files, but "
    "not what mkfs wrote, and its size is not limited"
)
COUNTED_FILES_MAX = 1_000_000  # of a boot disk: two seconds, for which df waits
_BOOT_DISK = ("home", "tmp", "box/root", "box/layers")
_RECORDS = "box/disks"
_TARGET = ".target"  # the end of the name of a file with the box's pid and where a disk is mounted
_ENVIRONMENT = {"PATH": PATH, "HOME": "/root"}


class HostDisks:
    """`folder`: the host's. `source`: what the host knows, asked at each request, since disks grow
    while it runs."""

    def __init__(
        self,
        folder: Path,
        box: Box,
        source: MetadataSource,
        clock: RealClock,
    ) -> None:
        self._folder = folder
        self._records = folder / _RECORDS
        self._box = box
        self._source = source
        self._store = DiskStore(folder.parents[1] / DISKS_FOLDER)
        self._clock = clock
        self._changing = asyncio.Lock()
        self._following: asyncio.Future[None] | None = None

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Answer the box, which has its disks first, and what its /etc/fstab lists mounted."""
        server = await asyncio.start_server(self._serve, sock=listener, limit=REQUEST_BYTES_MAX)
        await self._update()
        if self._disks():
            await asyncio.to_thread(self._mount_all)
        return server

    def update(self) -> None:
        """Show the box the disks that it has now. A disk that is taken away while it is mounted is
        written first, and its folder is empty from then on."""
        self._following = asyncio.ensure_future(self._update())

    async def _update(self) -> None:
        async with self._changing:
            try:
                await asyncio.to_thread(self._follow)
            except OSError as error:
                logger.warning("disks of the host: %s", error)

    def _follow(self) -> None:
        disks = list(self._disks().values())
        wanted = {disk_file(disk): disk for disk in disks}
        there = files_of(Path(f"/proc/{self._box.pid}/mounts").read_text(encoding="utf-8"))
        if there == wanted.keys():
            return
        for path in there - wanted.keys():
            self._take_away(Path(path).name)
            box_mounts.unmount(self._box, path, lazy=True)
        for path in wanted.keys() - there:
            disk = wanted[path]
            self._run("install", "-D", "/dev/null", path)
            image = self._store.image(disk)
            box_mounts.mount_file(self._box, image, path, read_only=disk.read_only)
        self._run("sh", "-c", link_command(disks))

    def _take_away(self, disk_key: str) -> None:
        target = self._targets().get(disk_key)
        if target is None:
            return
        if (group := self._living(disk_key)) is not None:
            group.signal(signal.SIGTERM)
            self._wait_written(group)
        self._forget(disk_key, target, lazy=True)

    def _run(self, *command: str) -> None:
        run(self._box.enter(command, as_root=True), "", command[0], _ENVIRONMENT)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                line = await reader.readline()
            answer = await self._answer(line)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, TimeoutError, ValueError) as error:
            logger.info("a request for a disk was not answered: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Mapping[str, Any]:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise ValueError("not an object")
        device, target = str(request.get("device", "")), str(request.get("target", ""))
        try:
            if request.get("action") == "mount":
                async with self._changing:
                    note = await asyncio.to_thread(
                        self._mount, device, target, read_only=request.get("readOnly") is True
                    )
                return {"note": note, "error": ""}
            if request.get("action") == "umount":
                async with self._changing:
                    await asyncio.to_thread(self._unmount, target)
                return {"error": ""}
        except OSError as error:
            return {"error": str(error)}
        if request.get("action") == "boot":
            used_bytes = await asyncio.to_thread(self._used_bytes)
            return {"sizeGb": self._source.facts.boot_disk_gb, "usedBytes": used_bytes}
        return {"disks": [self._to_json(device, disk) for device, disk in self._disks().items()]}

    def _used_bytes(self) -> int:
        """The size of what the box has written. Links are not followed, nor folders that become
        links."""
        folders = (self._folder / name for name in _BOOT_DISK)
        walks = itertools.chain.from_iterable(os.fwalk(folder) for folder in folders)
        blocks = files = 0
        for _, _, names, folder in walks:
            for name in names:
                with contextlib.suppress(OSError):
                    blocks += os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks
            files += len(names)
            if files > COUNTED_FILES_MAX:
                break
        return blocks * 512

    def _disks(self) -> Mapping[str, HostDisk]:
        """By their names below /dev."""
        source = self._source
        mine = (disk for disk in source.facts.disks if disk.is_on(source.index))
        return {device_of(number): disk for number, disk in enumerate(mine)}

    @staticmethod
    def _to_json(device: str, disk: HostDisk) -> Mapping[str, Any]:
        return {
            "device": device,
            "path": disk_file(disk),
            "names": disk.names,
            "sizeGb": disk.size_gb,
            "readOnly": disk.read_only,
        }

    def _mount(self, path: str, target: str, *, read_only: bool) -> str:
        """Mount the disk whose file in the box is `path`. Returns what its user should know. Raises
        OSError."""
        device = next((name for name, disk in self._disks().items() if disk_file(disk) == path), "")
        if not device:
            raise OSError(f"{path} is not a disk of this host")
        disk = self._disks()[device]
        if (group := self._living(disk.disk_key)) is not None or disk.disk_key in self._targets():
            text = f" (fuse2fs, process {group.pid})" if group is not None else ""
            raise OSError(f"/dev/{device} is mounted already{text}")
        image, program = self._store.image(disk), shutil.which("fuse2fs")
        read_only = read_only or disk.read_only
        self._records.mkdir(exist_ok=True, mode=0o700)
        note = ""
        if program is None or not Path("/dev/fuse").exists():
            folder = self._store.files(disk)
            box_mounts.mount_folder(self._box, folder, target, read_only=read_only)
            note = NO_FUSE.format("/dev/fuse" if program else "fuse2fs")
        else:
            wanted = box_mounts.DiskMount(str(image), device, target, program, read_only)
            pid = box_mounts.mount_disk(self._box, wanted)
            record = ProcessRecord(disk.disk_key, 0, pid, process_group.start_of(pid))
            process_group.write_record(self._records, record)
        text = f"{self._box.pid} {target}"
        (self._records / f"{disk.disk_key}{_TARGET}").write_text(text, encoding="utf-8")
        return note

    def _targets(self) -> dict[str, str]:
        """The folders at which disks are mounted in this box, by the keys of the disks."""
        texts = {
            path.stem: path.read_text(encoding="utf-8").partition(" ")
            for path in self._records.glob(f"*{_TARGET}")
        }
        own = str(self._box.pid)
        return {key: target for key, (pid, _, target) in texts.items() if pid == own}

    def _living(self, disk_key: str) -> Group | None:
        """The fuse2fs that serves a disk."""
        if not self._records.is_dir():
            return None
        records = process_group.records(self._records)
        groups = (process_group.adopt(one) for one in records if one.replica == disk_key)
        return next((one for one in groups if one is not None and not one.is_gone()), None)

    def _unmount(self, target: str) -> None:
        """Only what was mounted for the box: other mounts hide what is not for it."""
        disk_key = next((key for key, place in self._targets().items() if place == target), None)
        if disk_key is None:
            raise OSError(f"{target}: no disk is mounted there")
        self._forget(disk_key, target)
        if (group := self._living(disk_key)) is not None:
            self._wait_written(group)

    def _forget(self, disk_key: str, target: str, *, lazy: bool = False) -> None:
        box_mounts.unmount(self._box, target, lazy=lazy)
        (self._records / f"{disk_key}{_TARGET}").unlink(missing_ok=True)

    def _wait_written(self, group: Group) -> None:
        if not group.wait_gone(self._clock, END_SECONDS_MAX):
            logger.error("fuse2fs (process %s) does not end", group.pid)

    def _mount_all(self) -> None:
        """Mount what the box's /etc/fstab lists, as a machine does that starts."""
        try:
            self._run("mount", "-a")
        except OSError as error:
            logger.warning("disks of /etc/fstab: %s", error)

    def wait_ended(self) -> None:
        """After the end of the box: until all file systems are written."""
        for disk_key in self._targets():
            if (group := self._living(disk_key)) is not None:
                self._wait_written(group)
