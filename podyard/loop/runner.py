"""The loop's process."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from types import FrameType

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.heartbeat import Heartbeat
from podyard.base.pokes import Pokes
from podyard.base.rng import secret_token
from podyard.db.store import leases
from podyard.db.store.condition import DATABASE_ERRORS
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet import Fleet
from podyard.domain.ports import Send
from podyard.loop.closings import keep_older_records
from podyard.loop.retention import keep_pruning
from podyard.loop.steps import ACTOR, Loop
from podyard.settings import Settings

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.1  # what a waiting request feels; an idle round is a handful of reads
FOLLOWER_SECONDS = 0.5  # how often a loop that does not lead asks again
# of the limit for heartbeats: a loop at rest must not count as one that hangs
REST_SHARE_MAX = 0.25
STOP_SECONDS_MAX = 1.0  # for the unit that the retention is in
# after a round that failed (the database was away): not a busy loop of errors
FAILED_ROUND_SECONDS = 1.0


def main(
    settings: Settings, fleet: Fleet, send: Send, clock: RealClock, heartbeat: Heartbeat
) -> None:
    """Runs until SIGTERM or SIGINT, and beats in each round. A round that the database cut short is
    logged, and
    the next one looks again; any other failure ends the process, and the supervisor starts it
    again."""
    database = Database(settings.database_url, clock, leases=settings.leases, server_time=True)
    owner = f"{socket.gethostname()}/{os.getpid()}/{heartbeat.mark or secret_token(6)}"
    loop = Loop(database, fleet, send, clock, owner)
    stopping = threading.Event()
    pokes: Pokes | None = None

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()
        if pokes is not None:
            pokes.wake()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopping.is_set() and not _is_prepared(database):
        heartbeat.beat()
        stopping.wait(TICK_SECONDS)
    older = threading.Thread(
        target=keep_older_records, args=(database, ACTOR), name="podyard-records", daemon=True
    )
    pruning = threading.Thread(
        target=keep_pruning,
        args=(database, settings, stopping),
        name="podyard-retention",
        daemon=True,
    )
    if not stopping.is_set():
        follow(database, heartbeat.ended)
        older.start()
        pruning.start()
    rest_seconds_max = REST_SHARE_MAX * settings.heartbeat_seconds
    with database.listen() as found:
        pokes = found
        while not stopping.is_set():
            heartbeat.beat()
            try:
                wait_seconds = TICK_SECONDS if loop.round() else FOLLOWER_SECONDS
            except PodyardError as error:
                logger.warning("a round was cut short: %s", error.message)
                if error.code is not Code.UNAVAILABLE:
                    raise
                wait_seconds = FAILED_ROUND_SECONDS
            stopping.wait(wait_seconds)
            if pokes is not None and (rest_seconds := min(loop.rest_seconds(), rest_seconds_max)):
                pokes.wait(rest_seconds)
    loop.stop()
    if pruning.is_alive():
        pruning.join(STOP_SECONDS_MAX)
    database.close()


def follow(database: Database, ended: str) -> None:
    """If the loop with that mark led, nobody need wait until its lease lapses: it has ended, and
    writes no more."""
    if ended:
        database.run(lambda uow: leases.release(uow, leases.LOOP_LEADER, ended), actor=ACTOR)


def _is_prepared(database: Database) -> bool:
    """Return whether the API has made the schema and the clock: at the very first start the loop is
    there before them."""
    try:
        return database.read(lambda uow: uow.clock is not None)
    except DATABASE_ERRORS:
        return False
