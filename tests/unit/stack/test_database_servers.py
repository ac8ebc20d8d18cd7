"""Commands on a folder whose database is a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from podyard.cli.kit.options import settings_of

URL = "postgresql://ann@db.example/yard"
EXTRA = "PostgreSQL needs an extra: pip install 'podyard[postgres]'"
# Python as it is without the extra.
WITHOUT_DRIVER = """
import importlib.machinery as machinery
finds = machinery.PathFinder.find_spec
def find(cls, name, path=None, target=None):
    return None if name.split(".")[0].startswith("psycopg") else finds(name, path, target)
machinery.PathFinder.find_spec = classmethod(find)
from podyard.main import cli
cli()
"""


def test_a_folder_knows_its_server_unless_the_environment_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PODYARD_DATABASE_URL", raising=False)
    assert settings_of(str(tmp_path)).database_path == tmp_path / "podyard.db"
    (tmp_path / "database-url").write_text(f"{URL}\n")
    assert settings_of(str(tmp_path)).database_url == URL
    assert settings_of(str(tmp_path), database_url="sqlite:////x.db").database_path == Path("/x.db")
    monkeypatch.setenv("PODYARD_DATABASE_URL", "postgresql://ann@other.example/yard")
    assert settings_of(str(tmp_path)).database_url == "postgresql://ann@other.example/yard"


@pytest.mark.parametrize(
    "command",
    [
        "up --port 0 --database-url URL --data DATA", "fsck --data DATA",
        "admin backup DATA.tar --data DATA", "admin adopt-folders --data DATA",
    ],
)  # fmt: skip
def test_without_the_driver_one_line_names_the_extra(command: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "database-url").write_text(URL)
    words = command.replace("DATA", str(data)).replace("URL", URL).split()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER, *words], capture_output=True, text=True
    )
    assert done.returncode in (1, 2)
    assert EXTRA in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
