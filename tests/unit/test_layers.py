"""The layers are checked by a machine that really follows the linked folders."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("api", "scheduler", "workers", "pricing", "web", "migrations")
pytestmark = pytest.mark.slow


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).parent / "lint-imports"
    env = {"PATH": str(tool.parent), "PYTHONPATH": str(root)}
    return subprocess.run([str(tool), "--no-cache"], cwd=root, env=env, capture_output=True, text=True)


def test_an_upward_import_in_a_linked_folder_is_caught(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("podyard", *LINKED):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert _lint(tmp_path).returncode == 0, _lint(tmp_path).stdout
    cycle = tmp_path / "scheduler" / "cycle.py"
    cycle.write_text(cycle.read_text() + "\nfrom podyard.control import nodes\n\n_ = nodes\n")
    done = _lint(tmp_path)
    assert done.returncode == 1
    assert "podyard.scheduler.cycle -> podyard.control.nodes" in done.stdout
