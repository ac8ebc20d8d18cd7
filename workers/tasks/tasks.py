"""The tasks. Short and idempotent; what they do could be done by the next poll as well."""

from __future__ import annotations

import os

from podyard.base import pokes
from podyard.workers.tasks.app import app


@app.task(name="podyard.poke_agent")  # type: ignore[untyped-decorator]
def poke_agent(_agent_id: str) -> None:
    """Makes the agent of this machine sync now."""
    path = os.environ.get("PODYARD_POKE_FIFO")
    if path is not None:
        pokes.send(path)


@app.task(name="podyard.deliver_webhook")  # type: ignore[untyped-decorator]
def deliver_webhook(webhook_id: str) -> None:
    _do("podyard.deliver_webhook", webhook_id)


@app.task(name="podyard.make_export")  # type: ignore[untyped-decorator]
def make_export(export_id: str) -> None:
    _do("podyard.make_export", export_id)


@app.task(name="podyard.copy_logs")  # type: ignore[untyped-decorator]
def copy_logs(attempt_id: str) -> None:
    _do("podyard.copy_logs", attempt_id)


def _do(task: str, row_id: str) -> None:
    """Background work. A worker without the database or the data folder leaves it: the loop asks
    again."""
    if "PODYARD_DATABASE_URL" not in os.environ or "PODYARD_DATA" not in os.environ:
        return
    from podyard.settings import from_environment
    from podyard.workers.tasks.background import WORK

    WORK[task](from_environment(), row_id)
