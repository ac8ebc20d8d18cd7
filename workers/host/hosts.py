"""The agent's side of hosts: keeps one host server running while there are hosts, and clears what
hosts have left.

What a host does is the host server's business (`host/server.py`): the agent tells it when to look,
ends it, and ends what it cannot end any more itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import RealClock
from podyard.base.interpreter import python_command
from podyard.workers.box import box
from podyard.workers.box import space as box_space
from podyard.workers.box.disk_store import DISKS_FOLDER, DiskStore
from podyard.workers.host import scripts
from podyard.workers.kit import process_group
from podyard.workers.kit.process_group import Group

logger = logging.getLogger(__name__)

RESTART_SECONDS = (0.1, 0.5, 2.0, 5.0)  # waits before the 1st, 2nd, ... restart in a row
STEADY_SECONDS = 30.0  # a host server that has run this long starts again with the first wait
IDLE_SECONDS = 5.0  # how long it is kept without a host: the next one then starts at once
# what it has for ending all hosts when the agent leaves; the supervisor gives the agent twelve
STOP_SECONDS = 7.0
FOLDERS_PER_SYNC_MAX = 256  # as the API takes


class HostServerChild:
    """The host server of this machine. `env` is all that it has; `folder` holds the hosts'
    folders."""

    def __init__(self, folder: Path, env: Mapping[str, str], clock: RealClock) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._disks = DiskStore(folder.parent / DISKS_FOLDER)
        self._env = dict(env)
        self._clock = clock
        # Found by its name even when the agent died between starting it and noting its pid.
        self._name = f"host-server-{_digest(str(folder.resolve()))}"
        # One with another environment (the API's address, the token) is useless and is replaced.
        self._fence = int(_digest(repr(sorted(self._env.items()))), 16)
        self._group: Group | None = None
        self._wanted: list[Mapping[str, Any]] = []
        self._listeners = False
        self._started = 0.0
        self._restarts = 0
        self._start_at = float("-inf")
        self._idle_since = float("-inf")
        self._stopping_until: float | None = None

    def adopt(self) -> None:
        """Takes over the server that an earlier agent of this folder left, or ends it."""
        for record in process_group.records(self._folder):
            group = process_group.adopt(record)
            if group is None or record.replica != self._name:
                continue
            if record.fence == self._fence:
                self._group = group
                self._started = self._idle_since = self._clock.monotonic_seconds()
                logger.info("adopted the host server, pid %s", group.pid)
            else:
                process_group.signal_kill(group)
                group.wait_gone(self._clock, process_group.KILL_SECONDS_MAX)

    def folders(self) -> dict[str, list[str]]:
        """Hosts that do not run, and disks, which have a folder: the API says which of them are no
        more."""
        disks = self._disks.keys()[:FOLDERS_PER_SYNC_MAX]
        # An API of an earlier release does not know the word.
        return {"hostFolders": self._idle_folders(), **({"diskFolders": disks} if disks else {})}

    def remove_disks(self, disk_keys: Sequence[str]) -> None:
        for disk_key in disk_keys:
            self._disks.remove(disk_key)

    def _idle_folders(self) -> list[str]:
        active = {item["host"] for item in self._wanted}
        found = sorted(
            path.name
            for path in self._folder.iterdir()
            if path.is_dir() and path.name not in active
        )
        return found[:FOLDERS_PER_SYNC_MAX]

    def follow(
        self, wanted: Sequence[Mapping[str, Any]], gone: Sequence[str], *, listeners: bool
    ) -> None:
        """Carry out the API's answer: `wanted` as it lists the hosts, `gone` are those whose
        folders may go; `listeners`: hosts of this machine listen for ssh, also those that do not
        run."""
        changed = list(wanted) != self._wanted
        self._wanted = list(wanted)
        self._listeners = listeners
        for host_id in gone:
            self._clear(host_id)
        if changed and self._group is not None:
            # The signal that means "look now" to the host server, and nothing to one that is just
            # starting.
            self._group.signal(scripts.POKE_SIGNAL)

    def watch(self) -> None:
        """Starts the server when there are hosts or listeners, again when it dies, and ends it when
        it is idle."""
        now = self._clock.monotonic_seconds()
        if self._group is not None and self._group.exit_code()[0]:
            code = self._group.exit_code()[1]
            if now - self._started > STEADY_SECONDS:
                self._restarts = 0
            wait = RESTART_SECONDS[min(self._restarts, len(RESTART_SECONDS) - 1)]
            self._group = None
            if self._stopping_until is None:
                logger.warning("the host server ended with %s; again in %s s", code, wait)
                self._restarts += 1
                self._start_at = now + wait
            self._stopping_until = None
        if self._wanted or self._listeners:
            self._idle_since = now
            if self._group is None and now >= self._start_at:
                self._start(now)
        elif (
            self._group is not None
            and now - self._idle_since > IDLE_SECONDS
            and self._stopping_until is None
        ):
            process_group.signal_stop(self._group)
            self._stopping_until = now + STOP_SECONDS
        if (
            self._group is not None
            and self._stopping_until is not None
            and now > self._stopping_until
        ):
            process_group.signal_kill(self._group)

    def is_idle(self) -> bool:
        """Return whether no server runs, and none is to be started."""
        return self._group is None and not self._wanted and not self._listeners

    def begin_stop(self) -> None:
        """The agent leaves: every host ends, without its shutdown script, as when a machine is
        switched off."""
        if self._group is not None:
            process_group.signal_stop(self._group)
            self._stopping_until = self._clock.monotonic_seconds() + STOP_SECONDS

    def finish_stop(self) -> None:
        """Waits for the server's end, and ends what it has left."""
        if self._group is not None:
            assert self._stopping_until is not None, "begin_stop comes first"
            left_seconds = max(0.0, self._stopping_until - self._clock.monotonic_seconds())
            if not self._group.wait_gone(self._clock, left_seconds):
                process_group.signal_kill(self._group)
                self._group.wait_gone(self._clock, process_group.KILL_SECONDS_MAX)
            self._group = None
        process_group.remove_record(self._folder, self._name)
        folders = [path for path in self._folder.iterdir() if path.is_dir()]
        ended = [box.end(path, self._clock) for path in folders]
        if folders and not (
            scripts.end_all([path.name for path in folders], folders, self._clock) and all(ended)
        ):
            logger.error("processes of hosts do not end")
        box_space.end(self._folder.parent)

    def _start(self, now: float) -> None:
        argv = python_command("-m", "podyard.workers.host.server", self._name, str(self._folder))
        try:
            self._group = process_group.start(
                self._folder, self._name, self._fence, argv, self._env
            )
        except OSError as error:
            logger.error("the host server cannot be started: %s", error)
            self._start_at = now + RESTART_SECONDS[-1]
            return
        self._started = now

    def _clear(self, host_id: str) -> None:
        folder = self._folder / host_id
        if folder.parent == self._folder and folder.is_dir():
            box.end(folder, self._clock)
            scripts.end_all([host_id], [folder], self._clock)
            _open_folders(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _open_folders(top: Path) -> None:
    """Lets us look into every folder: those of an overlay, and what users close, are closed to all
    but root."""
    for folder, names, _ in os.walk(top):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
