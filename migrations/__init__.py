"""Revisions of the schema, both ways, on SQLite and PostgreSQL.

`upgrade` is called at every start and must be quick when there is nothing to do: it reads the revision with one query
and imports Alembic only when the schema has to change.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, inspect, text

from podyard.base.errors import Code, PodyardError
from podyard.db.file_lock import FairFileLock
from podyard.db.unit_of_work import Database

_NUMBERS = (*range(1, 33), 34, 35, *range(38, 46))
KNOWN = tuple(f"{number:04}" for number in _NUMBERS)
HEAD = KNOWN[-1]


def current(engine: Engine) -> str | None:
    """The revision that the database stands at; None when it is empty."""
    if not inspect(engine).has_table("alembic_version"):
        return None
    with engine.connect() as connection:
        found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def upgrade(database: Database) -> None:
    """Brings the schema to `HEAD`. Raises FAILED_PRECONDITION for a database made by a newer Podyard."""
    if _at_head(database.engine):
        return
    if database.is_sqlite:
        # Two processes that start together on an empty folder must not both create the tables.
        with FairFileLock(Path(str(database.engine.url.database))):
            if not _at_head(database.engine):
                migrate(database.engine, HEAD)
    else:
        migrate(database.engine, HEAD)


def migrate(engine: Engine, revision: str) -> None:
    """Moves the schema up or down to `revision` (`base`: an empty database)."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
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
            f"the database stands at revision {revision}, which this Podyard does not know: it was made by a newer "
            "one. Install that version, or use another --data folder",
        )
    return revision == HEAD
