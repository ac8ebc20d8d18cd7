"""Sends the outbox's messages through Celery; without a broker, does what they ask for on this
machine."""

from __future__ import annotations

import logging
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podyard.base import pokes
from podyard.base.errors import Code, PodyardError
from podyard.base.interpreter import python_command
from podyard.db.store.outbox import BACKGROUND

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger(__name__)

# messages of background work on this machine; one too many is lost, and the loop sends it again
WAITING_MAX = 200


class Dispatcher:
    """The loop's `Send`. Celery is imported at the first message. Raises UNAVAILABLE while the
    broker is away.
    `poked`: where the agent listens whose Celery worker takes all messages, once there is one."""

    def __init__(self, broker_url: str, poked: Path | None = None) -> None:
        self._broker_url = broker_url
        self._poked = poked
        self._app: Celery | None = None
        self._here: _Here | None = None

    def __call__(self, queue: str, task: str, args: Sequence[str]) -> None:
        if self._broker_url.startswith("memory:"):
            if queue != BACKGROUND:
                # nobody outside this process could receive it; the agent's own polling finds the
                # work
                return
            if self._here is None:
                self._here = _Here()
            self._here.put(task, args)
            return
        from kombu.exceptions import OperationalError

        if self._app is None:
            from podyard.workers.tasks.app import make_app

            self._app = make_app(self._broker_url)
        try:
            self._app.send_task(task, args=list(args), queue=queue, ignore_result=True)
        except (OperationalError, OSError) as error:
            raise PodyardError(Code.UNAVAILABLE, f"the broker is away: {error}") from None
        if self._poked is not None:
            pokes.send(self._poked)


class _Here:
    """Background work without a broker: one piece after the other, each in a new process, since the
    loop must
    keep its lease while an export is made. The thread and the process end with the loop."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[str, ...]] = queue.SimpleQueue()
        # what waits: the loop sends again what has not had its turn yet
        self._told: set[tuple[str, ...]] = set()
        threading.Thread(target=self._run, name="background", daemon=True).start()

    def put(self, task: str, args: Sequence[str]) -> None:
        message = (task, *args)
        if message not in self._told and len(self._told) < WAITING_MAX:
            self._told.add(message)
            self._waiting.put(message)

    def _run(self) -> None:
        while True:
            message = self._waiting.get()
            self._told.discard(message)
            command = python_command("-m", "podyard.workers.tasks.background", *message)
            try:
                with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                    process.wait()
            except OSError as error:
                logger.warning("%s waits for the next message: %s", message, error)
