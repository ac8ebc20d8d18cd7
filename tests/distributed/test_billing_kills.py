"""kill -9 at every named point between the stop of a node and its invoice, on both databases:
whatever dies, the same invoice comes out, byte for byte, and the ledger has it once. `computing` is
the read that a closing is computed in: what comes after it is written in a separate unit."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import func, select

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock, RealTime
from podyard.base.errors import PodyardError
from podyard.base.rng import Streams
from podyard.control.billing import closing
from podyard.control.compute import nodes
from podyard.db.engines.direct_statements import DirectConnection
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.billing import invoices, ledger_entries, ledger_transactions, usage_events
from tests.builders import Play

MADE, STOPPED, OVER = (
    RealTime.from_rfc3339(text)
    for text in ("2026-03-30T00:00:00Z", "2026-03-30T11:59:59.5Z", "2026-04-01T00:00:00Z")
)
_STOP_TABLES = ("operations", "nodes", "state_changes", "usage_events", "timers")
_CLOSE_TABLES = (
    "computing", "card_prices", "ledger_transactions", "ledger_entries", "invoices",
    "invoice_records",
    "billing_accounts", "timers",
)  # fmt: skip
POINTS = [
    f"{side} {table} of {phase}"
    for phase, tables in (
        ("stop", (*_STOP_TABLES, "commit")),
        ("close", (*_CLOSE_TABLES, "commit")),
    )
    for table in tables
    for side in ("before", "after")
]
Make = Callable[[], str]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def make(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Make]:
    """Makes databases in which a node is READY: copies of one."""
    folder, count = tmp_path_factory.mktemp("kills"), iter(range(10_000))
    if request.param == "sqlite":
        template = folder / "template.db"
        _prepare(f"sqlite:///{template}")

        def make() -> str:
            copy = folder / f"{next(count)}.db"
            shutil.copy(template, copy)
            return f"sqlite:///{copy}"

        yield make
        return
    import psycopg

    server = request.getfixturevalue("postgresql_url")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE kills")
        _prepare(f"{server}/kills")

        def make_copy() -> str:
            name = f"kills{next(count)}"
            connection.execute(f"CREATE DATABASE {name} TEMPLATE kills")  # type: ignore[arg-type]
            return f"{server}/{name}"

        yield make_copy


def _prepare(url: str) -> None:
    clock = ManualClock(MADE)
    database = Database(url, clock, Streams(0))
    migrations.upgrade(database)
    database.run(lambda uow: platform_clock.set_up(uow, ClockMode.SYSTEM))
    Play(database, clock).create("n")
    database.close()


def _live(
    url: str, start: RealTime, seed: int, arm: Callable[[Database, str], None] = lambda *_: None
) -> Database:
    """From the stop of the node, unless it is over already, to the invoice."""
    clock = ManualClock(start)
    database = Database(url, clock, Streams(seed))
    play = Play(database, clock)
    if start < OVER:
        arm(database, "stop")
        try:
            play.run(nodes.stop, "n")
        except PodyardError as error:
            # it was stopped already
            assert "node is ST" in error.message or "STOP" in error.message, error.message
    play.turn(10)
    if clock.now() < OVER:
        clock.advance(OVER.seconds_since(clock.now()))
        arm(database, "close")
    play.turn()
    return database


def _die(point: str) -> Callable[[Database, str], None]:
    """Makes this process kill itself at the named point."""
    side, table, _, wanted = point.split()
    armed: list[str] = []

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def at(name: str, act: Callable[[], Any]) -> Any:
        hit = bool(armed) and armed[0] == wanted and name == table
        if hit and side == "before":
            kill()
        result = act()
        if hit:
            kill()
        return result

    insert, update, command = UnitOfWork.insert, UnitOfWork.update, DirectConnection.command

    def on_sqlite(self: DirectConnection, text: str) -> None:
        at("commit" if text == "COMMIT" else "", lambda: command(self, text))

    prepare = closing.prepare_due
    closing.prepare_due = lambda *a: at("computing", lambda: prepare(*a))
    UnitOfWork.insert = lambda self, t, row, **how: at(t.name, lambda: insert(self, t, row, **how))  # type: ignore[method-assign]
    insert_all = UnitOfWork.insert_all
    UnitOfWork.insert_all = lambda self, t, rows: at(t.name, lambda: insert_all(self, t, rows))  # type: ignore[method-assign]
    UnitOfWork.update = lambda self, t, *a, **how: at(t.name, lambda: update(self, t, *a, **how))  # type: ignore[method-assign]
    DirectConnection.command = on_sqlite  # type: ignore[method-assign]

    def arm(database: Database, phase: str) -> None:
        armed[:] = [phase]
        if not database.is_sqlite:
            committing = database.engine.dialect.do_commit
            database.engine.dialect.do_commit = lambda c: at("commit", lambda: committing(c))  # type: ignore[method-assign]

    return arm


# Children are copies of a process that has only these modules: this one may have threads by now, of
# JAX for example.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


def _live_until(point: str, url: str) -> None:
    _live(url, STOPPED, 1, _die(point))


def _killed_at(point: str, url: str) -> None:
    child = _PROCESSES.Process(target=_live_until, args=(point, url))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL, f"nothing happens at {point}"


def _issued(database: Database) -> bytes:
    (row,) = database.read(lambda uow: uow.all(select(invoices)))
    document: bytes = row["document"]
    return document


@pytest.fixture(scope="module")
def undisturbed(make: Make) -> bytes:
    database = _live(make(), STOPPED, 1)
    document = _issued(database)
    database.close()
    # READY for twelve hours, without the ten seconds of its creation
    assert b'"seconds":43190' in document
    return document


@pytest.mark.parametrize("point", POINTS)
def test_whatever_is_killed_the_invoice_is_the_same(
    make: Make, undisturbed: bytes, point: str
) -> None:
    url = make()
    _killed_at(point, url)
    later = STOPPED if point.endswith("stop") else OVER.plus_seconds(3600)
    database = _live(url, later, 2)
    try:
        assert _issued(database) == undisturbed
        count = select(func.count()).select_from(ledger_transactions)
        assert database.read(lambda uow: uow.execute(count).scalar()) == 1
        booked = database.read(lambda uow: uow.all(select(ledger_entries)))
        assert len(booked) >= 2
        assert sum(row["amount"].parts for row in booked) == 0
        states = database.read(
            lambda uow: uow.all(select(usage_events).order_by(usage_events.c.seq))
        )
        assert [row["state"] for row in states] == ["CREATING", "READY", "STOPPING", "STOPPED"]
    finally:
        database.close()
