"""A job's page and the list of jobs: what is known so far comes first, and why a job ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.web.front import pages
from tests.unit.control.gang import Gang, submit
from tests.yard import Yard, open_yard

JOB = "/console/demo/jobs/us-central1-f/j"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with open_yard(tmp_path, routers=(pages.router,)) as yard:
        yard.create("n")
        yield Gang(yard)


def page(yard: Yard, path: str = JOB) -> str:
    answer = yard.call("GET", path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_job_that_has_measured_nothing_shows_its_log_first(gang: Gang) -> None:
    submit(gang)
    replica = gang.sync()[0]
    gang.report(replica)
    html = page(gang.yard)
    assert html.index('id="logs"') < html.index("data-curves=")
    gang.points(replica, 1, 3)
    html = page(gang.yard)
    assert html.index("data-curves=") < html.index('id="logs"')


def test_the_cost_on_a_real_slice_is_that_of_the_steps_done(gang: Gang) -> None:
    submit(gang)
    replica = gang.sync()[0]
    gang.report(replica)
    gang.points(replica, 1, 4)
    gang.yard.step(10)
    (job,) = gang.yard.ok("GET", "/podyard/v1/projects/demo/costs?month=2026-03")["jobs"]
    assert job["steps"] == 4
    assert job["estimate"] == "0.002500000000", "4 steps of 0.5 s at 4.50 an hour"


def test_the_list_says_why_a_job_ended(gang: Gang) -> None:
    submit(gang, maxFailures=0)
    replica = gang.sync()[0]
    gang.report(replica)
    gang.report(replica, state="FAILED", error="exit code 1: no module named flax")
    gang.exit_all()
    gang.yard.step(3)
    html = page(gang.yard, "/console/demo/jobs")
    assert "no module named flax" in html


def test_a_comparison_shows_the_differences_only_if_asked(gang: Gang) -> None:
    submit(gang, "a", timeLimitSeconds=60)
    submit(gang, "b", seed=7)
    query = "job=us-central1-f/a&job=us-central1-f/b"
    html = page(gang.yard, f"/console/demo/compare?{query}")
    assert "Differences only" in html and ">Zone</th>" in html and ">Seed</th>" in html
    html = page(gang.yard, f"/console/demo/compare?{query}&only=1")
    assert ">Zone</th>" not in html and ">Seed</th>" in html and "All rows" in html


def test_a_comparison_marks_the_best_value_of_what_it_understands(gang: Gang) -> None:
    gang.yard.create("other")
    submit(gang, "a")
    submit(gang, "b", node="other")
    for replica, loss in zip(gang.sync(), (0.5, 0.25), strict=True):
        metrics = {"loss": loss, "val_accuracy": 1 - loss, "rounds": loss}
        numbers = {"metrics": metrics, "wallSeconds": 0.1, "modelledSeconds": 0.5}
        gang.report(replica, metrics=[{"step": 1, **numbers}])
    html = page(gang.yard, "/console/demo/compare?job=us-central1-f/a&job=us-central1-f/b")
    rows = {
        label: re.sub(r"<[^>]+>|\s", " ", cells).split()
        for label, cells in re.findall(r'<tr><th scope="row">([^<]+)</th>(.*?)</tr>', html, re.S)
    }
    assert sorted(rows["Loss"]) == ["0.25", "0.5", "best"]
    assert rows["Loss"].index("best") == rows["Loss"].index("0.25") + 1
    accuracy = rows["Validation accuracy"]
    assert accuracy.index("best") == accuracy.index("0.75") + 1
    assert "best" not in rows["Rounds"] + rows["Steps"]
    assert rows["Time limit"] == ["–", "–"], "no limit is not a limit of no seconds"


def test_a_nodes_page_leads_to_the_resizing_of_its_jobs(gang: Gang) -> None:
    submit(gang)
    path = "/console/demo/nodes/us-central1-f/n"
    assert f'href="{JOB}/type"' in page(gang.yard, path)
    gang.yard.ok("POST", f"{gang.yard.jobs()}/j:cancel", {})
    gang.exit_all()
    gang.yard.step(3)
    assert f'href="{JOB}/type"' not in page(gang.yard, path)
