"""What `.ci/run` makes of a test that fails: a second try, alone, and its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import patient

ROOT = Path(__file__).resolve().parents[2]
FLAKY = """
import pathlib, pytest

@pytest.mark.xdist_group("stack")
@pytest.mark.parametrize("name", ["a@b"])
def test_that_fails_once(name):
    seen = pathlib.Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
BROKEN = FLAKY + "\ndef test_that_fails_always():\n    assert False\n"

WITHOUT = "-p no:schemathesis -p no:hypothesispytest -p no:podyard -p no:anyio"  # plugins that take seconds to import

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("body", "code"), [(FLAKY, 0), (BROKEN, 1)], ids=["once", "always"])
def test_only_what_fails_twice_fails_the_run(tmp_path: Path, body: str, code: int) -> None:
    (tmp_path / "test_it.py").write_text(body)
    first = _python(tmp_path, "pytest", "-n", "1", "--dist", "loadgroup")
    assert first.returncode == 1, first.stdout
    second = _python(tmp_path, "tests.retry")
    assert second.returncode == code, second.stdout + second.stderr
    assert ("FLAKY test_it.py::test_that_fails_once[a@b]" in second.stdout) == (body == FLAKY)


def test_a_run_without_failed_tests_is_not_tried_again(tmp_path: Path) -> None:
    done = _python(tmp_path, "tests.retry")
    assert done.returncode == 1
    assert "nothing is tried again" in done.stdout


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": f"-p tests.retry {WITHOUT}",
    }
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=patient(60)
    )
