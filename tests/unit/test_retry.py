"""What `.ci/run` makes of a test that fails: a second try, alone, and its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nested_pytest import run_module

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


pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("body", "code"), [(FLAKY, 0), (BROKEN, 1)], ids=["once", "always"])
def test_only_what_fails_twice_fails_the_run(tmp_path: Path, body: str, code: int) -> None:
    (tmp_path / "test_it.py").write_text(body)
    first = run_module(tmp_path, "tests.retry", "pytest", "-n", "1", "--dist", "loadgroup")
    assert first.returncode == 1, first.stdout
    second = run_module(tmp_path, "tests.retry", "tests.retry")
    assert second.returncode == code, second.stdout + second.stderr
    assert ("FLAKY test_it.py::test_that_fails_once[a@b]" in second.stdout) == (body == FLAKY)


def test_a_run_without_failed_tests_is_not_tried_again(tmp_path: Path) -> None:
    done = run_module(tmp_path, "tests.retry", "tests.retry")
    assert done.returncode == 1
    assert "nothing is tried again" in done.stdout
