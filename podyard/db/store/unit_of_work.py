"""Units of work: one unit is one atomic change, committed here and nowhere else.

A use case is `def f(uow, ...)`. It reads and writes through `uow.execute`, reads the time from
`uow.now`, and puts messages into the outbox; nothing leaves before the commit. What it raises rolls
the unit back and reaches the caller.

PostgreSQL: a unit is a READ COMMITTED transaction in the caller's thread; the use case locks the
rows it decides on. SQLite: each process has one writer thread that runs the waiting units as
savepoints of one BEGIN IMMEDIATE, behind a fair file lock shared by all processes (`file_lock.py`),
since SQLite's own busy handler starves writers for seconds. A unit that fails rolls back its own
savepoint only; a commit that fails fails every unit of the group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Executable, Insert, Table, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import InterfaceError, OperationalError

from podyard.base import pokes
from podyard.base.clock import ClockMode, PlatformClock, PlatformTime, RealClock, RealTime
from podyard.base.errors import Code, PodyardError
from podyard.base.rng import Streams
from podyard.db.engines.direct_statements import DirectConnection
from podyard.db.engines.driver import insert_statement, update_statement
from podyard.db.engines.engines import SQLITE_BUSY_MILLISECONDS, writer_and_reader
from podyard.db.engines.file_lock import FairFileLock
from podyard.db.engines.server_time import ServerTime
from podyard.db.store import state_guard
from podyard.db.store.condition import busy, explain
from podyard.db.tables import base as tables
from podyard.settings import Leases

T = TypeVar("T")

# a group this large is long past the point where the shared fsync costs nothing per unit
GROUP_UNITS_MAX = 64
# a group of two or more, smaller than the one before, waits this long for each next
GROUP_HOLD_MILLISECONDS = 1.0
DATA_VERSION = "PRAGMA data_version"  # sqlite.org/pragma.html#pragma_data_version
# PostgreSQL deadlocks and serialization failures; each retry sees the other's commit
UNIT_RETRIES_MAX = 5
# a caller that waits longer than this for the writer is told UNAVAILABLE
UNIT_WAIT_SECONDS_MAX = 30.0


# Statements that are asked often are made once: SQLAlchemy compiles one for as long as it is the
# same object.
_CLOCK = select(tables.clock)
_CLOCK_LOCKED = _CLOCK.with_for_update(read=True)


class Stale(PodyardError):
    """A row is no longer as it was read. Where nobody catches it, the unit is repeated."""

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(
            Code.ABORTED, f"{kind} {key} has changed meanwhile; read it again and retry"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (PodyardError, (self.code, self.message))


@dataclasses.dataclass
class UnitOfWork:
    """The handle that a use case works through. Valid only while the unit runs."""

    connection: Connection | DirectConnection
    real_now: RealTime
    streams: Streams
    actor: str
    writable: bool
    leases: Leases
    via: str = ""  # the version of Google's API that asks; empty: nobody of its clients
    # what the units of one transaction need not read again
    group: dict[str, PlatformClock] | None = None

    @cached_property
    def clock(self) -> PlatformClock:
        """The platform clock's row, read once per unit (PostgreSQL: locked FOR SHARE when the unit
        may write), and once for all units of a group, which hold the database's only write lock
        together."""
        if self.group is not None and "clock" in self.group:
            return self.group["clock"]
        locks = self.writable and self.connection.dialect.name == "postgresql"
        row = self.connection.execute(_CLOCK_LOCKED if locks else _CLOCK).mappings().one_or_none()
        if row is None:
            raise PodyardError(
                Code.FAILED_PRECONDITION,
                "the platform clock has not been set up: run the migrations",
            )
        found = clock_from_row(dict(row))
        if self.group is not None:
            self.group["clock"] = found
        return found

    def keep_clock(self, written: PlatformClock) -> None:
        """The clock's row was written: this unit and those after it in its group go by what it says
        now."""
        self.__dict__.pop("now", None)
        self.__dict__["clock"] = written
        if self.group is not None:
            self.group["clock"] = written

    def version_of_others(self) -> int | None:
        """As `Database.version` in a unit that writes, but it changes only when another process
        commits."""
        if self.connection.dialect.name != "sqlite":
            return None
        return int(self.connection.exec_driver_sql(DATA_VERSION).scalar_one())

    @cached_property
    def now(self) -> PlatformTime:
        """Platform time, read once per unit."""
        return self.clock.now(self.real_now)

    def at(self, moment: PlatformTime) -> UnitOfWork:
        """The same unit with its platform time set: a timer's unit happens at the timer's due
        time."""
        self.__dict__["now"] = moment
        return self

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        state_guard.check(statement, parameters)
        return self.connection.execute(statement, parameters)

    def insert(self, table: Table, row: Mapping[str, Any], *, by_transition: bool = False) -> None:
        """Inserts one row. On SQLite straight through the driver: half of what SQLAlchemy takes for
        it."""
        if not by_transition:
            state_guard.check_names(table.name, row)
        if self.connection.dialect.name != "sqlite":
            self.connection.execute(_insert(table), row)
            return
        sql, columns, defaults = insert_statement(table, tuple(row), self.connection.dialect)
        values = [row[name] if bind is None else bind(row[name]) for name, bind in columns]
        values += defaults
        self._cursor().execute(sql, values)

    def insert_all(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts rows of the same columns: on PostgreSQL in one statement."""
        if self.connection.dialect.name != "sqlite":
            self.execute(_insert(table), rows)
            return
        for row in rows:
            self.insert(table, row)

    def update(
        self,
        table: Table,
        row: Mapping[str, Any],
        values: Mapping[str, Any],
        *,
        by_transition: bool = False,
    ) -> bool:
        """Sets columns of the one row that has the values of `row`; False when there is none.
        Without values nothing is asked or written."""
        if not values:
            return True
        if not by_transition:
            state_guard.check_names(table.name, values)
        if self.connection.dialect.name != "sqlite":
            statement = (
                update(table)
                .where(*(table.c[name] == value for name, value in row.items()))
                .values(values)
            )
            return bool(self.connection.execute(statement).rowcount)
        sql, binds = update_statement(table, tuple(values), tuple(row), self.connection.dialect)
        given = (*values.values(), *row.values())
        bound = [
            value if bind is None else bind(value) for value, bind in zip(given, binds, strict=True)
        ]
        cursor = self._cursor()
        cursor.execute(sql, bound)
        return int(cursor.rowcount) > 0

    def _cursor(self) -> DBAPICursor:
        driver = self.connection.connection.dbapi_connection
        assert driver is not None
        return driver.cursor()

    def first(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        row = self.execute(statement, parameters).mappings().first()
        return None if row is None else dict(row)

    def all(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> list[Mapping[str, Any]]:
        return [dict(row) for row in self.execute(statement, parameters).mappings()]


@cache
def _insert(table: Table) -> Insert:
    return insert(table)


def clock_from_row(row: Mapping[str, Any]) -> PlatformClock:
    return PlatformClock(
        mode=ClockMode(row["mode"]),
        anchor_platform=row["anchor_platform"],
        anchor_real=row["anchor_real"],
        running=row["running"],
        rate_millionths=row["rate_millionths"],
        target=row["target"],
        fault_rules=row["fault_rules"],
    )


@dataclasses.dataclass
class _Waiting:
    body: Callable[[UnitOfWork], Any]
    actor: str
    via: str
    future: Future[Any]


class _Rehearsed(Exception):
    """Takes a unit back that was only tried."""


class Database:
    """One database, SQLite or PostgreSQL. Thread-safe. `close` ends the writer thread.

    `leases`: what its units of work judge silence by; every process of one Podyard has the same.
    `server_time`: units on PostgreSQL go by its server's clock, not by `real_clock`.
    """

    def __init__(
        self,
        url: str,
        real_clock: RealClock,
        streams: Streams | None = None,
        leases: Leases | None = None,
        *,
        server_time: bool = False,
    ) -> None:
        self.url = url
        self.leases = leases or Leases()
        self._streams = streams or Streams()
        self._parsed = make_url(url)
        self.is_sqlite = self._parsed.get_backend_name() == "sqlite"
        by_server = server_time and not self.is_sqlite
        self._now = (
            ServerTime(real_clock).now if by_server else lambda _connection: real_clock.now()
        )
        self.engine, self._reader = writer_and_reader(url)
        self._writer = _SqliteWriter(self) if self.is_sqlite else None
        self._peeks = threading.local()
        self._peeking: list[sqlite3.Connection] = []

    def run(self, body: Callable[[UnitOfWork], T], *, actor: str = "podyard", via: str = "") -> T:
        """Runs `body` as one unit of work and returns its result after the commit.

        Raises what `body` raises (nothing is then written); UNAVAILABLE when the database does not
        answer.
        """
        if self._writer is not None:
            return _result(self._writer.enqueue(body, actor, via))
        return self._run_postgresql(body, actor, via)

    def enqueue(
        self, body: Callable[[UnitOfWork], T], *, actor: str, via: str = ""
    ) -> Future[T] | None:
        """As `run`, for who must not wait: on SQLite the future of the result, else None. A future
        that can still be cancelled has not begun."""
        return None if self._writer is None else self._writer.enqueue(body, actor, via)

    def run_together(
        self, bodies: Sequence[Callable[[UnitOfWork], T]], *, actor: str = "podyard"
    ) -> list[T | PodyardError]:
        """Runs units that may share a commit, in their order; the result of each, or how it was
        refused."""
        futures = [self.enqueue(body, actor=actor) for body in bodies]
        results: list[T | PodyardError] = []
        for body, future in zip(bodies, futures, strict=True):
            try:
                results.append(self.run(body, actor=actor) if future is None else _result(future))
            except PodyardError as error:
                results.append(error)
        return results

    def rehearse(
        self, body: Callable[[UnitOfWork], T], *, actor: str = "podyard", via: str = ""
    ) -> T:
        """Return what `run` would return or raise; nothing of it is kept."""
        results: list[T] = []

        def unit(uow: UnitOfWork) -> None:
            results.append(body(uow))
            raise _Rehearsed

        try:
            self.run(unit, actor=actor, via=via)
        except _Rehearsed:
            return results[-1]
        raise AssertionError("unreachable")

    def read(self, body: Callable[[UnitOfWork], T], *, actor: str = "podyard") -> T:
        """Runs `body` on one consistent snapshot; it cannot write. Raises UNAVAILABLE when the
        database does not
        answer."""
        try:
            with self._reader.connect() as connection:
                if not self.is_sqlite:
                    return body(self._unit(connection, actor, writable=False))
                direct = DirectConnection(connection)
                direct.command("BEGIN")
                try:
                    return body(self._unit(direct, actor, writable=False))
                finally:
                    direct.command("ROLLBACK")
        except (OperationalError, InterfaceError) as error:
            raise explain(error, "the database does not answer") from error

    def peek(self, sql: str, parameters: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The first row of one statement, as committed, on SQLite (else None): quick enough for the
        event loop, since SQLite's readers wait for nobody. Each thread has a separate
        connection."""
        if not self.is_sqlite:
            return None
        connection: sqlite3.Connection | None = getattr(self._peeks, "connection", None)
        if connection is None:
            connection = self._peeks.connection = sqlite3.connect(
                self._parsed.database or "", isolation_level=None, check_same_thread=False
            )
            connection.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_MILLISECONDS}")
            connection.execute("PRAGMA query_only=1")
            self._peeking.append(connection)
        cursor = connection.execute(sql, parameters)
        row: tuple[Any, ...] | None = cursor.fetchone()
        cursor.close()  # ends the read: an open one would keep the log from being checkpointed
        return row

    def version(self) -> int | None:
        """A number that changes whenever anything is committed; None where the database is not
        SQLite. Compare it with numbers that the same thread has read. Raises UNAVAILABLE when the
        database does not answer."""
        try:
            row = self.peek(DATA_VERSION, {})
        except sqlite3.Error as error:
            raise PodyardError(Code.UNAVAILABLE, "the database does not answer") from error
        return None if row is None else int(row[0])

    @contextlib.contextmanager
    def listen(self) -> Iterator[pokes.Pokes | None]:
        """For the control loop: is poked when another process has committed. None where this is not
        SQLite."""
        if self._writer is None:
            yield None
        else:
            self._writer.pokes = False
            with pokes.listen(self._writer.poked_path) as found:
                yield found

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        while self._peeking:
            self._peeking.pop().close()
        self.engine.dispose()
        self._reader.dispose()

    def _unit(
        self,
        connection: Connection | DirectConnection,
        actor: str,
        *,
        writable: bool,
        via: str = "",
        group: dict[str, PlatformClock] | None = None,
    ) -> UnitOfWork:
        now = self._now(connection)
        return UnitOfWork(connection, now, self._streams, actor, writable, self.leases, via, group)

    def _run_postgresql(self, body: Callable[[UnitOfWork], T], actor: str, via: str) -> T:
        for attempt in range(1, UNIT_RETRIES_MAX + 1):
            try:
                with self.engine.begin() as connection:
                    return body(self._unit(connection, actor, writable=True, via=via))
            except Stale:
                if attempt == UNIT_RETRIES_MAX:
                    raise
            except (OperationalError, InterfaceError) as error:
                transient = getattr(error.orig, "sqlstate", None) in ("40001", "40P01")
                if not transient:
                    raise PodyardError(Code.UNAVAILABLE, "the database does not answer") from error
                if attempt == UNIT_RETRIES_MAX:
                    raise PodyardError(
                        Code.ABORTED, "the change met other changes too often; try again"
                    ) from error
        raise AssertionError("unreachable")


def _result(future: Future[T]) -> T:
    try:
        return future.result(timeout=UNIT_WAIT_SECONDS_MAX)
    except TimeoutError as error:
        # A unit that had not begun never will: a caller that was told "no" must not find its change
        # made later.
        if future.cancel():
            raise busy() from error
        return future.result()


@contextlib.contextmanager
def transaction(driver: sqlite3.Connection) -> Iterator[None]:
    """One transaction on a connection that nobody shares: committed at the end, taken back by what
    is raised."""
    driver.execute("BEGIN")
    try:
        yield
    except BaseException:
        driver.execute("ROLLBACK")
        raise
    driver.execute("COMMIT")


class _SqliteWriter:
    """The writer thread of one process: groups waiting units into one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        path = database._parsed.database
        if not path or path == ":memory:":
            raise PodyardError(
                Code.INVALID_ARGUMENT,
                "the SQLite database must be a file: several processes share it",
            )
        self._lock = FairFileLock(Path(path))
        self.poked_path, self.pokes = Path(f"{path}.poke"), True
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._start = threading.Lock()
        self._closed = False
        self._last_size = GROUP_UNITS_MAX

    def enqueue(self, body: Callable[[UnitOfWork], T], actor: str, via: str) -> Future[T]:
        if threading.current_thread() is self._thread:
            raise AssertionError("a unit of work inside a unit of work")
        with self._start:
            if self._closed:
                raise PodyardError(Code.UNAVAILABLE, "the database is closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="podyard-writer", daemon=True
                )
                self._thread.start()
        waiting = _Waiting(body, actor, via, Future())
        self._queue.put(waiting)
        return waiting.future

    def close(self) -> None:
        with self._start:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _work(self) -> None:
        with self._database.engine.connect() as connection:
            direct = DirectConnection(connection)
            while (group := self._next_group()) is not None:
                # References to results and tracebacks must not outlive their callers.
                self._run_group(
                    direct, [w for w in group if w.future.set_running_or_notify_cancel()]
                )
                group.clear()

    def _next_group(self) -> list[_Waiting] | None:
        first = self._queue.get()
        if first is None:
            return None
        group = [first]
        while len(group) < GROUP_UNITS_MAX:
            try:
                # Callers that wait for each other's answers come as many as last time: nobody is
                # waited for beyond.
                wait_seconds = (
                    GROUP_HOLD_MILLISECONDS / 1000 if 1 < len(group) < self._last_size else 0
                )
                item = (
                    self._queue.get(timeout=wait_seconds)
                    if wait_seconds
                    else self._queue.get_nowait()
                )
            except queue.Empty:
                break
            if item is None:
                self._queue.put(None)  # seen again after this group
                break
            group.append(item)
        self._last_size = len(group)
        return group

    def _run_group(self, connection: DirectConnection, group: list[_Waiting]) -> None:
        settle: list[Callable[[], None]] = []
        shared: dict[str, PlatformClock] = {}
        try:
            with self._lock:
                connection.command("BEGIN IMMEDIATE")
                try:
                    for waiting in group:
                        settle.append(self._run_unit(connection, waiting, shared))
                    connection.command("COMMIT")
                except BaseException:
                    # A full disk ends the transaction by itself; the first error is the one that
                    # says so.
                    with contextlib.suppress(OperationalError):
                        connection.command("ROLLBACK")
                    raise
        except BaseException as error:
            failure = explain(error, "the database cannot be written")
            for waiting in group:
                waiting.future.set_exception(failure)
            if not isinstance(error, Exception):
                raise
            return
        for done in settle:
            done()
        if self.pokes:
            # no free descriptor, say: the loop looks by itself a little later
            with contextlib.suppress(OSError):
                pokes.send(self.poked_path)

    def _run_unit(
        self, connection: DirectConnection, waiting: _Waiting, shared: dict[str, PlatformClock]
    ) -> Callable[[], None]:
        """Runs one unit in its savepoint; the future is settled only after the group's commit."""
        connection.command("SAVEPOINT unit")
        unit = self._database._unit(
            connection, waiting.actor, writable=True, via=waiting.via, group=shared
        )
        try:
            result = waiting.body(unit)
        except Exception as error:
            failure = explain(error, "the database cannot be written")
            try:
                connection.command("ROLLBACK TO unit")
            except OperationalError:
                raise error from None  # SQLite has ended the whole transaction
            shared.clear()  # what it wrote is undone
            connection.command("RELEASE unit")
            return lambda: waiting.future.set_exception(failure)
        connection.command("RELEASE unit")
        return lambda: waiting.future.set_result(result)
