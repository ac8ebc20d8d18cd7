"""import-linter and mypy really follow the links to the root folders, and mypy's messages name
files as git does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from podyard import ROOT_FOLDERS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).parent / "lint-imports"
    env = {"PATH": str(tool.parent), "PYTHONPATH": str(root)}
    return subprocess.run(
        [str(tool), "--no-cache"], cwd=root, env=env, capture_output=True, text=True
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages that a test may break."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("podyard", *ROOT_FOLDERS):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_an_upward_import_in_a_linked_folder_and_sql_outside_of_db_are_caught(tree: Path) -> None:
    assert _lint(tree).returncode == 0, _lint(tree).stdout
    cycle = tree / "scheduler" / "cycle.py"
    cycle.write_text(
        cycle.read_text() + "\nfrom podyard.control.compute import nodes\n\n_ = nodes\n"
    )
    (tree / "web" / "planted.py").write_text(
        "from podyard.db.tables.compute import nodes\n\n_ = nodes\n"
    )
    done = _lint(tree)
    assert done.returncode == 1
    assert "podyard.scheduler.cycle -> podyard.control.compute.nodes" in done.stdout
    assert "podyard.web.planted -> podyard.db.tables.compute" in done.stdout


def test_an_error_of_types_is_reported_with_the_path_that_git_knows(tree: Path) -> None:
    meter = tree / "pricing" / "meter.py"
    meter.write_text(meter.read_text() + '\n_planted: int = "text"\n')
    settings = tree / "podyard" / "settings.py"
    settings.write_text(settings.read_text() + '\n_planted: int = "text"\n')
    # The copy is not on this Python's path: mypy finds both modules by their folders.
    command = [
        sys.executable,
        "-m",
        "tests.typecheck",
        "-m",
        "podyard.pricing.meter",
        "-m",
        "podyard.settings",
    ]
    done = subprocess.run(
        command, cwd=tree, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    *errors, summary = done.stdout.splitlines()
    assert {error.partition(": error: ")[0] for error in errors} == {
        f"podyard/settings.py:{len(settings.read_text().splitlines())}",
        f"pricing/meter.py:{len(meter.read_text().splitlines())}",
    }
    assert summary.startswith("Found 2 errors in 2 files")
