"""Files of generations that cannot be used: one line that names the file, as a user of the command
line sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podyard.hardware.generations import VARIABLE

INVENTED = Path(__file__).parents[2] / "data" / "invented" / "v9x.py"


def _list(*paths: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {VARIABLE: os.pathsep.join(map(str, paths))}
    command = [
        sys.executable,
        "-c",
        "from podyard.main import cli; cli()",
        "hardware",
        "list",
        "--generation",
        "v9x",
    ]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def test_an_added_generation_is_listed() -> None:
    listed = _list(INVENTED)
    assert listed.returncode == 0, listed.stderr
    assert "v9x-64" in listed.stdout


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("GENERATION = 1 / 0\n", "division by zero"),
        ("GENERATION = (\n", "'(' was never closed"),
        ("GENERATIONS = []\n", "must set GENERATION to a Generation"),
        ("import sys\n\nGENERATION = sys\n", "must set GENERATION to a Generation"),
        ("from podyard.hardware.generations.v6e import GENERATION\n", "v6e exists already"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, source: str, problem: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(source)
    refused = _list(path)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert VARIABLE in line and problem in line, line


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    refused = _list(tmp_path / "nowhere.py")
    assert refused.returncode == 1
    assert str(tmp_path / "nowhere.py") in refused.stderr
