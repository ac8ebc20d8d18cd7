"""Connections to the two kinds of database."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url

from podyard.db.engines.shared_dialect import DRIVER, OPTIONS
from podyard.db.tables.types import read_json

CONNECT_SECONDS_MAX = 5  # to PostgreSQL: a client that waits longer is better told to come back
SILENT_PEER_MILLISECONDS_MAX = 10_000  # until a connection whose other end has vanished is given up
# only checkpoints and foreign tools contend: our writers queue at the file lock
SQLITE_BUSY_MILLISECONDS = 10_000


def writer_and_reader(url: str) -> tuple[Engine, Engine]:
    """The engines of units of work that write, and of reads that see one snapshot and cannot
    write."""
    if make_url(url).get_backend_name() == "sqlite":
        return sqlite_engine(url, read_only=False), sqlite_engine(url, read_only=True)
    engine = postgresql_engine(url)
    return engine, engine.execution_options(
        isolation_level="REPEATABLE READ", postgresql_readonly=True
    )


def postgresql_engine(url: str) -> Engine:
    """psycopg 3, whichever way the user wrote the scheme."""
    scheme, rest = url.split("://", 1)
    url = (
        f"postgresql+{DRIVER}://{rest}"
        if scheme in ("postgres", "postgresql", "postgresql+psycopg")
        else url
    )
    limits = {
        "connect_timeout": CONNECT_SECONDS_MAX,
        "tcp_user_timeout": SILENT_PEER_MILLISECONDS_MAX,
    }
    return create_engine(url, pool_pre_ping=True, connect_args=limits, execution_options=OPTIONS)


def sqlite_engine(url: str, *, read_only: bool) -> Engine:
    # AUTOCOMMIT: we write BEGIN ourselves, so that a unit is IMMEDIATE and a read sees one
    # snapshot.
    engine = create_engine(
        make_url(url).set(drivername=f"sqlite+{DRIVER}"),
        execution_options=OPTIONS,
        connect_args={"check_same_thread": False},
        isolation_level="AUTOCOMMIT",
        json_deserializer=read_json,
        pool_size=8,
        max_overflow=32,
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_MILLISECONDS}")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        # else each savepoint keeps its old pages in a file
        cursor.execute("PRAGMA temp_store=MEMORY")
        cursor.execute(f"PRAGMA query_only={int(read_only)}")
        cursor.close()

    return engine
