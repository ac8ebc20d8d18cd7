"""The environments of hosts: which one a runtime version has here, made at the first host that
needs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.hardware.software import Software, software_of
from podyard.programs import environments
from podyard.settings import RUNTIMES_AUTO, RUNTIMES_OFF

logger = logging.getLogger(__name__)

# after a failure, such as a network that is down: hosts meanwhile start without
AGAIN_SECONDS = 60.0


class HostSoftware:
    """Of one host server. `mode`: PODYARD_RUNTIMES; `folder`: of all environments."""

    def __init__(self, mode: str, folder: Path, clock: RealClock) -> None:
        self._mode = mode
        self._folder = folder
        self._clock = clock
        self._leaving = threading.Event()
        self._making: dict[Software, asyncio.Task[None]] = {}
        self._progress: dict[Software, str] = {}
        self._failed: dict[Software, tuple[float, str]] = {}

    def find(self, version: str) -> tuple[Path | None, str]:
        """(environment of a runtime version, or None for Podyard's own Python; the sentence for
        users)."""
        choice = software_of(version, sys.version_info.minor)
        if choice.software is None:
            return None, choice.sentence()
        if self._mode != RUNTIMES_OFF and environments.is_made(choice.software, self._folder):
            return environments.path_of(choice.software, self._folder), choice.sentence()
        _, why = self._failed.get(choice.software, (0.0, ""))
        if not why:
            command = f"`podyard runtime install {version}` gives it {choice.software.title}"
            why = f"PODYARD_RUNTIMES is {self._mode}" if self._mode == RUNTIMES_OFF else command
        return None, f"{version}: the Python of Podyard here ({why})"

    def begin(self, version: str) -> asyncio.Task[None] | None:
        """Return what makes the environment, if it has to be made and may be: hosts of one version
        share it."""
        choice = software_of(version, sys.version_info.minor)
        software = choice.software
        if software is None or choice.optional or self._mode != RUNTIMES_AUTO:
            return None
        if environments.is_made(software, self._folder):
            return None
        failed_at, _ = self._failed.get(software, (float("-inf"), ""))
        if self._clock.monotonic_seconds() - failed_at < AGAIN_SECONDS:
            return None
        if software not in self._making:
            self._making[software] = asyncio.create_task(self._make(software))
        return self._making[software]

    def progress(self, version: str) -> str:
        """Return how far the making is; empty if nothing is being made."""
        software = software_of(version, sys.version_info.minor).software
        return "" if software is None else self._progress.get(software, "")

    async def leave(self) -> None:
        """Ends what is being made."""
        self._leaving.set()
        await asyncio.gather(*self._making.values(), return_exceptions=True)

    async def _make(self, software: Software) -> None:
        def tell(text: str) -> None:
            self._progress[software] = text

        tell(f"{software.title}: making an environment")
        try:
            await asyncio.to_thread(
                environments.make, software, self._folder, self._clock, tell, self._leaving
            )
            self._failed.pop(software, None)
        except OSError as error:
            logger.error("%s", error)
            self._failed[software] = (self._clock.monotonic_seconds(), str(error))
        finally:
            self._progress.pop(software, None)
            self._making.pop(software, None)


async def wait_for(making: asyncio.Task[None], leaving: asyncio.Event) -> None:
    """Until the environment is made or cannot be, or its host leaves; the making goes on then, for
    others."""
    left = asyncio.create_task(leaving.wait())
    try:
        await asyncio.wait({making, left}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await left
