"""Revisions of the schema, both ways, on SQLite and PostgreSQL.

`upgrade` is called at every start and must be quick when there is nothing to do: it reads the
revision with one query and imports Alembic only when tables have to change. An empty database gets
the newest tables at once, without it: they are those that the revisions come to, but for defaults
that a revision left in the database for rows of its time.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, insert, inspect, text

from podyard.base.errors import Code, PodyardError
from podyard.db.engines.file_lock import FairFileLock
from podyard.db.store import condition
from podyard.db.store.unit_of_work import Database, transaction
from podyard.db.tables.all_tables import metadata

_NUMBERS = (*range(1, 33), 34, 35, *range(38, 54))
KNOWN = tuple(f"{number:04}" for number in _NUMBERS)
HEAD = KNOWN[-1]
# two starting servers take turns; the number is only a name
LOCK = text("SELECT pg_advisory_xact_lock(8700)")
# As Alembic makes it.
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_VERSION.primary_key.name = "alembic_version_pkc"


def current(engine: Engine) -> str | None:
    """The revision that the database stands at; None when it is empty."""
    with engine.connect() as connection:
        return _revision(connection)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION.name):
        return None
    found: str | None = connection.execute(_VERSION.select()).scalar()
    return found


def check_file(path: Path, *, in_use: bool) -> None:
    """Raise FAILED_PRECONDITION for a damaged database file, and for one that lacks tables or
    columns of its revision. `in_use`: as `condition.check_file` has it."""
    condition.check_file(path, in_use=in_use)
    schema = condition.read_schema(path, _VERSION.name)
    if schema is None:
        return
    if schema.revision is None:
        if schema.columns.keys() & metadata.tables.keys():
            raise condition.damage(path, f"the table {_VERSION.name} is missing or empty")
    elif schema.revision == HEAD:
        for table in metadata.sorted_tables:
            missing = {column.name for column in table.columns} - schema.columns.get(
                table.name, frozenset()
            )
            if table.name not in schema.columns:
                raise condition.damage(path, f"the table {table.name} is missing")
            if missing:
                raise condition.damage(path, f"the column {table.name}.{min(missing)} is missing")


def upgrade(database: Database) -> None:
    """Brings the schema to `HEAD`. Raises FAILED_PRECONDITION for a database made by a newer
    Podyard."""
    if _at_head(database.engine):
        return
    if database.is_sqlite:
        # Two processes that start together on an empty folder must not both create the tables.
        with FairFileLock(Path(str(database.engine.url.database))):
            if not _at_head(database.engine):
                to_head(database.engine)
    else:
        to_head(database.engine)


def to_head(engine: Engine) -> None:
    """Brings the schema to `HEAD`: an empty database gets its tables, another goes through the
    revisions that it
    lacks."""
    with _transaction(engine) as connection:
        if _revision(connection) is None:
            if connection.dialect.name == "postgresql":
                _add_conditions()
            metadata.create_all(connection, checkfirst=False)
            # it stays where all revisions were taken back
            _VERSION.create(connection, checkfirst=True)
            connection.execute(insert(_VERSION).values(version_num=HEAD))
            return
    migrate(engine, HEAD)


def _add_conditions() -> None:
    """The tables name the condition of an index for SQLite alone: to name it for PostgreSQL loads 2
    MB in each
    process, for whichever database."""
    for table in metadata.tables.values():
        for index in table.indexes:
            if (condition := index.dialect_kwargs.get("sqlite_where")) is not None:
                index.dialect_kwargs["postgresql_where"] = condition


@contextlib.contextmanager
def _transaction(engine: Engine) -> Iterator[Connection]:
    """All tables or none. On PostgreSQL one server at a time; on SQLite the callers hold a lock, or
    the file is new."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            with transaction(driver):
                yield connection
    else:
        with engine.begin() as connection:
            connection.execute(LOCK)
            yield connection


def migrate(engine: Engine, revision: str) -> None:
    """Moves the schema up or down to `revision` (`base`: an empty database), by Alembic."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("recursive_version_locations", "true")
    here = current(engine)
    down = revision == "base" or (here is not None and KNOWN.index(revision) < KNOWN.index(here))
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        (command.downgrade if down else command.upgrade)(config, revision)


def _at_head(engine: Engine) -> bool:
    revision = current(engine)
    if revision is not None and revision not in KNOWN:
        raise PodyardError(
            Code.FAILED_PRECONDITION,
            f"the database stands at revision {revision}, which this Podyard does not know: it "
            "was made by a newer "
            "one. Install that version, or use another --data folder",
        )
    return revision == HEAD
