"""Months that end are computed next to the loop: its lease and everything else go on meanwhile. So
are, once, the records of invoices that an earlier version has issued without."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, wait
from functools import partial

from podyard.base.clock import PlatformTime, RealClock
from podyard.base.errors import PodyardError
from podyard.control.billing import closing, invoice_records
from podyard.control.billing.closing import Prepared
from podyard.db.store.condition import DATABASE_ERRORS
from podyard.db.store.unit_of_work import Database
from podyard.pricing.current_card import default_rate_card

logger = logging.getLogger(__name__)

# Well inside the loop's lease and the clock's horizon. Most bills are there by then, and closed in
# the same round.
PATIENCE_SECONDS = 0.2
LOOK_SECONDS = 0.02  # how often the clock is looked at meanwhile


class Closings:
    """One bill at a time, in a thread. Nothing of it is kept: who dies computes it again."""

    def __init__(self, database: Database, clock: RealClock, actor: str) -> None:
        self._database = database
        self._clock = clock
        self._actor = actor
        self._project = ""
        self._future: Future[Prepared | None] | None = None

    def of(self, project: str, due: PlatformTime) -> tuple[bool, Prepared | None]:
        """Return whether the account's bill is computed, and the bill (None: its month is not over
        when its timer is due). One that is not there after a short while is asked for again later;
        it is handed out once. Raises what computing it has raised."""
        if self._future is None:
            self._begin(project, due)
        began = self._clock.monotonic_seconds()
        future = self._future
        assert future is not None
        while not future.done() and self._clock.monotonic_seconds() - began < PATIENCE_SECONDS:
            wait([future], LOOK_SECONDS)
        if not future.done():
            return False, None
        mine, self._future = self._project == project, None
        return (True, future.result()) if mine else self.of(project, due)

    def _begin(self, project: str, due: PlatformTime) -> None:
        future: Future[Prepared | None] = Future()
        self._project, self._future = project, future

        def work() -> None:
            try:
                known = self._database.run(closing.known_events, actor=self._actor)
                found = self._database.read(
                    lambda uow: closing.prepare_due(uow.at(due), project, known)
                )
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(found)

        threading.Thread(target=work, name="podyard-closing", daemon=True).start()


def keep_older_records(database: Database, actor: str) -> None:
    """Keeps the records of invoices of earlier versions. One whose records cannot be computed, or
    are not those of its document, is logged, and tried again by the next process."""
    failed: set[tuple[str, str]] = set()
    while wanted := set(database.read(partial(invoice_records.older, past=len(failed)))) - failed:
        for project, month in sorted(wanted):
            try:
                read = partial(
                    invoice_records.read_older,
                    card=default_rate_card(),
                    project=project,
                    month=month,
                )
                made = database.read(read)
                database.run(
                    partial(invoice_records.keep_older, project=project, month=month, chunks=made),
                    actor=actor,
                )
            except (PodyardError, *DATABASE_ERRORS) as error:
                failed.add((project, month))
                logger.warning(
                    "the records of invoice %s-%s are not kept: %s", project, month, error
                )
