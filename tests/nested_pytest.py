"""Runs of pytest inside of a test, on files in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import patient

ROOT = Path(__file__).resolve().parents[1]
# plugins that take seconds to import
WITHOUT = "-p no:schemathesis -p no:hypothesispytest -p no:podyard -p no:anyio"


def run_module(
    folder: Path, plugin: str, *arguments: str, changes: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -m ARGUMENTS` in the folder; each pytest that it starts has our `plugin`, and nothing
    of this run."""
    own = ("PYTEST_", "PODYARD_TEST_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    env |= dict(changes or {})
    env |= {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": f"-p {plugin} {WITHOUT}"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
