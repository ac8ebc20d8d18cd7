"""`podyard admin copy-database`: the same rows, bills and invariants on the other kind of
database."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy import inspect

from podyard import migrations
from podyard.base.clock import ClockMode, OsClock
from podyard.cli.kit.commands import root
from podyard.db.store import leases, platform_clock
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.base import metadata
from podyard.db.views import copies
from podyard.testing.server import write_empty_database
from tests.builders import PROJECT
from tests.store import invoiced_yard

NODES = 40


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("yard")
    invoiced_yard.make(folder, NODES)
    return folder


@pytest.fixture
def postgresql(postgresql_url: str) -> str:
    """The URL of an empty database."""
    with psycopg.connect(f"{postgresql_url}/postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS copied WITH (FORCE)")
        connection.execute("CREATE DATABASE copied")
    return f"{postgresql_url}/copied"


def _copy(yard: Path, source: str | Path, target: str | Path) -> Any:
    arguments = [
        "admin",
        "copy-database",
        str(source),
        str(target),
        "--data",
        str(yard),
        "-o",
        "json",
    ]
    done = CliRunner().invoke(root, arguments, catch_exceptions=False, standalone_mode=False)
    return json.loads(done.stdout)


def _refused(yard: Path, source: str | Path, target: str | Path) -> str:
    with pytest.raises(Exception) as caught:
        _copy(yard, source, target)
    return str(caught.value)


def _documents(url: str) -> list[bytes]:
    with contextlib.closing(Database(url, OsClock())) as database:
        return [one.document for one in invoiced_yard.issued(database)]


def test_a_yard_with_invoices_goes_to_postgresql_and_back_unchanged(
    yard: Path, postgresql: str, tmp_path: Path
) -> None:
    found = _copy(yard, yard / "podyard.db", postgresql)
    assert found["violations"] == []
    assert found["invoices"] == invoiced_yard.MONTHS
    rows = {one["table"]: one["rows"] for one in found["tables"]}
    assert rows.keys() == metadata.tables.keys()
    assert rows["nodes"] >= NODES
    assert rows["usage_events"] > 2 * NODES
    source = f"sqlite:///{yard / 'podyard.db'}"
    documents = _documents(source)
    assert len(set(documents)) == invoiced_yard.MONTHS
    assert _documents(postgresql) == documents
    back = tmp_path / "back.db"
    assert _copy(yard, postgresql, back) == found
    assert _dump(back) == _dump(yard / "podyard.db")


def _dump(path: Path) -> list[str]:
    """All rows, in any order."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        lines = [line for line in connection.iterdump() if line.startswith("INSERT")]
    return sorted(lines)


def test_the_next_row_of_a_copy_gets_the_next_number(yard: Path, postgresql: str) -> None:
    _copy(yard, yard / "podyard.db", postgresql)
    numbered = 0
    with psycopg.connect(postgresql) as connection:

        def ask(statement: str) -> Any:
            (found,) = connection.execute(statement).fetchone() or (None,)  # type: ignore[arg-type]
            return found

        for table in metadata.tables.values():
            key = table.primary_key.columns[0].name
            if sequence := ask(f"SELECT pg_get_serial_sequence('{table.name}', '{key}')"):
                most = ask(f"SELECT coalesce(max({key}), 0) FROM {table.name}")
                assert ask(f"SELECT nextval('{sequence}')") == most + 1, table
                numbered += 1
    assert numbered >= 5


def test_every_table_of_the_schema_is_copied(tmp_path: Path) -> None:
    write_empty_database(tmp_path / "podyard.db")
    with copies.open_engine(f"sqlite:///{tmp_path / 'podyard.db'}") as engine:
        assert (
            set(inspect(engine).get_table_names()) - {"alembic_version"} == metadata.tables.keys()
        )


def test_a_table_that_is_not_known_is_not_left_behind_in_silence(
    yard: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source.db"
    source.write_bytes((yard / "podyard.db").read_bytes())
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("CREATE TABLE extra (a INTEGER)")
    assert "extra" in _refused(yard, source, tmp_path / "target.db")


def test_a_target_with_rows_is_refused(yard: Path, postgresql: str, tmp_path: Path) -> None:
    _copy(yard, yard / "podyard.db", postgresql)
    assert "the target is not empty: its table" in _refused(yard, yard / "podyard.db", postgresql)
    (tmp_path / "there.db").touch()
    assert "there is a file at" in _refused(yard, yard / "podyard.db", tmp_path / "there.db")


def test_a_database_that_podyard_runs_on_is_refused(tmp_path: Path, yard: Path) -> None:
    path = tmp_path / "podyard.db"
    write_empty_database(path)
    with contextlib.closing(Database(f"sqlite:///{path}", OsClock())) as database:
        database.run(lambda uow: platform_clock.set_up(uow, ClockMode.LOCAL))
        database.run(lambda uow: leases.acquire(uow, leases.LOOP_LEADER, "a loop", 60.0))
    assert "Podyard runs on" in _refused(yard, path, tmp_path / "target.db")


def test_a_database_of_an_older_version_is_refused(tmp_path: Path, yard: Path) -> None:
    path = tmp_path / "old.db"
    with copies.open_engine(f"sqlite:///{path}") as engine:
        migrations.migrate(engine, migrations.KNOWN[-2])
    message = _refused(yard, path, tmp_path / "target.db")
    assert f"stands at revision {migrations.KNOWN[-2]}, not {migrations.HEAD}" in message
    assert "there is no database at" in _refused(
        yard, tmp_path / "missing.db", tmp_path / "target.db"
    )


def test_a_text_that_postgresql_cannot_store_is_named_and_nothing_is_left(
    yard: Path, postgresql: str, tmp_path: Path
) -> None:
    source = tmp_path / "source.db"
    source.write_bytes((yard / "podyard.db").read_bytes())
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("UPDATE nodes SET state_reason = 'a' || char(0) || 'b'")
        connection.commit()
    assert re.search(
        "PostgreSQL refuses a row of table nodes: .*NUL", _refused(yard, source, postgresql)
    )
    found = _copy(yard, yard / "podyard.db", postgresql)  # the target is still empty
    assert found["violations"] == []


def test_a_wrong_password_is_not_shown(yard: Path, postgresql: str) -> None:
    url = postgresql.replace("podyard@", "nobody:hidden@")
    message = _refused(yard, yard / "podyard.db", url)
    assert "nobody" in message
    assert "hidden" not in message


def test_a_killed_copy_leaves_no_file_and_the_next_one_works(yard: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    code = (
        "import os, signal\n"
        "from podyard.db.views import copies\n"
        "copies.ROWS_AT_ONCE = 10\n"
        "from podyard.cli.nodes import operations as it\n"
        "it.progress = lambda text: 'state_changes' in text and os.kill(os.getpid(), "
        "signal.SIGKILL)\n"
        "from podyard.cli.kit.commands import run\n"
        f"run(['admin', 'copy-database', {str(yard / 'podyard.db')!r}, {str(target)!r}, '--data', "
        f"{str(yard)!r}])\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not target.exists()
    assert (tmp_path / "copy.db.partial").stat().st_size > 0
    assert _copy(yard, yard / "podyard.db", target)["violations"] == []
    assert not list(tmp_path.glob("*.partial*"))


def test_a_copy_has_the_same_account(yard: Path, postgresql: str) -> None:
    _copy(yard, yard / "podyard.db", postgresql)
    with contextlib.closing(Database(postgresql, OsClock())) as database:
        (first, *_) = invoiced_yard.issued(database)
    assert (first.project, first.month) == (PROJECT, "2026-02")
