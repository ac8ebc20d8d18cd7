"""A database in this process's memory, for simulation: each unit of work runs at once, in the
calling thread.

Units are as atomic as on a file: each is a separate transaction. There is one connection, and no
other, so that
the platform clock's row is read again only after a unit has written it or was taken back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import create_engine, event
from sqlalchemy.pool import StaticPool
from typing_extensions import override

from podyard.base.clock import PlatformClock, RealClock
from podyard.base.rng import Streams
from podyard.db.engines.inline_statements import InlineConnection
from podyard.db.store.unit_of_work import Database, UnitOfWork, transaction
from podyard.settings import Leases

T = TypeVar("T")
STATEMENTS_KEPT_MAX = 512  # prepared ones: the control code asks about three hundred different ones


class InlineDatabase(Database):
    """`schema`: what `image` gave of another one, to begin with; without it the database is
    empty."""

    def __init__(
        self,
        real_clock: RealClock,
        streams: Streams | None = None,
        leases: Leases | None = None,
        schema: bytes | None = None,
    ) -> None:
        # Not the constructor of the base class: it opens files and makes a writer's thread.
        self.url = "sqlite://"
        self.leases = leases or Leases()
        self.is_sqlite = True
        self._real_clock = real_clock
        self._now = lambda _connection: real_clock.now()
        self._streams = streams or Streams()
        self._writer = None
        self.engine = create_engine(
            self.url,
            poolclass=StaticPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"check_same_thread": False, "cached_statements": STATEMENTS_KEPT_MAX},
        )
        event.listen(self.engine, "connect", _configure)
        self._reader = self.engine
        self._plain = self.engine.connect()
        self._statements = InlineConnection(self._plain)
        self.connection: Any = self._statements
        self.driver = self._statements.driver
        self._shared: dict[str, PlatformClock] = {}
        self._busy = False
        self._changes = 0
        if schema is not None:
            self.driver.deserialize(schema)
            _configure(self.driver, None)

    def write_count(self, *names: str) -> int:
        """Grows whenever one of these tables is written."""
        return self._statements.write_count(*names)

    def image(self) -> bytes:
        """The whole database, as another one can begin with it."""
        return self.driver.serialize()

    @override
    def run(self, body: Callable[[UnitOfWork], T], *, actor: str = "podyard", via: str = "") -> T:
        self._enter()
        try:
            with transaction(self.driver):
                return body(
                    self._unit(self.connection, actor, writable=True, via=via, group=self._shared)
                )
        except BaseException:
            self._shared.clear()  # what it wrote is undone
            self._statements.forget()
            raise
        finally:
            self._changes = self.driver.total_changes
            self._busy = False

    @override
    def enqueue(self, body: Callable[[UnitOfWork], T], *, actor: str, via: str = "") -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(self.run(body, actor=actor, via=via))
        except Exception as error:
            future.set_exception(error)
        return future

    @override
    def read(self, body: Callable[[UnitOfWork], T], *, actor: str = "podyard") -> T:
        self._enter()
        self._changes = self.driver.total_changes
        try:
            return body(self._unit(self.connection, actor, writable=False, group=self._shared))
        finally:
            self._busy = False
            # Nobody else writes, so this needs no snapshot; `query_only` would make SQLite prepare
            # all again.
            assert self.driver.total_changes == self._changes, "a unit that reads has written"

    @override
    def version(self) -> int:
        return self.driver.total_changes

    @override
    def peek(self, sql: str, parameters: Mapping[str, Any]) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self.driver.execute(sql, parameters).fetchone()
        return row

    @override
    def close(self) -> None:
        self._plain.close()
        self.engine.dispose()

    def _enter(self) -> None:
        if self._busy:
            raise AssertionError("a unit of work inside a unit of work")
        self._busy = True
        if self._changes != self.driver.total_changes:
            self._statements.forget()  # rows were written past the units


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA temp_store=MEMORY")
    cursor.close()
