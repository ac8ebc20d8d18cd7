"""The run of the real tier: its order, its limits of time, second runs and the last line."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from podyard.base.clock import ManualClock, RealTime
from tests.nested_pytest import ROOT, run_module
from tests.real import changes, environments, record, runs
from tests.real.files import FileResult, RealFile, read_collected, read_results
from tests.real.forecast import (
    BATCH_SECONDS,
    START_SECONDS,
    batch_seconds,
    next_batch,
    pace,
    seconds_of,
)
from tests.real.imports import distances, read_graph
from tests.real.order import order
from tests.real.record import Entry
from tests.real.report import closing_lines
from tests.real.runs import Run
from tests.real.session import Deadlines, Session

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
COMMIT = "c0ffee"


def _file(name: str, group: str = "stack", *environments: str) -> RealFile:
    return RealFile(f"tests/{name}.py", 2, group, environments)


def _entry(seconds: float = 10, after: float = 0) -> Entry:
    return Entry(COMMIT, START.plus_seconds(after), seconds)


A, B, C = (_file(f"distributed/test_{name}") for name in "abc")
CLIENT = _file("clients/test_sky", "", "sky", "ray")


def test_files_that_the_change_touches_come_first_then_the_oldest_and_clients_last() -> None:
    near, nearer, far = (_file(f"distributed/test_{name}") for name in ("near", "nearer", "far"))
    entries = {file.name: _entry(after=5) for file in (near, nearer)}
    entries |= {A.name: _entry(after=2), B.name: _entry(after=1), far.name: _entry(after=3)}
    imports = {near.name: 2, nearer.name: 0, far.name: 3, CLIENT.name: 0}
    files = [CLIENT, A, B, C, far, near, nearer]
    assert order(files, entries, imports, COMMIT) == [nearer, near, C, B, A, far, CLIENT]


def test_without_a_record_the_commit_draws_the_order() -> None:
    files = [_file(f"distributed/test_{number}") for number in range(8)]
    first = {order(files, {}, {}, f"{commit:040x}")[0].name for commit in range(100)}
    assert len(first) == 8
    assert order(files, {}, {}, COMMIT) == order(files[::-1], {}, {}, COMMIT)


def test_imports_are_counted_along_the_shortest_way_functions_included() -> None:
    graph = read_graph({
        "tests/test_a.py": "from tests import helper\nimport podyard.main\n",
        "tests/helper.py": "def f():\n    from podyard.web.app import run\n",
        "web/app.py": "import podyard.main\nimport json\n",
        "podyard/main.py": "",
        "podyard/other.py": "import podyard.main",
    })  # fmt: skip
    assert distances(graph, "tests/test_a.py") == {
        "tests/test_a.py": 0, "tests/helper.py": 1, "podyard/main.py": 1, "web/app.py": 2,
    }  # fmt: skip


def test_a_forecast_is_the_record_or_the_tests_of_the_folder() -> None:
    assert seconds_of(A, {A.name: _entry(33)}) == 33
    assert seconds_of(A, {}) == pytest.approx(2 * 8.4)
    assert seconds_of(_file("store/test_a"), {}) == pytest.approx(1.0)


def test_files_of_a_group_take_turns_and_environments_are_installed_once() -> None:
    entries = {A.name: _entry(30), B.name: _entry(20), CLIENT.name: _entry(40)}
    free = dataclasses.replace(C, group="")
    entries[free.name] = _entry(10)
    assert batch_seconds([A, B], entries, ()) == START_SECONDS + 50
    assert (
        batch_seconds([A, dataclasses.replace(B, group="browser")], entries, ())
        == START_SECONDS + 30
    )
    assert batch_seconds([A, B, free], entries, ()) == START_SECONDS + 50
    assert batch_seconds([free], entries, ()) == START_SECONDS + 5
    assert batch_seconds([CLIENT], entries, ()) == START_SECONDS + 20
    assert batch_seconds([CLIENT], entries, ("ray",)) == START_SECONDS + 80


def test_a_batch_is_short_and_has_what_ends_in_time() -> None:
    long = {file.name: _entry(BATCH_SECONDS) for file in (A, B, C)}
    assert next_batch([A, B, C], long, (), float("inf")) == [A]
    entries = {A.name: _entry(90), B.name: _entry(200), C.name: _entry(30), CLIENT.name: _entry(1)}
    assert next_batch([A, B, C, CLIENT], entries, (), float("inf")) == [A, C]
    assert next_batch([A, B, C, CLIENT], entries, (), 100.0) == [A]
    assert next_batch([B, C, CLIENT], entries, (), 100.0) == [C]
    assert next_batch([CLIENT, A], entries, (), 400.0) == [CLIENT]
    assert next_batch([CLIENT], entries, ("sky",), 60.0) == []
    other = _file("clients/test_ray")
    entries[other.name] = _entry(1)
    assert next_batch([CLIENT, A, other], entries, (), 400.0) == [CLIENT, other]
    assert next_batch([A, B, C, CLIENT], entries, (), START_SECONDS) == []


def test_the_pace_is_the_slowness_until_enough_has_run() -> None:
    assert pace(2.0, 0, 0) == 2.0
    assert 1.0 < pace(2.0, 120, 120) < 2.0
    assert pace(2.0, 12_000, 12_000) == pytest.approx(1.0, abs=0.02)


def test_the_record_is_read_back_and_a_damaged_one_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "real.json"
    assert record.read(path) == {}
    entries = {A.name: _entry(12.5), B.name: _entry(3, after=0.25)}
    record.write(path, entries)
    assert record.read(path) == entries
    for damaged in ("", "[]", '{"files": {"a": {"commit": 1}}}', '{"files": {"a": 3}}'):
        path.write_text(damaged)
        assert record.read(path) == {}


def test_the_record_is_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert record.default_path() == tmp_path / "podyard" / "real.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert record.default_path() == Path.home() / ".cache" / "podyard" / "real.json"


TESTS = """
import pytest
pytestmark = pytest.mark.xdist_group("stack")

