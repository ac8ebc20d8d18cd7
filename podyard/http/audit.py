"""The audit log's eye: which requests changed something or were refused, by whom, from where, and
how they ended.

It stands outside of the guard, so that it sees refusals of the guard and of the door too, and
inside of what gives requests their ids. Lines are written in groups
by a thread, at most `WAIT_SECONDS` after the answer: a process that is killed loses those.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podyard.base.clock import RealClock
from podyard.base.errors import PodyardError
from podyard.domain.audit import AuditLine
from podyard.domain.principal import Principal
from podyard.http.guard import CAPABILITY_PREFIX, DOOR, SAFE_METHODS, client_address
from podyard.http.limits import PER_ADDRESS_REFUSED, TokenBuckets

logger = logging.getLogger(__name__)

WAIT_SECONDS = 0.5  # what a kill may cost, and how often the log is written at most
# that wait to be written; a database that stands still for longer loses lines, and the log says so
LINES_MAX = 10_000
GROUP_MAX = 500
PATH_CHARACTERS_MAX = 512
_REFUSED = frozenset({401, 403, 429})


class Audit:
    """Middleware. `lines` takes what is to be kept."""

    def __init__(self, app: ASGIApp, lines: AuditQueue, clock: RealClock) -> None:
        self._app = app
        self._lines = lines
        self._clock = clock
        # A flood of refusals must not fill the database: beyond this only the first ones of an
        # address are kept.
        self._refused = TokenBuckets(PER_ADDRESS_REFUSED, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._see(scope, message["status"])
            await send(message)

        await self._app(scope, receive, send_seen)

    def _see(self, scope: Scope, status: int) -> None:
        principal: Principal | None = scope["state"].get("principal")
        refused = status in _REFUSED
        if not refused:
            if scope["method"] in SAFE_METHODS:
                return
            # Agents and replicas report each second; what they change has its own events.
            if principal is not None and (
                principal.agent_id is not None or principal.attempt_id is not None
            ):
                return
        address = client_address(scope)
        if refused and self._refused.take(address) > 0.0:
            return
        path: str = scope["path"]
        if path.startswith(CAPABILITY_PREFIX):
            path = f"{CAPABILITY_PREFIX}..."  # refused before the token was taken off
        self._lines.put(
            AuditLine(
                at=self._clock.now(),
                actor="" if principal is None else principal.email,
                address=address,
                by_door=DOOR in scope,
                method=scope["method"],
                path=path.replace("\0", "")[:PATH_CHARACTERS_MAX],
                status=status,
                request_id=scope["state"].get("request_id", ""),
            )
        )


class AuditQueue:
    """Lines that wait to be written. `write` stores a group; it may block, and raise
    PodyardError."""

    def __init__(self, write: Callable[[Sequence[AuditLine]], None]) -> None:
        self._write = write
        self._waiting: queue.Queue[AuditLine] = queue.Queue(LINES_MAX)
        self._lost = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, line: AuditLine) -> None:
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._lost += 1

    def close(self) -> None:
        """Writes what waits."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(WAIT_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        while not self._waiting.empty():
            group = [self._waiting.get() for _ in range(min(GROUP_MAX, self._waiting.qsize()))]
            try:
                self._write(group)
            except PodyardError as error:
                logger.error(
                    "%d lines of the audit log could not be written: %s", len(group), error.message
                )
        if self._lost:
            logger.error("%d lines of the audit log were lost: the database took none", self._lost)
            self._lost = 0
