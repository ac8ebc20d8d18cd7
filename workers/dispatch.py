"""Sends the outbox's messages through Celery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from podyard.base.errors import Code, PodyardError

if TYPE_CHECKING:
    from celery import Celery


class Dispatcher:
    """The loop's `Send`. Celery is imported at the first message. Raises UNAVAILABLE while the broker is away."""

    def __init__(self, broker_url: str) -> None:
        self._broker_url = broker_url
        self._app: Celery | None = None

    def __call__(self, queue: str, task: str, args: Sequence[str]) -> None:
        if self._broker_url.startswith("memory:"):
            return  # nobody outside this process could receive it; the agent's own polling finds the work
        from kombu.exceptions import OperationalError

        if self._app is None:
            from podyard.workers.app import make_app

            self._app = make_app(self._broker_url)
        try:
            self._app.send_task(task, args=list(args), queue=queue, ignore_result=True)
        except (OperationalError, OSError) as error:
            raise PodyardError(Code.UNAVAILABLE, f"the broker is away: {error}") from None
