"""Background work: what may be asked for in the queue `background`, by name. Celery's worker runs
it where there is a broker; without one, the loop's process starts this module for each message
(`workers/tasks/dispatch.py`)."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping

from podyard.base import sealing
from podyard.base.clock import OsClock
from podyard.base.contents import Contents
from podyard.base.log_files import LogFiles
from podyard.control.billing import exports
from podyard.control.jobs import log_copies
from podyard.control.platform import webhooks
from podyard.db.store.unit_of_work import Database
from podyard.pricing.current_card import default_rate_card
from podyard.settings import Settings, from_environment
from podyard.workers.tasks.exports import make
from podyard.workers.tasks.log_copies import copy
from podyard.workers.tasks.webhooks import deliver


def deliver_webhook(settings: Settings, webhook_id: str) -> None:
    """Sends what a budget has to tell, if that is due."""
    sealing.use(settings.secrets_key_path, make=False)
    with _database(settings) as database:
        deliver(database, webhook_id)


def make_export(settings: Settings, export_id: str) -> None:
    """Makes the file of an export, if nobody is at it."""
    with _database(settings) as database:
        make(database, settings.objects_path, default_rate_card(), export_id)


def copy_logs(settings: Settings, attempt_id: str) -> None:
    """Copies the logs of an attempt into its job's output."""
    with _database(settings) as database:
        copy(database, LogFiles(settings.logs_path), Contents(settings.contents_path), attempt_id)


def _database(settings: Settings) -> contextlib.closing[Database]:
    return contextlib.closing(Database(settings.database_url, OsClock()))


WORK: Mapping[str, Callable[[Settings, str], None]] = {
    webhooks.TASK: deliver_webhook,
    exports.TASK: make_export,
    log_copies.TASK: copy_logs,
}


def main(task: str, row_id: str) -> None:
    """Does one piece of work. Ends when the process that started it does: the kernel closes the
    pipe's other end."""

    def wait_for_end() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait_for_end, name="parent-pipe", daemon=True).start()
    WORK[task](from_environment(), row_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
