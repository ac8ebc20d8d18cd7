"""All rows of one database, copied into another one of either kind.

Rows pass in the form that both kinds of database give for the type that the table says: truth
values as bool, JSON as the text that it was stored as. The copy is read back, and its rows must
have the digest of those that were read from the source. The target has all rows or none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import JSON, Boolean, Column, Engine, Float, Table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.files import new_file
from podyard.db.engines.engines import postgresql_engine, sqlite_engine
from podyard.db.store import condition
from podyard.db.store.unit_of_work import transaction
from podyard.db.tables.all_tables import metadata
from podyard.settings import NO_DRIVER

if TYPE_CHECKING:
    import psycopg

# in memory: of rows with a metric's points or an invoice's records some ten MB
ROWS_AT_ONCE = 5_000
_DIGEST_BITS = 128
_REVISIONS = "alembic_version"  # Alembic's table: the target has its own row

Row = tuple[Any, ...]
Tell = Callable[[str, int], None]  # table, rows copied so far


@dataclasses.dataclass(frozen=True, slots=True)
class CopiedTable:
    """`digest`: the sum of the hashes of all rows, so that the order of rows does not matter."""

    table: str
    rows: int
    digest: int


def is_sqlite(url: str) -> bool:
    return make_url(url).get_backend_name() == "sqlite"


def sqlite_path(url: str) -> Path:
    return Path(make_url(url).database or "")


@contextlib.contextmanager
def open_engine(url: str) -> Iterator[Engine]:
    """An engine for the time of the block."""
    with explain_failures(url):
        engine = sqlite_engine(url, read_only=False) if is_sqlite(url) else postgresql_engine(url)
        try:
            yield engine
        finally:
            engine.dispose()


@contextlib.contextmanager
def open_source(url: str) -> Iterator[CopySource]:
    """One snapshot of the database, which is only read. Raises UNAVAILABLE where it does not
    answer."""
    with explain_failures(url):
        if is_sqlite(url):
            with contextlib.closing(
                sqlite3.connect(sqlite_path(url), isolation_level=None)
            ) as driver:
                driver.execute("PRAGMA query_only=1")
                with transaction(driver):
                    yield _SqliteTables(driver)
        else:
            with _open_postgresql(url) as connection:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield _PostgresqlTables(connection)


@contextlib.contextmanager
def open_target(url: str) -> Iterator[CopyTarget]:
    """A database with the schema, in one transaction that ends with the block. An SQLite file must
    be one that nobody else opens: it is damaged by a crash."""
    with explain_failures(url):
        if is_sqlite(url):
            with contextlib.closing(
                sqlite3.connect(sqlite_path(url), isolation_level=None)
            ) as driver:
                for pragma in ("journal_mode=OFF", "synchronous=OFF", "foreign_keys=OFF"):
                    driver.execute(f"PRAGMA {pragma}")
                with transaction(driver):
                    yield _SqliteTables(driver)
                    _require_whole(driver)
        else:
            with _open_postgresql(url) as connection:
                yield _PostgresqlTables(connection)


def copy(source: CopySource, target: CopyTarget, tell: Tell) -> list[CopiedTable]:
    """Copies all tables and reads the copy back. Raises FAILED_PRECONDITION for what cannot be
    copied, DATA_LOSS if the copy is not what was read."""
    tables = _tables(source)
    for table in tables:
        if target.has_rows(table):
            raise failed_precondition(
                f"the target is not empty: its table {table.name} has rows; name an empty database"
            )
    copied = []
    for table in tables:
        counted = _CountedRows(table, source.rows(table), tell)
        target.write(table, counted)
        written = summary(table, target.rows(table))
        if written != counted.summary():
            text = (
                f"table {table.name} was copied wrongly: {counted.count} rows were read, "
                f"{written.rows} are there"
            )
            raise PodyardError(Code.DATA_LOSS, text)
        copied.append(written)
    return copied


def summary(table: Table, rows: Iterable[Row]) -> CopiedTable:
    counted = _CountedRows(table, rows, lambda _table, _rows: None)
    for _ in counted:
        pass
    return counted.summary()


@contextlib.contextmanager
def new_sqlite_file(path: Path) -> Iterator[Path]:
    """As `new_file`, for a database."""
    ends = ("-wal", "-shm", "-journal", ".lock", ".turnstile")

    def clean(partial: Path) -> None:
        for end in ends:
            partial.with_name(f"{partial.name}{end}").unlink(missing_ok=True)

    with new_file(path) as partial:
        clean(partial)
        try:
            yield partial
        finally:
            clean(partial)


def snapshot(url: str, path: Path) -> None:
    """Writes one consistent snapshot of the database to a new SQLite file, while others write."""
    if is_sqlite(url):
        with (
            explain_failures(url),
            contextlib.closing(sqlite3.connect(sqlite_path(url))) as driver,
            contextlib.closing(sqlite3.connect(path)) as target,
        ):
            target.execute("PRAGMA synchronous=OFF")
            driver.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
    else:
        with open_source(url) as source, open_target(f"sqlite:///{path}") as target_tables:
            copy(source, target_tables, lambda _table, _rows: None)


class CopySource(Protocol):
    def table_names(self) -> set[str]: ...
    def rows(self, table: Table) -> Iterator[Row]: ...


class CopyTarget(CopySource, Protocol):
    def has_rows(self, table: Table) -> bool: ...
    def write(self, table: Table, rows: Iterable[Row]) -> None: ...


class _CountedRows:
    """Rows on their way, counted and hashed."""

    def __init__(self, table: Table, rows: Iterable[Row], tell: Tell) -> None:
        self._table, self._rows, self._tell = table, rows, tell
        self.count = self._digest = 0

    def __iter__(self) -> Iterator[Row]:
        name, blake = self._table.name, hashlib.blake2b
        for row in self._rows:
            self._digest += int.from_bytes(
                blake(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            )
            self.count += 1
            if self.count % ROWS_AT_ONCE == 0:
                self._tell(name, self.count)
            yield row

    def summary(self) -> CopiedTable:
        return CopiedTable(self._table.name, self.count, self._digest % (1 << _DIGEST_BITS))


class _SqliteTables:
    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def table_names(self) -> set[str]:
        found = self._driver.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
        return {str(name) for (name,) in found}

    def rows(self, table: Table) -> Iterator[Row]:
        cursor = self._driver.execute(f"SELECT {_names(table)} FROM {table.name}")
        cursor.arraysize = ROWS_AT_ONCE
        return _convert(table, iter(cursor))

    def has_rows(self, table: Table) -> bool:
        return self._driver.execute(f"SELECT 1 FROM {table.name} LIMIT 1").fetchone() is not None

    def write(self, table: Table, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(table.columns))
        self._driver.executemany(
            f"INSERT INTO {table.name} ({_names(table)}) VALUES ({marks})", rows
        )


class _PostgresqlTables:
    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def table_names(self) -> set[str]:
        found = self._connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        return {str(name) for (name,) in found}

    def rows(self, table: Table) -> Iterator[Row]:
        columns = ", ".join(f"{c.name}::text" if _is_json(c) else c.name for c in table.columns)
        with self._connection.cursor(f"copy_{table.name}", binary=True) as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(f"SELECT {columns} FROM {table.name}".encode())
            yield from _convert(table, cursor)

    def has_rows(self, table: Table) -> bool:
        return (
            self._connection.execute(f"SELECT 1 FROM {table.name} LIMIT 1".encode()).fetchone()
            is not None
        )

    def write(self, table: Table, rows: Iterable[Row]) -> None:
        import psycopg

        try:
            command = f"COPY {table.name} ({_names(table)}) FROM STDIN".encode()
            with self._connection.cursor() as cursor, cursor.copy(command) as into:
                for row in rows:
                    into.write_row(row)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            what = " ".join(str(error).split())
            raise failed_precondition(
                f"PostgreSQL refuses a row of table {table.name}: {what}"
            ) from error
        for column in table.primary_key.columns:
            name = f"pg_get_serial_sequence('{table.name}', '{column.name}')"
            found = self._connection.execute(f"SELECT {name}".encode()).fetchone()
            if found is not None and found[0] is not None:
                # The next number follows the largest one, as on SQLite.
                most = f"(SELECT coalesce(max({column.name}), 0) + 1 FROM {table.name})"
                self._connection.execute(f"SELECT setval({name}, {most}, false)".encode())


def _names(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


def _is_json(column: Column[Any]) -> bool:
    return isinstance(column.type, JSON)


def _convert(table: Table, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows in the form that both databases share. SQLite stores truth values as numbers."""
    convert: list[tuple[int, Callable[[Any], Any]]] = []
    for place, column in enumerate(table.columns):
        if isinstance(column.type, Boolean):
            convert.append((place, bool))
        elif isinstance(column.type, Float):
            convert.append((place, float))
    if not convert:
        yield from map(tuple, rows)
        return
    for row in rows:
        values = list(row)
        for place, make in convert:
            if values[place] is not None:
                values[place] = make(values[place])
        yield tuple(values)


