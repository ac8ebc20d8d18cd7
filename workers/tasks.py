"""The tasks. Short and idempotent; what they do could be done by the next poll as well."""

from __future__ import annotations

import contextlib
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
    """Sends what a budget has to tell, if that is due. A worker that has no database leaves it: the loop asks again."""
    url = os.environ.get("PODYARD_DATABASE_URL")
    if url is None:
        return
    from podyard.base.clock import OsClock
    from podyard.db.unit_of_work import Database
    from podyard.workers.webhooks import deliver

    with contextlib.closing(Database(url, OsClock())) as database:
        deliver(database, webhook_id)


@app.task(name="podyard.make_export")  # type: ignore[untyped-decorator]
def make_export(export_id: str) -> None:
    """Makes the file of an export, if nobody is at it. A worker without the database or the data folder leaves it: the
    loop asks again."""
    url, data = os.environ.get("PODYARD_DATABASE_URL"), os.environ.get("PODYARD_DATA")
    if url is None or data is None:
        return
    from podyard.base.clock import OsClock
    from podyard.db.unit_of_work import Database
    from podyard.pricing.sku import default_rate_card
    from podyard.settings import from_environment
    from podyard.workers.exports import make

    with contextlib.closing(Database(url, OsClock())) as database:
        make(database, from_environment().objects_path, default_rate_card(), export_id)