@pytest.fixture
def broken():
    yield
    assert False

def test_passes(): pass
def test_fails(): assert False
def test_is_skipped(): pytest.skip("why")
def test_fails_at_its_end(broken): assert False
"""


@pytest.mark.slow
def test_reports_of_a_run_say_how_each_test_ended(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "test_b.py").write_text("def test_b(): pass")
    collected, reports = tmp_path / "collected", tmp_path / "reports"
    done = run_module(
        tmp_path,
        "tests.reports",
        "pytest",
        "-n",
        "0",
        "--collect-only",
        "--reports",
        str(collected),
    )
    assert done.returncode == 0, done.stdout
    files = read_collected(collected.read_text().splitlines())
    assert files == [RealFile("test_a.py", 4, "stack"), RealFile("test_b.py", 1)]
    run_module(
        tmp_path,
        "tests.reports",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "--reports",
        str(reports),
    )
    a, b = read_results(files, reports.read_text().splitlines())
    assert (a.done, a.failed, a.skipped, a.is_whole, a.has_passed) == (4, 2, 1, True, False)
    assert (b.done, b.failed, b.has_passed) == (1, 0, True)


def test_a_run_that_is_cut_off_leaves_files_that_are_not_whole() -> None:
    report = {"file": A.name, "test": "a", "when": "teardown", "outcome": "passed", "seconds": 2.0}
    (a,) = read_results([A], [json.dumps(report)])
    assert (a.is_whole, a.has_passed, a.seconds) == (False, False, 2.0)


# Of the real tier by its marker: otherwise the run leaves it out and is over by itself.
ENDLESS_TEST = """
import time

import pytest


@pytest.mark.real
def test_it():
    time.sleep(3600)
