"""The condition of an SQLite database file. Asked once at the start: better one line then than a
traceback in each request."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.exc import DatabaseError, InterfaceError, OperationalError

from podyard.base.errors import Code, PodyardError

# 64 MB took 45 ms from the page cache. Of a larger database the damaged part is found when it is
# read.
CHECKED_BYTES_MAX = 256 << 20
DATABASE_ERRORS = (DatabaseError, PodyardError)  # what is raised where a database cannot be used
_PRIMARY_CODE = 0xFF  # of SQLite's extended result codes (sqlite.org/rescode.html)
_DAMAGED_SHORT = "restore a backup, or move the file away to start with an empty database"


def check_file(path: Path, *, in_use: bool) -> None:
    """Raises FAILED_PRECONDITION for a damaged database. `in_use`: this folder had one before, so
    that an empty file
    has lost everything; a start that was interrupted may leave one, too."""
    try:
        size_bytes = path.stat().st_size
    except OSError:
        return  # none yet; what else is wrong, opening it says
    if size_bytes == 0:
        if in_use:
            raise damage(path, "it is empty, though this folder has been in use")
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA query_only=1")
            if size_bytes <= CHECKED_BYTES_MAX:
                problem = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            else:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                problem = "ok"
    except sqlite3.OperationalError:
        return  # locked, or not to be opened: not a question of its content
    except sqlite3.DatabaseError as error:
        raise damage(path, str(error)) from error
    if problem != "ok":
        raise damage(path, problem)


@dataclasses.dataclass(frozen=True, slots=True)
class FileSchema:
    """Tables of an SQLite file with the names of their columns, and the revision that it says it
    stands at."""

    columns: Mapping[str, frozenset[str]]
    revision: str | None


def read_schema(path: Path, revisions: str) -> FileSchema | None:
    """Return the schema of a file; None where there is no file, or a locked one. `revisions` is the
    table with the revision. Raises FAILED_PRECONDITION for a damaged file."""
    if not path.exists():
        return None
    query = (
        "SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c "
        "WHERE t.type = 'table'"
    )
    columns: dict[str, set[str]] = {}
    revision: str | None = None
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA query_only=1")
            for table, column in connection.execute(query):
                columns.setdefault(table, set()).add(column)
            if revisions in columns:
                row = connection.execute(f"SELECT * FROM {revisions}").fetchone()
                revision = None if row is None else str(row[0])
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        raise damage(path, str(error)) from error
    return FileSchema({name: frozenset(names) for name, names in columns.items()}, revision)


def refusal(error: DatabaseError | PodyardError, path: Path) -> PodyardError:
    """Return what the user is told when a start fails on the database file."""
    cause = error.__cause__ if isinstance(error, PodyardError) else error
    if not isinstance(cause, DatabaseError):
        assert isinstance(error, PodyardError)
        return error
    if getattr(cause.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        text = f"the disk of the database {path} is full: free some space, and start again"
    elif isinstance(cause.orig, sqlite3.OperationalError):
        text = (
            f"the database {path} cannot be used: {cause.orig}; make it writable, or choose "
            "another folder"
        )
    else:
        return damage(path, str(cause.orig))
    return PodyardError(Code.FAILED_PRECONDITION, text)


def explain(error: BaseException, refused: str) -> BaseException:
    """Return what the callers of a unit of work get: UNAVAILABLE with `refused` where the database
    cannot be reached or cannot go on, else `error` itself. A wrong statement is a fault of ours,
    and stays one.

    SQLite's own words are added. Those of PostgreSQL name its address, which callers need not know.
    """
    orig = error.orig if isinstance(error, OperationalError | InterfaceError) else error
    if orig is error and not isinstance(error, sqlite3.OperationalError):
        return error
    if isinstance(orig, sqlite3.OperationalError):
        # One class for a full disk, a lock, and a table that does not exist: its code tells them
        # apart.
        if orig.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_ERROR:
            return error
        refused = f"{refused}: {orig}"
    failure = PodyardError(Code.UNAVAILABLE, refused)
    failure.__cause__ = error
    return failure


def busy() -> PodyardError:
    return PodyardError(Code.UNAVAILABLE, "the database is busy; try again")


def damage(path: Path, how: str) -> PodyardError:
    """Return the error of a database file that is lost unless there is a backup."""
    how = " ".join(how.split())
    return PodyardError(
        Code.FAILED_PRECONDITION, f"the database {path} is damaged ({how}): {_DAMAGED_SHORT}"
    )
