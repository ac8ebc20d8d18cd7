"""Units of work: atomic, not hurt by each other's failures, answered after the commit; the same on
both databases."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import DBAPIError

from podyard import migrations
from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.db.store import outbox
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.base import outbox as outbox_table
from tests.waiting import patient


def _count(database: Database) -> int:
    return database.read(
        lambda uow: int(uow.execute(select(func.count()).select_from(outbox_table)).scalar() or 0)
    )


def _put(uow: UnitOfWork, name: str = "q") -> None:
    outbox.put(uow, name, "task", ["1"])


def test_a_unit_that_raises_writes_nothing(database: Database) -> None:
    def body(uow: UnitOfWork) -> None:
        _put(uow)
        raise PodyardError(Code.ABORTED, "no")

    with pytest.raises(PodyardError, match="no"):
        database.run(body)
    assert _count(database) == 0


def test_a_rehearsal_tells_what_would_be_and_writes_nothing(database: Database) -> None:
    def body(uow: UnitOfWork) -> int:
        _put(uow)
        return int(uow.execute(select(func.count()).select_from(outbox_table)).scalar() or 0)

    assert [database.rehearse(body) for _ in range(2)] == [1, 1]
    assert _count(database) == 0

    def failing(uow: UnitOfWork) -> None:
        raise PodyardError(Code.ABORTED, "no")

    with pytest.raises(PodyardError, match="no"):
        database.rehearse(failing)


def test_a_failed_unit_does_not_hurt_its_neighbours(database: Database) -> None:
    barrier = threading.Barrier(24)

    def one(index: int) -> bool:
        barrier.wait()

        def body(uow: UnitOfWork) -> None:
            _put(uow)
            if index % 3 == 0:
                raise PodyardError(Code.ABORTED, "no")

        try:
            database.run(body)
        except PodyardError:
            return False
        return True

    with ThreadPoolExecutor(24) as pool:
        written = sum(pool.map(one, range(24)))
    assert written == 16
    assert _count(database) == 16


def test_a_result_comes_after_the_commit(database: Database) -> None:
    database.run(_put)
    other = Database(database.url, OsClock())
    try:
        assert _count(other) == 1
    finally:
        other.close()


def test_a_read_is_one_snapshot_and_cannot_write(database: Database) -> None:
    def body(uow: UnitOfWork) -> tuple[int, int]:
        count = select(func.count()).select_from(outbox_table)
        before = uow.execute(count).scalar()
        writer = threading.Thread(target=lambda: database.run(_put))
        writer.start()
        writer.join()
        return before, uow.execute(count).scalar()  # type: ignore[return-value]

    assert database.read(body) == (0, 0)
    assert _count(database) == 1
    with pytest.raises((DBAPIError, sqlite3.OperationalError)):
        database.read(_put)


def test_the_time_is_read_once_per_unit(database: Database, clock: Any) -> None:
    def body(uow: UnitOfWork) -> bool:
        first = uow.now
        clock.advance(5)
        return first == uow.now

    assert database.run(body)


def test_a_unit_inside_a_unit_is_a_bug_on_sqlite(database: Database) -> None:
    if database.is_sqlite:
        with pytest.raises(AssertionError):
            database.run(lambda uow: database.run(_put))


def test_a_closed_database_says_so(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}", OsClock())
    database.close()
    with pytest.raises(PodyardError, match="closed"):
        database.run(_put)


def _writer(url: str, seconds: float, per_second: float, waits: Any) -> None:
    """One of several processes that write at once; reports how long each unit waited."""
    database = Database(url, OsClock())
    found = []
    start = time.monotonic()
    number = 0
    while (due := start + number / per_second) < start + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        before = time.monotonic()
        database.run(
            lambda uow: uow.execute(insert(outbox_table).values(_ROW | {"created": uow.real_now}))
        )
        found.append(time.monotonic() - before)
        number += 1
    database.close()
    waits.put(found)


# A unit that waits longer than that costs the loop its lease. SQLite's own busy handler alone waits
# for seconds.
LOOP_LEASE_SECONDS = 3.0
_ROW: dict[str, Any] = {"queue": "q", "task": "t", "args": [], "sent": None}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_no_unit_waits_long_when_processes_write_at_once(processes: int, tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'podyard.db'}", OsClock())
    migrations.upgrade(database)
    context = multiprocessing.get_context("spawn")
    waits = context.Queue()
    arguments = (database.url, 3.0, 200 / processes, waits)
    writers = [context.Process(target=_writer, args=arguments) for _ in range(processes)]
    for writer in writers:
        writer.start()
    found = sorted(wait for _ in writers for wait in waits.get(timeout=patient(60)))
    for writer in writers:
        writer.join()
    assert _count(database) == len(found)
    database.close()
    print(
        f"{processes} processes: {len(found)} units, p99 "
        f"{found[-len(found) // 100] * 1000:.1f} ms, ",
        end="",
    )
    print(f"longest {found[-1] * 1000:.1f} ms")
    assert found[-1] < LOOP_LEASE_SECONDS


def test_a_wrong_statement_is_not_taken_for_an_outage(database: Database) -> None:
    wrong = text("SELECT nonsense FROM nowhere")
    for use in (database.read, database.run):
        with pytest.raises(DBAPIError):
            use(lambda uow: uow.execute(wrong))
