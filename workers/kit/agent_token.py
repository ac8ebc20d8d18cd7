"""The token of an agent that has joined: kept in its identity file, and changed each day.

The host server reads it from the same file. A token that was changed works for a little longer (the
API's OVERLAP_SECONDS), so that neither has to stop for it, and an agent that dies before it has
written the new one goes on with the old one.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from podyard.base import agent_identity
from podyard.base.clock import NANOS_PER_SECOND, RealClock
from podyard.base.errors import Code, PodyardError
from podyard.workers.kit.http_client import JsonClient

logger = logging.getLogger(__name__)

# what a stolen token is worth at most, unless the thief renews it: then two are seen
ROTATION_SECONDS = 86_400.0
RETRY_SECONDS = 60.0  # until a change that failed is tried again; the API's overlap is an hour


class AgentToken:
    """Call it for the token. Threads may share it."""

    def __init__(
        self, path: Path, clock: RealClock, rotation_seconds: float = ROTATION_SECONDS
    ) -> None:
        self._path = path
        self._clock = clock
        self._rotation_seconds = rotation_seconds
        self._read_at = 0
        self._token = ""
        self._tried = float("-inf")

    def __call__(self) -> str:
        try:
            changed = self._path.stat().st_mtime_ns
        except OSError:
            return self._token  # the folder is gone: the API says what is wrong with the last one
        if changed != self._read_at:
            identity = agent_identity.load(self._path)
            if identity is not None:
                self._token, self._read_at = identity.token, changed
        return self._token

    def renew(self, api: JsonClient) -> bool:
        """Changes the token if it is old; whether it did. What fails is tried again later."""
        identity = agent_identity.load(self._path)
        now = self._clock.monotonic_seconds()
        if identity is None or now - self._tried < RETRY_SECONDS:
            return False
        age_seconds = (self._clock.now().nanos - identity.issued_nanos) / NANOS_PER_SECOND
        if 0 <= age_seconds < self._rotation_seconds:
            return False
        self._tried = now
        try:
            token = str(api.call("POST", f"/podyard/v1/agents/{identity.agent}:rotate")["token"])
            issued = self._clock.now().nanos
            agent_identity.save(
                self._path, dataclasses.replace(identity, token=token, issued_nanos=issued)
            )
        except PodyardError as error:
            if error.code is not Code.UNAVAILABLE:
                logger.warning("the agent's token is not renewed: %s", error.message)
            return False
        except OSError as error:
            logger.warning("the agent's new token cannot be written: %s", error)
            return False
        return True