def _tables(source: CopySource) -> Sequence[Table]:
    """All tables, those that others refer to first. A table that the metadata does not have would
    be left behind."""
    known, there = set(metadata.tables), source.table_names() - {_REVISIONS}
    if known != there:
        what = ", ".join(sorted(known ^ there))
        raise failed_precondition(
            f"the tables of the source are not those of this version of Podyard: {what}"
        )
    return metadata.sorted_tables


def _open_postgresql(url: str) -> contextlib.AbstractContextManager[psycopg.Connection[Row]]:
    import psycopg

    parsed = make_url(url).set(drivername="postgresql")
    return psycopg.connect(parsed.render_as_string(hide_password=False))


def _require_whole(driver: sqlite3.Connection) -> None:
    broken = list(itertools.islice(driver.execute("PRAGMA foreign_key_check"), 1))
    if broken:
        raise failed_precondition(
            f"a row of table {broken[0][0]} refers to one of {broken[0][2]} that is not there"
        )


@contextlib.contextmanager
def explain_failures(url: str) -> Iterator[None]:
    """Yield what the driver cannot do is said in one line that does not show a password."""
    try:
        yield
    except (sqlite3.Error, DBAPIError) as error:
        raise _refusal(url, getattr(error, "orig", None) or error) from error
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise failed_precondition(NO_DRIVER) from error
    except Exception as error:
        # it is imported where there is a PostgreSQL
        if type(error).__module__.split(".")[0] != "psycopg":
            raise
        raise _refusal(url, error) from error


def hide_password(url: str) -> str:
    """The URL without its password."""
    return make_url(url).render_as_string(hide_password=True)


def _refusal(url: str, error: BaseException) -> PodyardError:
    is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError
    )
    if is_sqlite(url) and is_damaged:
        return condition.damage(sqlite_path(url), str(error))
    return PodyardError(Code.UNAVAILABLE, f"{hide_password(url)}: {' '.join(str(error).split())}")
