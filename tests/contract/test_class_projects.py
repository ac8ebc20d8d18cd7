"""A class: a project for each student, and nobody sees another's."""

from __future__ import annotations

import gc
import json
import re
import warnings
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from podyard.cli.kit.commands import root
from tests.yard import Yard

STUDENTS = 20


def _podyard(yard: Yard, monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    monkeypatch.setenv("PODYARD_URL", yard.url)
    monkeypatch.setenv("PODYARD_TOKEN", yard.token)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a process of its own would end here
        result = CliRunner().invoke(root, list(argv))
        gc.collect()
    assert result.exit_code == 0, result.output
    return result.stdout


def test_twenty_students_sign_in_by_links_and_see_their_own_project_only(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    argv = [
        "project",
        "create",
        "student-{01..20}",
        "--quota",
        "chips=8",
        "--budget",
        "50",
        "--invite",
        "-o",
        "json",
    ]
    made = json.loads(_podyard(yard, monkeypatch, *argv))
    assert [one["projectId"] for one in made] == [
        f"student-{number:02}" for number in range(1, STUDENTS + 1)
    ]
    for number, one in enumerate(made):
        with httpx.Client(base_url=yard.url) as browser:
            code = re.search(r"code=(\S+)", one["link"])
            assert code is not None
            assert "<button" in browser.get(one["link"]).text, "looking at a link uses nothing up"
            signed_in = browser.post("/sign-in", data={"code": code[1]})
            assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/console")
            again = browser.post("/sign-in", data={"code": code[1]})
            assert again.status_code == 400, "it works once"
            token = browser.cookies["podyard_session"]
        with httpx.Client(
            base_url=yard.url, headers={"Authorization": f"Bearer {token}"}
        ) as student:
            seen = student.get("/podyard/v1/projects").json()["projects"]
            assert [found["projectId"] for found in seen] == [one["projectId"]]
            other = made[(number + 1) % STUDENTS]["projectId"]
            for path in (
                f"/v2/projects/{other}/locations/-/nodes",
                f"/podyard/v1/projects/{other}/budgets",
            ):
                assert student.get(path).status_code == 403
            own = f"/podyard/v1/projects/{one['projectId']}"
            assert student.get(f"{own}/budgets").json()["budgets"][0]["amount"].startswith("50")
            assert student.put(f"{own}/budgets/project", json={"amount": "5000"}).status_code == 403
            assert student.patch(own, json={"quota": {"chips": 999}}).status_code == 403


def test_a_quota_of_chips_counts_all_zones_and_a_reset_keeps_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    _podyard(yard, monkeypatch, "project", "create", "s-1", "--quota", "chips=4")
    nodes = "/v2/projects/s-1/locations/{}/nodes?nodeId={}"
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    yard.ok("POST", nodes.format("us-central1-f", "one"), body)
    yard.step()
    text = yard.refused(
        429, "RESOURCE_EXHAUSTED", "POST", nodes.format("europe-west4-a", "two"), body
    )
    assert "may hold 4 chips" in text
    assert yard.ok("GET", "/podyard/v1/projects")["projects"][-1]["quota"] == {"chips": 4}
    _podyard(yard, monkeypatch, "project", "update", "s-1", "--quota", "chips=none")
    assert "quota" not in yard.ok("GET", "/podyard/v1/projects")["projects"][-1]


def test_a_sign_in_link_works_once_and_direct_opening_needs_no_click(yard: Yard) -> None:
    link = yard.ok("POST", "/podyard/v1/signInLinks")["path"]
    with httpx.Client(base_url=yard.url) as browser:
        assert "<button" in browser.get(link, headers={"Sec-Fetch-Site": "cross-site"}).text
        opened = browser.get(link, headers={"Sec-Fetch-Site": "none"})
        assert (opened.status_code, browser.cookies["podyard_session"]) == (303, yard.token)
        assert browser.get(link, headers={"Sec-Fetch-Site": "none"}).status_code == 404
    late = yard.ok("POST", "/podyard/v1/signInLinks")["path"]
    yard.clock.advance(61.0)
    with httpx.Client(base_url=yard.url) as browser:
        assert browser.get(late, headers={"Sec-Fetch-Site": "none"}).status_code == 404
