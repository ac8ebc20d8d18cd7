"""Resizing a job in the console: price, quota and room stand before the click."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from podyard.web.front import pages
from tests.unit.control.gang import Gang
from tests.yard import Yard, open_yard

ZONE = "europe-west4-a"
JOB = f"/console/demo/jobs/{ZONE}/j"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    """An agent that runs a job on a v3-8 which was made for it."""
    with open_yard(tmp_path, routers=(pages.router,)) as yard:
        found = Gang(yard)
        place = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-vm-base"}
        body = {"recipe": "digits-cnn", "steps": 10, "globalBatch": 64, **place}
        yard.ok("POST", f"{yard.jobs(ZONE)}?jobId=j", body)
        yard.step()
        found.report(found.sync()[0])
        yield found


def rows(yard: Yard) -> dict[str, str]:
    """The rows of the types by their names, as text."""
    html = yard.call("GET", f"{JOB}/type").text
    cells = re.findall(r"<tr>\s*<th scope=\"row\"[^>]*>(.*?)</tr>", html, re.DOTALL)
    texts = [" ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in cells]
    return {text.split()[0]: text for text in texts}


def test_price_quota_and_room_stand_before_the_click(gang: Gang) -> None:
    yard = gang.yard
    assert f'href="{JOB}/type"' in yard.call("GET", JOB).text
    found = rows(yard)
    assert "now" in found["v3-8"] and "$8.80" in found["v3-8"]
    assert found["v3-32"] == "v3-32 16 4 $32.00 now no limit"
    yard.ok("PATCH", "/podyard/v1/projects/demo", {"quota": {"chips": 20}})
    said = "now no limit, 20 chips of the project"
    assert rows(yard)["v3-32"].endswith(said), "the job's own chips are given back"
    assert "globalBatch 64" in found["v3-128"], "a type that it cannot have says why"
    html = yard.call("GET", f"{JOB}/type").text
    assert 'value="v3-32"' in html and 'value="v3-128"' not in html
    assert "podyard job resize j" in html and "j:resize" in html


def test_a_click_resizes_the_job(gang: Gang) -> None:
    yard = gang.yard
    answer = yard.http.post(f"{JOB}/type", data={"type": "v3-32"})
    assert answer.status_code == 303 and answer.headers["location"] == JOB
    replica = gang.sync()[0]
    assert gang.report(replica).json()["desired"] == "YIELD"
    saved = {"step": 1, "name": "c1", "sha256": "0" * 64}
    gang.report(replica, state="YIELDED", checkpoints=[saved])
    assert "already being resized to v3-32" in yard.call("GET", f"{JOB}/type").text
    gang.exit_all()
    yard.step(3)
    assert yard.ok("GET", f"{yard.jobs(ZONE)}/j")["acceleratorType"] == "v3-32"
    assert "v3-32" in yard.call("GET", JOB).text


def test_a_refusal_stands_on_the_page_and_changes_nothing(gang: Gang) -> None:
    yard = gang.yard
    answer = yard.http.post(f"{JOB}/type", data={"type": "v3-128"})
    assert answer.status_code == 400 and "globalBatch 64" in unescape(answer.text)
    assert yard.ok("GET", f"{yard.jobs(ZONE)}/j")["state"] == "RUNNING"


def test_who_may_not_resize_sees_no_button(gang: Gang) -> None:
    yard = gang.yard
    body = {"email": "viewer@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    viewer = {"Authorization": f"Bearer {yard.ok('POST', '/podyard/v1/tokens', body)['token']}"}
    assert f"{JOB}/type" not in yard.bare.get(JOB, headers=viewer).text
    assert yard.bare.get(f"{JOB}/type", headers=viewer).status_code == 403
    refused = yard.bare.post(f"{JOB}/type", data={"type": "v3-32"}, headers=viewer)
    assert refused.status_code == 403


def test_a_job_that_has_ended_keeps_its_type(gang: Gang) -> None:
    yard = gang.yard
    yard.ok("POST", f"{yard.jobs(ZONE)}/j:cancel", {})
    gang.exit_all()
    yard.step(3)
    assert f'href="{JOB}/type"' not in yard.call("GET", JOB).text
    html = yard.call("GET", f"{JOB}/type").text
    assert "Job j is CANCELLED and cannot be resized." in html and 'type="radio"' not in html
