"""The form of a user's own program: file, type, region, count, versions and entry, and commands
that do the same as typed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from podyard.web.front import pages
from tests.unit.control.gang import Gang
from tests.yard import ZONE, Yard, open_yard

FORM = "/console/demo/jobs/program"
FIELDS = {
    "job_id": "typed",
    "file": "my train.py",
    "entry": "my train.py",
    "args": "--epochs 3 'two words'",
    "env": "MODE=fast",
    "node": "",
    "zone": ZONE,
    "accelerator_type": "v2-8",
    "usage": "preemptible",
    "runtime_version": "tpu-vm-base",
    "num_nodes": "2",
    "anywhere": "1",
}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    data = tmp_path / "yard"
    data.mkdir()
    with open_yard(data, routers=(pages.router,)) as found:
        Gang(found)
        yield found


def commands_of(yard: Yard, fields: dict[str, str]) -> dict[str, str]:
    """The commands below the form, by their labels."""
    answer = yard.call("GET", FORM, params=fields)
    assert answer.status_code == 200, answer.text
    boxes = re.findall(r"<summary>(\w+)</summary>\s*<div[^>]*><pre[^>]*><code>(.*?)</code>",
        answer.text, re.DOTALL)  # fmt: skip
    return {label: unescape(text) for label, text in boxes}


def run(yard: Yard, folder: Path, text: str) -> str:
    """Run lines as a user types them; return stdout."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not on PATH")
    env = {**os.environ, "PODYARD_URL": yard.url, "PODYARD_TOKEN": yard.token}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def submitted(yard: Yard) -> dict[str, Any]:
    job = yard.ok("GET", f"{yard.jobs()}/typed")
    names = ("acceleratorType", "numNodes", "run", "fallbacks", "node")
    return {name: job[name] for name in names if name in job}


def test_the_curl_lines_below_the_form_submit_what_the_form_would(
    yard: Yard, tmp_path: Path
) -> None:
    (tmp_path / "my train.py").write_text("print('hello')\n")
    lines = commands_of(yard, FIELDS)
    run(yard, tmp_path, lines["curl"])
    job = submitted(yard)
    assert job["acceleratorType"] == "v2-8" and job["numNodes"] == 2
    assert (
        job["run"]["source"]["uri"].endswith("/my train.py")
        and job["run"]["entry"] == "my train.py"
    )
    assert job["run"]["args"] == ["--epochs", "3", "two words"]
    assert job["run"]["env"] == {"MODE": "fast"}
    places = [one["location"] for one in job["fallbacks"]]
    assert places[:2] == ["us-central1-a", "us-central1-b"], "other zones of the region"
    node = yard.ok("GET", f"{yard.nodes()}/typed-0")
    assert node["schedulingConfig"]["preemptible"] is True


def test_the_podyard_line_names_file_type_region_count_and_class(yard: Yard) -> None:
    line = commands_of(yard, FIELDS)["podyard"]
    flags = ("--run='my train.py'", "--accelerator-type=v2-8", "--version=tpu-vm-base")
    places = ("--num-nodes=2", "--preemptible", "--fallback=@us-central1-b", "--env=MODE=fast")
    for part in (*flags, *places):
        assert part in line, line


def test_an_object_needs_no_upload(yard: Yard) -> None:
    lines = commands_of(yard, {**FIELDS, "file": "", "source": "gs://b/train.zip"})
    assert ":upload" not in lines["curl"] and "gs://b/train.zip" in lines["curl"]


def test_the_form_submits_with_the_other_zones_of_the_region(yard: Yard) -> None:
    fields = {**FIELDS, "file": "", "entry": "", "args": "", "command": "python -c 1"}
    answer = yard.http.post(FORM, data=fields)
    assert answer.status_code == 303, re.findall(r'role="alert"[^>]*>([^<]*)', answer.text)
    places = [one["location"] for one in submitted(yard)["fallbacks"]]
    assert places == ["us-central1-a", "us-central1-b", "us-central1-c"]


def test_the_curl_lines_of_the_documents_run_as_typed(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    document = (Path(__file__).parents[3] / "docs/howto/jobs.md").read_text(encoding="utf-8")
    section = document.partition("## By curl\n")[2]
    lines = section.partition("```bash\n")[2].partition("```")[0]
    first, cancel, rest = lines.partition('curl -sS -X POST "$JOBS/by-curl:cancel"')
    names = "\n".join(line for line in lines.splitlines() if re.match(r"[A-Z]+=[^(]*$", line))
    run(yard, tmp_path, first)
    job = yard.ok("GET", f"{yard.jobs()}/by-curl")
    assert job["run"]["source"]["uri"].endswith("/train.py")
    yard.step()
    assert yard.ok("GET", f"{yard.nodes()}/by-curl")["schedulingConfig"]["preemptible"] is True
    output = run(yard, tmp_path, f"{names}\n{cancel}{rest}")
    assert '"state":"CANCEL' in output.replace(" ", "") and '"verb": "delete"' in output
    Gang(yard).end_what_stops()
    yard.step(3)
    assert yard.call("GET", f"{yard.nodes()}/by-curl").status_code == 404
    assert [one["acceleratorType"] for one in yard.usage()["nodes"]] == ["v2-8"]
