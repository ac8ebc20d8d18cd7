"""Lines of jobs over REST, by the command line and in the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.world import World, open_copy

LINES = {"seq": 0, "lines": 3, "at": "2026-03-01T00:00:00Z", "millis": 20, "text": "o0 one\ne10 two\np20 three\n"}


@pytest.fixture
def world(prepared_world: World, tmp_path: Path) -> Iterator[World]:
    with open_copy(prepared_world, tmp_path) as found:
        assert found.gang.report(found.replica, log=LINES).json()["nextLine"] == 3
        yield found


def test_lines_are_read_chosen_and_downloaded(world: World) -> None:
    yard = world.yard
    path = f"{yard.jobs()}/j"
    page = yard.ok("GET", f"{path}:logs")
    assert [(line["stream"], line["line"]) for line in page["lines"]] == [
        ("stdout", "one"), ("stderr", "two"), ("platform", "three")
    ]  # fmt: skip
    assert page["more"] is False
    again = yard.ok("GET", f"{path}:logs?pageToken={page['nextPageToken']}")
    assert again["lines"] == []
    assert [line["line"] for line in yard.ok("GET", f"{path}:logs?search=TWO")["lines"]] == ["two"]
    assert [line["line"] for line in yard.ok("GET", f"{path}:logs?stream=platform&worker=0&attempt=1")["lines"]] == [
        "three"
    ]
    answer = yard.http.get(f"{path}:logText?stream=stderr")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.endswith(" [1.0] stderr two\n")


@pytest.mark.parametrize("query", ["stream=other", "worker=x", "attempt=-1", "pageToken=MTp4", "lines=3"])
def test_what_is_no_choice_of_lines_is_refused(world: World, query: str) -> None:
    world.yard.refused(400, "INVALID_ARGUMENT", "GET", f"{world.yard.jobs()}/j:logs?{query}")


def test_a_report_says_which_line_is_expected_next(world: World) -> None:
    answer = world.gang.report(world.replica, log={**LINES, "seq": 9})
    assert answer.json()["nextLine"] == 3
