"""The forms of jobs: which node they begin with, and what the job takes before it is submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from podyard.web.front import pages
from tests.unit.control.gang import Gang
from tests.yard import ZONE, Yard, open_yard

FORM = "/console/demo/jobs/new"
PROGRAM = "/console/demo/jobs/program"
ROLES = ["tpu.viewer", "jobs.runner"]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, routers=(pages.router,)) as found:
        yield found


def chosen_node(html: str) -> str:
    """The value of the node that is selected."""
    (select,) = re.findall(r'<select id="node".*?</select>', html, re.DOTALL)
    (value,) = re.findall(r'<option value="([^"]*)" selected', select)
    return str(value)


@pytest.mark.parametrize("form", [FORM, PROGRAM])
def test_a_form_begins_with_no_node_of_another_user(yard: Yard, form: str) -> None:
    yard.create("aaa")
    body = {"email": "ann@example.com", "project": "demo", "roles": ROLES}
    ann = {"Authorization": f"Bearer {yard.ok('POST', '/podyard/v1/tokens', body)['token']}"}
    html = yard.bare.get(form, headers=ann).text
    assert chosen_node(html) == "", "a new one"
    assert re.search(r"aaa \(v2-8, us-central1-f; of [^)]+@", unescape(html)), "whose it is"
    mine = yard.call("GET", form).text
    assert chosen_node(mine) == f"{ZONE}/aaa"
    assert "; of " not in re.findall(r'<select id="node".*?</select>', mine, re.DOTALL)[0]


def test_a_form_begins_with_no_node_that_goes_with_another_job(yard: Yard) -> None:
    Gang(yard)
    place = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    yard.ok("POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "steps": 10, **place})
    yard.step()
    html = yard.call("GET", FORM).text
    assert f"{ZONE}/j" in html and chosen_node(html) == ""


@pytest.mark.slow
def test_time_memory_and_cost_of_this_job_stand_in_its_form(yard: Yard) -> None:
    yard.create("mine")
    first = yard.call("GET", FORM).text
    assert 'name="estimate"' in first and "On a real v2-8" not in first, "not in the first paint"
    html = unescape(yard.call("GET", FORM, params={"estimate": "1", "steps": "1000"}).text)
    text = " ".join(re.sub(r"<[^>]+>", " ", html[html.index("On a real v2-8") :]).split())
    assert re.match(r"On a real v2-8 1,000 steps of [\d.]+ [mu]?s", text), text[:200]
    assert re.search(r"Memory [\d.]+ \w+ of [\d.]+ GiB per core: fits", text), text[:300]
    assert re.search(r"Cost \$\d", text), text[:300]


@pytest.mark.slow
def test_a_job_that_does_not_fit_says_so_before_it_is_submitted(yard: Yard) -> None:
    asked = {"estimate": "1", "global_batch": "1048576", "node": ""}
    html = unescape(yard.call("GET", FORM, params=asked).text)
    assert "does not fit" in html


def test_a_program_has_no_estimate_in_a_form_of_another_mode(yard: Yard) -> None:
    asked = {"estimate": "1", "mode": "evaluate", "start_from": "j", "node": ""}
    html = yard.call("GET", FORM, params=asked).text
    assert "On a real" not in html and 'name="estimate"' not in html


@pytest.mark.parametrize("form", [FORM, PROGRAM])
def test_versions_of_tpu_nodes_can_be_chosen_and_the_form_names_what_runs(
    yard: Yard, form: str
) -> None:
    html = yard.call("GET", f"{form}?node=&accelerator_type=v2-8&runtime_version=1.14").text
    (select,) = re.findall(r'<select id="runtime_version".*?</select>', html, re.DOTALL)
    assert re.search(r'<option value="1.14" selected', select)
    assert "Programs run with TensorFlow 2.15.1 on Python 3." in unescape(html)
    newer = yard.call("GET", f"{form}?node=&zone=us-central2-b&accelerator_type=v4-8").text
    assert 'value="1.14"' not in newer
    node = yard.call("GET", "/console/demo/nodes/new?accelerator_type=v2-8").text
    assert 'value="1.14"' not in node, "API v2 takes no version of TPU Nodes"


def test_a_job_takes_a_version_of_tpu_nodes(yard: Yard) -> None:
    Gang(yard)
    place = {"acceleratorType": "v2-8", "runtimeVersion": "1.14"}
    job = yard.ok("POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "steps": 10, **place})
    node = yard.ok("GET", f"/v2/projects/demo/locations/{ZONE}/nodes/j")
    assert node["runtimeVersion"] == "1.14" and job["name"].endswith("/j")
