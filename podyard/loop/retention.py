"""Removes what is kept for a limited time, next to the loop: an hour's work at a time, in short
units."""

from __future__ import annotations

import logging
import shutil
import threading
from functools import partial

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.db.platform import webhooks
from podyard.db.store.condition import DATABASE_ERRORS
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.views import retention
from podyard.loop.steps import ACTOR
from podyard.settings import Settings

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 3600.0
PAUSE_SECONDS = 0.05  # between two units, so that other writers have their turn
PAST_SLICES_DAYS = 2  # the maps of pods go back for one
DELIVERIES_DAYS = 7  # of real time: to webhooks of projects
UNITS_MAX = 1000  # of one kind in one go: 200,000 rows
SECONDS_PER_DAY = 86_400.0


def keep_pruning(database: Database, settings: Settings, stopping: threading.Event) -> None:
    """Until it is told to stop. What fails is logged, and tried again after the period."""
    while not stopping.is_set():
        try:
            prune(database, settings, stopping)
        except (PodyardError, OSError, *DATABASE_ERRORS) as error:
            logger.warning("what is too old could not be removed: %s", error)
        stopping.wait(PERIOD_SECONDS)


def prune(database: Database, settings: Settings, stopping: threading.Event) -> tuple[int, int]:
    """(operations, jobs whose lines) were removed. Several loops may do it at the same time."""
    now = database.read(lambda uow: uow.now)
    operations = logs = 0
    for _ in range(UNITS_MAX if settings.keep.operations_days else 0):
        before = _before(now, settings.keep.operations_days)
        count = database.run(partial(retention.remove_operations, before=before), actor=ACTOR)
        operations += count
        if count < retention.BATCH_MAX or stopping.wait(PAUSE_SECONDS):
            break
    for _ in range(UNITS_MAX):
        before = _before(now, PAST_SLICES_DAYS)
        count = database.run(partial(retention.remove_past_slices, before=before), actor=ACTOR)
        if count < retention.BATCH_MAX or stopping.wait(PAUSE_SECONDS):
            break
    for _ in range(UNITS_MAX):
        count = database.run(_remove_deliveries, actor=ACTOR)
        if count < retention.BATCH_MAX or stopping.wait(PAUSE_SECONDS):
            break
    # Lines are in files: a machine that does not have them leaves them to one that does.
    for _ in range(UNITS_MAX if settings.keep.logs_days and settings.logs_path.exists() else 0):
        before = _before(now, settings.keep.logs_days)
        keys = database.run(partial(retention.remove_logs, before=before), actor=ACTOR)
        for key in keys:
            shutil.rmtree(settings.logs_path / key, ignore_errors=True)
        logs += len(keys)
        if len(keys) < retention.BATCH_MAX or stopping.wait(PAUSE_SECONDS):
            break
    if operations or logs:
        logger.info("removed %d operations and the lines of %d jobs, as too old", operations, logs)
    return operations, logs


def _remove_deliveries(uow: UnitOfWork) -> int:
    before = uow.real_now.plus_seconds(-DELIVERIES_DAYS * SECONDS_PER_DAY)
    return webhooks.remove_old(uow, before, retention.BATCH_MAX)


def _before(now: PlatformTime, days: int) -> PlatformTime:
    return now.plus_seconds(-days * SECONDS_PER_DAY)