"""


@pytest.mark.slow
def test_a_run_is_ended_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real\n")
    (tmp_path / "test_it.py").write_text(ENDLESS_TEST)
    plugins = "-p tests.reports -p tests.selection -p no:podyard -p no:schemathesis"
    monkeypatch.setenv("PYTEST_ADDOPTS", plugins)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    run = runs.run([RealFile("test_it.py", 1)], 2.0)
    assert (run.is_ended, run.results[0].is_whole, run.results[0].failed) == (True, False, 0)


def _git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    command = ["git", *identity, *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def _commit(folder: Path, texts: Mapping[str, str]) -> str:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "change")
    return _git(folder, "rev-parse", "HEAD").strip()


@pytest.mark.slow
def test_changes_are_those_since_a_file_last_ran_or_else_of_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    _git(tmp_path, "init", "-q")
    a, b, c = (RealFile(f"tests/real/test_{name}.py", 1) for name in "abc")
    first = _commit(tmp_path, {
        a.name: "import podyard.main", b.name: "PROGRAM = 'losses.py'", c.name: "import json",
        "podyard/main.py": "", "tests/programs/losses.py": "",
    })  # fmt: skip
    assert changes.imports_to_changes([a, b], {}) == {}, "there is no commit before the first"
    second = _commit(tmp_path, {"podyard/main.py": "x = 1", "tests/programs/losses.py": "x = 1"})
    third = _commit(tmp_path, {"tests/real/conftest.py": "", c.name: "import re"})
    assert third == changes.head()
    assert changes.imports_to_changes([a, b, c], {}) == {a.name: 1, b.name: 1, c.name: 0}
    record = {
        file.name: Entry(commit, START, 1)
        for file, commit in zip([a, b, c], [first, second, third], strict=True)
    }
    (tmp_path / "podyard" / "main.py").write_text("x = 2")
    assert changes.imports_to_changes([a, b, c], record) == {a.name: 1, b.name: 1}
    _git(tmp_path, "checkout", "-q", "podyard")
    gone = {a.name: Entry("0" * 40, START, 1)}
    assert changes.imports_to_changes([a], gone) == {a.name: 1}, "as without a record"


def test_a_client_needs_the_environments_that_its_file_names() -> None:
    prices = environments.with_environments(RealFile("tests/clients/test_prices.py", 4))
    assert prices.environments == ("gpuhunt", "sky")
    assert environments.targets([prices]) == [
        ".venv-clients/gpuhunt/.made",
        ".venv-clients/sky/.made",
    ]
    assert environments.with_environments(A) == A


class Rehearsal:
    """Files that take their seconds and fail as often as `fails` says; the clock goes on with
    them."""

    def __init__(
        self, fails: Mapping[str, int] | None = None, limits: Deadlines | None = None
    ) -> None:
        self.fails = dict(fails or {})
        self.clock = ManualClock(START)
        self.runs: list[list[str]] = []
        self.saved: dict[str, Entry] = {}
        self.session = Session(
            self._run,
            self._missing,
            self._save,
            self.clock,
            limits or Deadlines(),
            {C.name},
            1.0,
            COMMIT,
            {},
        )

    def _missing(self, names: Collection[str]) -> Sequence[str]:
        return sorted(names)

    def _save(self, entries: Mapping[str, Entry]) -> None:
        self.saved = dict(entries)

    def _run(self, files: Sequence[RealFile], seconds_max: float | None) -> Run:
        self.runs.append([file.name for file in files])
        forecast = batch_seconds(files, self.session.record, ())
        seconds = forecast if seconds_max is None else min(forecast, seconds_max)
        self.clock.advance(seconds)
        is_ended = seconds < forecast
        return Run([self._result(file, is_ended) for file in files], seconds, is_ended)

    def _result(self, file: RealFile, is_ended: bool) -> FileResult:
        failed = int(self.fails.get(file.name, 0) > 0)
        self.fails[file.name] = self.fails.get(file.name, 0) - 1
        done = file.tests - int(is_ended)
        return FileResult(file.name, file.tests, done, failed, 0, 10.0)


def test_a_file_that_fails_once_is_flaky_one_that_fails_twice_or_is_known_fails() -> None:
    rehearsal = Rehearsal({A.name: 1, B.name: 2, C.name: 1})
    free = _file("store/test_d", "")
    assert rehearsal.session.run_all([A, B, C, free]) == []
    assert rehearsal.runs == [[A.name, B.name, C.name, free.name], [A.name], [B.name]]
    assert (rehearsal.session.flaky, rehearsal.session.failed) == ([A.name], [B.name, C.name])
    assert rehearsal.saved.keys() == {A.name, free.name}
    assert closing_lines(rehearsal.session, ["tests/unit/test_x.py"], 4, [], 3.2) == [
        f"FAILED {B.name}",
        f"FAILED {C.name}",
        "FLAKY tests/unit/test_x.py: enter it in tests/flaky.txt with its cause",
        f"FLAKY {A.name}: enter it in tests/flaky.txt with its cause",
        "6 passed, 2 failed",
        "real: 4 of 4 files ran in 3 min",
    ]


def test_nothing_starts_that_is_forecast_to_end_after_the_soft_limit() -> None:
    began = ManualClock(START).monotonic_seconds()
    rehearsal = Rehearsal(limits=Deadlines(began + 50, began + 100))
    left_out = rehearsal.session.run_all([A, B, C, CLIENT])
    assert left_out == [C, CLIENT]
    assert rehearsal.runs == [[A.name, B.name]]
    last = closing_lines(rehearsal.session, [], 4, left_out, 1)[-1]
    assert (
        last
        == "real: 2 of 4 files ran in 1 min; left out: distributed/test_c.py, clients/test_sky.py"
    )


def test_what_runs_at_the_hard_limit_is_left_out_and_fails_only_by_a_test_that_has_failed() -> None:
    began = ManualClock(START).monotonic_seconds()
    rehearsal = Rehearsal({B.name: 3}, Deadlines(began + 60, began + 30))
    assert rehearsal.session.run_all([A, B]) == [A]
    assert rehearsal.runs == [[A.name, B.name]], "no time is left for a second run"
    assert rehearsal.session.failed == [B.name]
    assert closing_lines(rehearsal.session, [], 2, [A], 1)[-2:] == [
        "0 passed, 1 failed",
        "real: 1 of 2 files ran in 1 min; left out: distributed/test_a.py",
    ]
    assert rehearsal.saved == {}
