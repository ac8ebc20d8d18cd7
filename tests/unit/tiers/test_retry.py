"""`python -m tests.retry`: a file of `make test` that has failed runs once more, alone, unless it
is known to be flaky."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import flaky
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


PLUGINS = "tests.retry -p tests.selection"


@pytest.mark.parametrize(("body", "code"), [(FLAKY, 0), (BROKEN, 1)], ids=["once", "always"])
def test_only_what_fails_twice_fails_the_run(tmp_path: Path, body: str, code: int) -> None:
    (tmp_path / "test_it.py").write_text(body)
    (tmp_path / "test_other.py").write_text("def test_that_passes(): pass")
    first = run_module(tmp_path, PLUGINS, "pytest", "-n", "1", "--dist", "loadgroup")
    assert first.returncode == 1, first.stdout
    second = run_module(tmp_path, PLUGINS, "tests.retry")
    assert second.returncode == code, second.stdout + second.stderr
    assert ("FLAKY test_it.py\n" in second.stdout) == (body == FLAKY)
    assert "test_other.py" not in second.stdout
    end = f"{'1 passed' if body == FLAKY else '1 failed, 1 passed'} in"
    assert end in second.stdout, "the whole file"


def test_a_run_without_failed_tests_is_not_tried_again(tmp_path: Path) -> None:
    done = run_module(tmp_path, PLUGINS, "tests.retry")
    assert done.returncode == 1
    assert "nothing is tried again" in done.stdout


def test_a_file_that_is_known_to_be_flaky_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FLAKY)
    (tmp_path / "flaky.txt").write_text(
        "test_it.py: it looks for a file that the first run makes\n"
    )
    run_module(tmp_path, PLUGINS, "pytest", "-n", "0")
    text = (
        "from pathlib import Path; from tests import flaky, retry; "
        "flaky.LIST = Path('flaky.txt'); exit(retry.main())"
    )
    (tmp_path / "listed.py").write_text(text)
    done = run_module(tmp_path, PLUGINS, "listed")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_it.py is listed in tests/flaky.txt (it looks for" in done.stdout


def test_the_list_of_flaky_files_names_causes_and_files_that_exist() -> None:
    assert flaky.parse("# a comment\n\ntests/a.py: the port: it is taken\n") == {
        "tests/a.py": "the port: it is taken"
    }
    with pytest.raises(ValueError, match="names no cause"):
        flaky.parse("tests/a.py\n")
    assert [file for file in flaky.known() if not Path(file).is_file()] == []
