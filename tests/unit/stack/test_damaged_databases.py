"""Every command that opens a damaged database says in one line that it is damaged."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from podyard import migrations
from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError
from podyard.cli.kit.commands import run
from podyard.db.store.unit_of_work import Database
from podyard.main import _one_line
from podyard.settings import from_environment

PAGE_BYTES = 4096


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _zero_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    start = len(data) // 2 // PAGE_BYTES * PAGE_BYTES
    data[start : start + 5 * PAGE_BYTES] = bytes(5 * PAGE_BYTES)
    path.write_bytes(data)


def _sql(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(statement)

    return change


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (_truncate, "malformed"),
    "zeroed page": (_zero_a_page, "is damaged"),
    "not a database": (lambda path: path.write_bytes(b"%PDF-1.7" * 1000), "not a database"),
    "emptied": (lambda path: path.write_bytes(b""), "it is empty"),
    "missing table": (_sql("DROP TABLE state_changes"), "the table state_changes is missing"),
    "missing column": (_sql("ALTER TABLE leases DROP COLUMN owner"), "leases.owner is missing"),
    "missing revision": (_sql("DROP TABLE alembic_version"), "alembic_version is missing"),
    "emptied revision": (_sql("DELETE FROM alembic_version"), "alembic_version is missing"),
}
COMMANDS = (
    "fsck --data {data}",
    "fsck --leaks --data {data}",
    "admin backup {data}.tar --data {data}",
    "admin copy-database {data}/podyard.db {data}.copy --data {data}",
    "admin adopt-folders --data {data}",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that has been in use."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    folder.mkdir()
    (folder / "token").write_text("pdy_owner\n")
    with contextlib.closing(Database(f"sqlite:///{folder / 'podyard.db'}", OsClock())) as database:
        migrations.upgrade(database)
    return folder


def _damaged(whole: Path, folder: Path, damage: str) -> Path:
    shutil.copytree(whole, folder)
    DAMAGES[damage][0](folder / "podyard.db")
    return folder


def _lines(words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run a command that fails; return what it says. A traceback ends the test."""
    with pytest.raises(SystemExit) as ended:
        run(words.split())
    assert ended.value.code == 1
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("damage", DAMAGES)
def test_commands_say_in_one_line_that_the_database_is_damaged(
    whole: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _damaged(whole, tmp_path / "data", damage)
    before = (folder / "podyard.db").read_bytes()
    for command in COMMANDS:
        (line,) = _lines(command.format(data=folder), capsys)
        assert f"the database {folder / 'podyard.db'} is damaged (" in line, command
        assert DAMAGES[damage][1] in line
        assert "restore a backup" in line
    assert (folder / "podyard.db").read_bytes() == before
    assert not (tmp_path / "data.tar").exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_start_refuses_with_the_same_sentence(whole: Path, tmp_path: Path, damage: str) -> None:
    folder = _damaged(whole, tmp_path / "data", damage)
    settings = from_environment({"PODYARD_DATA": str(folder)})
    with pytest.raises(PodyardError, match=DAMAGES[damage][1]) as refused, _one_line(settings):
        pass
    assert "is damaged (" in refused.value.message


@pytest.mark.parametrize("command", ["fsck", "fsck --leaks"])
def test_a_database_of_an_older_version_is_named_as_such(
    whole: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    _sql("UPDATE alembic_version SET version_num = '0032'")(folder / "podyard.db")
    (line,) = _lines(f"{command} --data {folder}", capsys)
    assert "stands at revision 0032, not " in line
    assert "start this version of Podyard on it once" in line
