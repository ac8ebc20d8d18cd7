"""The tasks. Short and idempotent; what they do could be done by the next poll as well."""

from __future__ import annotations

import errno
import os

from podyard.workers.app import app


@app.task(name="podyard.poke_agent")  # type: ignore[untyped-decorator]
def poke_agent(_agent_id: str) -> None:
    """Makes the agent of this machine sync now. An agent that is not there, or is being poked already, needs none."""
    path = os.environ.get("PODYARD_POKE_FIFO")
    if path is None:
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return
        raise
    try:
        os.write(descriptor, b".")
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


@app.task(name="podyard.deliver_webhook")  # type: ignore[untyped-decorator]
def deliver_webhook(webhook_id: str) -> None:
    _do("podyard.deliver_webhook", webhook_id)


@app.task(name="podyard.make_export")  # type: ignore[untyped-decorator]
def make_export(export_id: str) -> None:
    _do("podyard.make_export", export_id)


def _do(task: str, row_id: str) -> None:
    """Background work. A worker without the database or the data folder leaves it: the loop asks again."""
    if "PODYARD_DATABASE_URL" not in os.environ or "PODYARD_DATA" not in os.environ:
        return
    from podyard.settings import from_environment
    from podyard.workers.background import WORK

    WORK[task](from_environment(), row_id)
