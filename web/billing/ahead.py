"""Bills made ahead: a thread of the API process makes those of the largest projects, which the
first page would have to wait for. It goes by small steps and breathes between them while requests
are answered, so that they hardly notice it; once a page waits for that bill, it goes on without."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable

from anyio import to_thread
from fastapi import FastAPI

from podyard.base.errors import PodyardError
from podyard.control.billing import dashboard, kept_bills, snapshots
from podyard.db.billing import usage_events
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import PLATFORM
from podyard.http.context import Platform
from podyard.http.several_units import read_snapshot
from podyard.pricing.current_card import default_rate_card
from podyard.web.billing import turns as billing_turns
from podyard.web.kit.render import templates

PROJECTS_AHEAD = 2  # each takes memory that may never be asked for: half of what is kept at most
EVENTS_LEAST = 2_000  # a bill of fewer is made within the first page's own time
# of real time, for all of them: 1,000,000 events take some 30 s with the breaths
SECONDS_MAX = 120.0
START_SECONDS = 0.5  # the process answers what has waited for it first
BREATH_SECONDS = 0.004  # as long as a step takes: the thread has half of one core
# after so many it goes on, whatever is asked: a yard that is always busy gets its bills, too
BREATHS_MAX = 12
# until the thread is left alone at the end of the process: it sees it within a step
END_SECONDS_MAX = 2.0

logger = logging.getLogger(__name__)


class _Ended(Exception):
    """The application ends, or time is up."""


@contextlib.asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """As long as the application runs."""
    platform: Platform = app.state.platform
    ended = threading.Event()
    threads = to_thread.current_default_thread_limiter()  # those that answer requests

    def is_busy() -> bool:
        return threads.borrowed_tokens > 0

    thread = threading.Thread(
        target=_work, args=(platform, ended, is_busy), name="podyard-bills", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        await to_thread.run_sync(thread.join, END_SECONDS_MAX)


def _work(platform: Platform, ended: threading.Event, is_busy: Callable[[], bool]) -> None:
    if ended.wait(START_SECONDS):
        return
    deadline = platform.clock.monotonic_seconds() + SECONDS_MAX

    def pace(wanted: bool) -> None:
        if platform.clock.monotonic_seconds() > deadline or ended.is_set():
            raise _Ended
        for _ in range(0 if wanted else BREATHS_MAX):
            if ended.wait(BREATH_SECONDS) or not is_busy():
                break

    try:
        with billing_turns.short():
            make_all(platform, pace)
    except _Ended:
        pass
    except PodyardError as error:
        logger.warning("bills are not made ahead: %s", error.message)
    except Exception:
        if not ended.is_set():  # else the database was closed below it
            logger.exception("bills are not made ahead")


def make_all(platform: Platform, pace: kept_bills.Pace) -> None:
    """Make what the first billing page needs: the rate card, its templates, and the largest
    projects' bills."""
    card = default_rate_card()
    for name in templates().list_templates(filter_func=lambda name: name.startswith("billing_")):
        templates().get_template(name)
        pace(False)
    database = platform.database
    projects = database.read(
        lambda uow: usage_events.largest_projects(uow, PROJECTS_AHEAD, EVENTS_LEAST)
    )

    def bill(uow: UnitOfWork, project: str) -> None:
        kept_bills.current(uow, card, project, pace)

    def month(uow: UnitOfWork, project: str) -> None:
        dashboard.month_to_date(uow, snapshots.snapshot(uow, card, PLATFORM, project))

    for project in projects:
        for step in (bill, month):
            read_snapshot(database, lambda uow, step=step, project=project: step(uow, project))  # type: ignore[misc]
            pace(False)
