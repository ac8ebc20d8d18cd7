"""The tier of each test: one of two, and few smoke tests in the first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers
from tests.nested_pytest import ROOT, run_module
from tests.tiers import Tier, tier_of

# Code that asks for the kind of the database, or whose SQL has another form on each.
_BY_DATABASE = re.compile(
    r"dialect\.name|is_sqlite|insert_with_conflict|skip_locked|advisory"
    r"|\.as_(string|integer)\(|clock_timestamp"
)
SMOKE_TESTS = 10
FILE = """
import pytest

def test_plain(): pass

@pytest.mark.real
def test_real(): pass

@pytest.mark.smoke
def test_smoke(): pass

@pytest.mark.long
def test_long(): pass

@pytest.fixture(params=["sqlite", "postgresql"])
def database_kind(request): return request.param

def test_stored(database_kind): pass

@pytest.fixture
def postgresql_url(): pass

def test_on_postgresql(postgresql_url): pass
"""


@pytest.mark.parametrize(
    ("file", "markers", "on_postgresql", "tier"),
    [
        ("tests/unit/test_a.py", {"slow"}, False, Tier.TEST),
        ("tests/contract/test_a.py", {"real"}, False, Tier.REAL),
        ("tests/contract/test_a.py", {"real", "smoke"}, False, Tier.TEST),
        ("tests/distributed/test_a.py", set(), False, Tier.REAL),
        ("tests/distributed/test_a.py", {"smoke"}, True, Tier.TEST),
        ("tests/clients/test_a.py", set(), False, Tier.REAL),
        ("tests/store/test_storage.py", set(), False, Tier.TEST),
        ("tests/store/test_storage.py", set(), True, Tier.REAL),
        ("tests/store/test_units_of_work.py", set(), True, Tier.TEST),
    ],
)
def test_folder_markers_and_database_decide(
    file: str, markers: set[str], on_postgresql: bool, tier: Tier
) -> None:
    assert tier_of(file, markers, on_postgresql=on_postgresql) is tier


def test_the_list_has_the_code_that_asks_for_the_database_and_files_that_exist() -> None:
    files = [
        *ROOT.glob("podyard/db/**/*.py"),
        *ROOT.glob("podyard/control/**/*.py"),
        *ROOT.glob("migrations/*.py"),
    ]
    by_database = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if _BY_DATABASE.search(path.read_text(encoding="utf-8"))
    }
    assert by_database == tiers.SQL_DIFFERS.keys()
    shown = {file for files in tiers.SQL_DIFFERS.values() for file in files}
    assert [file for file in shown if not (ROOT / file).is_file()] == []


@pytest.mark.slow
def test_each_test_is_of_one_tier_and_long_ones_of_neither_run(tmp_path: Path) -> None:
    for folder in ("unit", "store", "distributed"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / f"test_{folder}.py").write_text(FILE)
    first, second, both = (
        _tests(tmp_path, *words) for words in (("--tier", "test"), ("--tier", "real"), ())
    )
    assert len(both) == 3 * 6
    assert first | second == both and not first & second
    expected = {"test_plain", "test_smoke", "test_stored[sqlite]"}
    assert first == {("unit", name) for name in expected} | {
        ("store", name) for name in expected
    } | {("distributed", "test_smoke")}


def _tests(folder: Path, *words: str) -> set[tuple[str, str]]:
    done = run_module(folder, "tests.selection", "pytest", "-v", "-n", "0", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"tests/(\w+)/\w+\.py::(\S+) PASSED", done.stdout))


@pytest.mark.slow
def test_ten_tests_are_smoke_tests_and_one_pass_of_the_browser() -> None:
    files = [
        str(path)
        for path in ROOT.glob("tests/*/test_*.py")
        if "mark.smoke" in path.read_text(encoding="utf-8")
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "smoke",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    smoke = set(
        re.findall(r"^(tests/.*::\w+)", done.stdout, re.MULTILINE)
    )  # one name with all of its parameters
    browser = {name for name in smoke if name.startswith("tests/browser/")}
    assert (len(smoke - browser), len(browser)) == (SMOKE_TESTS, 1)
