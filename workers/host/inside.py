"""Work of a host in its box: accounts of the people who may log in, disks that
/etc/fstab lists, and units that are enabled."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.domain.host import login_keys
from podyard.workers.box import login as box_login
from podyard.workers.box.box import Box
from podyard.workers.box.plan import USER
from podyard.workers.box.space import run
from podyard.workers.box.unit_commands import BOOT_COMMAND
from podyard.workers.host.disks import HostDisks
from podyard.workers.host.metadata import MetadataSource

logger = logging.getLogger(__name__)


class HostInside:
    """`environment`: of programs of the host."""

    def __init__(
        self,
        folder: Path,
        box: Box,
        source: MetadataSource,
        clock: RealClock,
        environment: Callable[[], Mapping[str, str]],
    ) -> None:
        self._box = box
        self._source = source
        self._clock = clock
        self._environment = environment
        self._disks = HostDisks(folder, box, source, clock)
        self._people: frozenset[str] = frozenset()
        self._following: asyncio.Future[None] | None = None

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Answer the box's programs, and do what a machine does when it starts."""
        server = await self._disks.serve(listener)
        await self._add_people()
        await self._run(BOOT_COMMAND, "units")
        return server

    def update(self) -> None:
        """The node has changed."""
        self._disks.update()
        self._following = asyncio.ensure_future(self._add_people())

    def wait_ended(self) -> None:
        """After the end of the box."""
        self._disks.wait_ended()

    async def _add_people(self) -> None:
        """Make the accounts that are missing, so that scripts find them before anybody logs in."""
        named = login_keys(self._source.facts, self._clock.now()).keys()
        names = frozenset(named - {USER, box_login.ROOT})
        new, self._people = names - self._people, names
        if new:
            command = (sys.executable, "-I", "-S", box_login.__file__, "add", *sorted(new))
            await self._run(command, "accounts")

    async def _run(self, command: Sequence[str], what: str) -> None:
        entering = self._box.enter(command, as_root=True)
        try:
            await asyncio.to_thread(run, entering, "", what, self._environment())
        except OSError as error:
            logger.warning("%s of the box: %s", what, error)
