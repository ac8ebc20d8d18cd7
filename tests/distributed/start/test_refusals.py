"""What cannot work is said in one line and at once, never by a traceback or after a time-out."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import PODYARD
from tests.waiting import patient

SENTENCE = "is damaged"


def _run(*words: str, code: str = PODYARD[-1], **changes: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        env=env | changes,
        capture_output=True,
        text=True,
        timeout=patient(30),
    )


def _no_database(path: Path) -> None:
    path.write_bytes(b"\x07" * 65536)


def _broken_pages(path: Path) -> None:
    """A database whose first page is whole, and whose others are not."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE a (b TEXT)")
        connection.executemany("INSERT INTO a VALUES (?)", [("x" * 500,)] * 500)
    connection.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x07" * (len(data) - 4096)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [_no_database, _broken_pages])
@pytest.mark.parametrize("command", [("fsck",), ("admin", "backup", "FILE"), ("up",)])
def test_a_damaged_database_is_named_by_every_command(
    tmp_path: Path, damage: object, command: tuple[str, ...]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "token").write_text("t")
    assert callable(damage)
    damage(data / "podyard.db")
    words = [str(tmp_path / "backup") if word == "FILE" else word for word in command]
    port = ("--port", "0") if command == ("up",) else ()
    done = _run(*words, "--data", str(data), *port)
    assert done.returncode != 0
    assert SENTENCE in done.stderr and "restore a backup" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "backup").exists()


def test_postgresql_without_its_driver_is_named_at_once(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['psycopg'] = None; {PODYARD[-1]}"
    url = "postgresql://localhost/yard"
    done = _run("up", "--data", str(tmp_path), "--port", "0", code=code, PODYARD_DATABASE_URL=url)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "PostgreSQL needs an extra: pip install 'podyard[postgres]'"
    )
