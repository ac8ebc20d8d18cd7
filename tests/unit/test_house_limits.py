"""The ratchet: each figure of the house has its recorded limit, and a limit only falls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.house import figures, limits
from tests.house.figures import Figure
from tests.house.limits import Limits

ROOT = Path(__file__).parents[2]
RECORDED = Limits({"circles": 0, "long": 2}, {"long": {"a.py": 70, "b.py": 80}})


def test_every_figure_of_this_tree_is_at_its_limit() -> None:
    counted = [item for item in figures.figures(figures.load()) if item.is_limited]
    assert limits.breaches(limits.read(), counted) == []


def test_no_limit_has_risen_in_the_history() -> None:
    assert limits.rises_in_history(ROOT) == []


@pytest.mark.parametrize(
    ("figure", "breach"),
    [
        (Figure("circles", 1), "circles: 1, at most 0 are allowed"),
        (Figure("circles", -1), "circles: -1 is below the limit of 0: record it"),
        (Figure("other", 1), "other: no limit is recorded"),
        (
            Figure("long", 2, items={"a.py": 71, "b.py": 80}),
            "long: a.py has 71, at most 70 are allowed",
        ),
        (
            Figure("long", 2, items={"a.py": 69, "b.py": 80}),
            "long: a.py has 69, below its limit 70: record it",
        ),
        (Figure("long", 2, items={"a.py": 70, "c.py": 61}), "long: c.py (61) is new"),
        (Figure("long", 2, items={"a.py": 70}), "long: b.py is an exception no longer: record it"),
    ],
)
def test_a_figure_that_leaves_its_limit_is_a_breach(figure: Figure, breach: str) -> None:
    assert breach in limits.breaches(RECORDED, [figure])


def test_a_limit_without_a_figure_is_a_breach() -> None:
    long = Figure("long", 2, items={"a.py": 70, "b.py": 80})
    assert limits.breaches(RECORDED, [long]) == ["circles: the limit has no figure"]


def test_recording_lowers_and_never_raises() -> None:
    counted = [Figure("circles", 3), Figure("long", 2, items={"a.py": 65, "c.py": 90})]
    assert limits.lowered(RECORDED, counted) == Limits(
        {"circles": 0, "long": 2}, {"long": {"a.py": 65}}
    )
    first = limits.lowered(Limits({}, {}), [Figure("new", 1, items={"a.py": 65})])
    assert first == Limits({"new": 1}, {"new": {"a.py": 65}})


def test_an_empty_list_of_exceptions_stays_empty() -> None:
    empty = Limits({"long": 0}, {})
    counted = [Figure("long", 1, items={"a.py": 65})]
    assert limits.lowered(empty, counted) == Limits({"long": 0}, {})
    assert limits.raised(empty, Limits({"long": 0}, {"long": {"a.py": 65}})) == [
        "long, a.py: no exception -> 65"
    ]


def test_a_raised_limit_is_seen() -> None:
    assert limits.raised(RECORDED, Limits({"circles": 1, "long": 2}, RECORDED.exceptions)) == [
        "circles: 0 -> 1"
    ]
    assert limits.raised(RECORDED, Limits(RECORDED.figures, {"long": {"a.py": 71}})) == [
        "long, a.py: 70 -> 71"
    ]
    assert limits.raised(RECORDED, Limits({"new": 5, "long": 1}, {"long": {"a.py": 70}})) == []


def test_a_file_that_moves_keeps_its_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    def commit(size: int, file: str) -> None:
        limits.write(Limits({"long": 1}, {"long": {f"{file}: function": size}}))
        git("add", "-A")
        git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "change")

    monkeypatch.setattr(limits, "FILE", tmp_path / "limits.toml")
    git("init", "-q")
    (tmp_path / "old.py").write_text("\n".join(map(str, range(100))))
    commit(80, "old.py")
    (tmp_path / "room").mkdir()
    git("mv", "old.py", "room/new.py")
    commit(80, "room/new.py")
    assert limits.rises_in_history(tmp_path) == []
    git("mv", "room/new.py", "newest.py")
    commit(81, "newest.py")
    assert limits.rises_in_history(tmp_path) == ["long, newest.py: function: 80 -> 81"]
    commit(81, "other.py")
    assert limits.rises_in_history(tmp_path)[1:] == ["long, other.py: function: no exception -> 81"]


def test_limits_are_written_as_they_are_read() -> None:
    assert limits.parse(limits.spell(RECORDED)) == RECORDED
