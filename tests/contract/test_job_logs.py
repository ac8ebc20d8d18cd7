"""Lines of jobs over REST, by the command line and in the console."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import OsClock
from podyard.workers.kit.http_client import JsonClient
from podyard.workers.replica.reporter import Reporter
from tests.contract.world import World, open_copy
from tests.unit.control.gang import Gang
from tests.yard import open_yard

FLOOD_LINES = 20_000
LINES = {
    "seq": 0,
    "lines": 3,
    "at": "2026-03-01T00:00:00Z",
    "millis": 20,
    "text": "o0 one\ne10 two\np20 three\n",
}


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
    assert [
        line["line"]
        for line in yard.ok("GET", f"{path}:logs?stream=platform&worker=0&attempt=1")["lines"]
    ] == ["three"]
    answer = yard.http.get(f"{path}:logText?stream=stderr")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.endswith(" [1.0] stderr two\n")


def test_a_page_begins_at_the_end_or_at_a_time_and_leads_back(world: World) -> None:
    path = f"{world.yard.jobs()}/j:logs"
    end = world.yard.ok("GET", f"{path}?from=end&pageSize=1")
    assert ([line["line"] for line in end["lines"]], end["more"]) == (["three"], False)
    before = world.yard.ok(
        "GET", f"{path}?from=before&pageSize=2&pageToken={end['previousPageToken']}"
    )
    assert [line["line"] for line in before["lines"]] == ["one", "two"]
    assert (before["more"], "previousPageToken" in before) == (True, False)
    later = world.yard.ok("GET", f"{path}?from=time&time={before['lines'][1]['time']}")
    # all of the same time
    assert [line["line"] for line in later["lines"]] == ["one", "two", "three"]
    assert world.yard.ok("GET", f"{path}?from=time&time=2027-01-01T00:00:00Z")["lines"] == []
    assert world.yard.ok("GET", f"{path}?from=error")["lines"] == [*before["lines"], *end["lines"]]


@pytest.mark.parametrize(
    "query",
    [
        "stream=other",
        "worker=x",
        "attempt=-1",
        "pageToken=MTp4",
        "lines=3",
        "from=middle",
        "from=time",
        "from=time&time=yesterday",
        "time=2026-03-01T00:00:00Z",
    ],
)
def test_what_is_no_choice_of_lines_is_refused(world: World, query: str) -> None:
    world.yard.refused(400, "INVALID_ARGUMENT", "GET", f"{world.yard.jobs()}/j:logs?{query}")


def test_a_report_says_which_line_is_expected_next(world: World) -> None:
    answer = world.gang.report(world.replica, log={**LINES, "seq": 9})
    assert answer.json()["nextLine"] == 3


def test_what_ended_the_job_stands_first(world: World) -> None:
    trace = "e0 Traceback (most recent call last):\ne1 ValueError: no\n"
    world.gang.report(world.replica, log={**LINES, "seq": 3, "lines": 2, "text": trace})
    world.gang.report(world.replica, state="FAILED", error="ValueError: no")
    world.gang.exit_all()
    job = world.yard.ok("GET", f"{world.yard.jobs()}/j")
    lines = ["Traceback (most recent call last):", "ValueError: no"]
    assert job["failure"] == {"attempt": 1, "worker": 0, "lines": lines}
    assert list(job)[:4] == ["name", "state", "stateReason", "failure"]


def test_four_workers_write_at_once_and_no_line_is_lost(tmp_path: Path) -> None:
    with open_yard(tmp_path) as yard:
        yard.create("n", "v2-32", zone="us-central1-a")
        gang = Gang(yard)
        body = {"recipe": "digits-cnn", "node": "n", "steps": 10}
        yard.ok("POST", f"{yard.jobs('us-central1-a')}?jobId=j", body)
        yard.step()
        replicas = gang.sync()
        assert len(replicas) == 4
        threads = [
            threading.Thread(target=_flood, args=(yard.url, replica)) for replica in replicas
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found: dict[int, list[str]] = {}
        place, more = "", True
        while more:
            path = f"{yard.jobs('us-central1-a')}/j:logs?pageSize=5000&pageToken={place}"
            page = yard.ok("GET", path)
            for line in page["lines"]:
                found.setdefault(line["worker"], []).append(line["line"])
            place, more = page["nextPageToken"], page["more"]
    assert found == {rank: [f"line {number}" for number in range(FLOOD_LINES)] for rank in range(4)}


def _flood(url: str, replica: dict[str, Any]) -> None:
    """As a replica does it, with more lines than wait at once."""
    api = JsonClient(url, replica["token"])
    reporter = Reporter(
        api, replica["replica"], replica["fence"], 600.0, 0, OsClock(), pytest.fail, pytest.fail
    )
    reporter.start()
    for number in range(FLOOD_LINES):
        reporter.log(f"line {number}")
    reporter.close("SUCCEEDED", None)
    api.close()
