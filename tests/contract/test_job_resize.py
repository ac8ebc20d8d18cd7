"""`podyard job resize` and its REST, with a pretended agent behind them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.control.gang import Gang
from tests.yard import Yard, open_yard

ZONE = "europe-west4-a"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        for name, value in (
            ("URL", found.url),
            ("TOKEN", found.token),
            ("LOCATION", ZONE),
            ("PROJECT", "demo"),
        ):
            monkeypatch.setenv(f"PODYARD_{name}", value)
        yield found


@pytest.fixture
def gang(yard: Yard) -> Gang:
    """The four processes of an elastic job, all of which run."""
    yard.create("pod", "v3-32", ZONE)
    found = Gang(yard)
    body = {"recipe": "digits-cnn", "node": "pod", "steps": 10, "elastic": {"minReplicas": 1}}
    yard.ok("POST", f"{yard.jobs(ZONE)}?jobId=j", body)
    yard.step()
    assert len(run(found)) == 4
    return found


def run(gang: Gang) -> list[dict[str, str]]:
    replicas = gang.sync()
    for replica in replicas:
        assert gang.report(replica).status_code == 200
    return replicas


def resize(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from podyard.main import cli; cli()",
        "job",
        "resize",
        "j",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_job_goes_on_with_the_size_that_it_is_set_to(gang: Gang) -> None:
    path = f"{gang.yard.jobs(ZONE)}/j"
    assert gang.yard.ok("POST", f"{path}:resize", {"replicas": 2})["elastic"]["maxReplicas"] == 2
    for replica in gang.sync():
        gang.report(replica, state="YIELDED")
    gang.exit_all()
    gang.yard.step()
    assert len(run(gang)) == 2
    shown = gang.yard.ok("GET", path)
    assert (shown["state"], shown["preemptions"], shown["failures"]) == ("RUNNING", 0, 0)
    done = resize("--replicas", "max", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "maxReplicas" not in gang.yard.ok("GET", path)["elastic"]


def test_the_gang_is_asked_at_once(gang: Gang) -> None:
    assert resize("--replicas", "1").returncode == 0
    replica = gang.sync()[0]
    assert gang.report(replica).json()["desired"] == "YIELD"
    assert "set to 1 of 4 hosts" in gang.yard.ok("GET", f"{gang.yard.jobs(ZONE)}/j")["stateReason"]


def test_what_is_no_size_is_refused(gang: Gang) -> None:
    path = f"{gang.yard.jobs(ZONE)}/j:resize"
    for body in (
        {},
        {"replicas": "many"},
        {"replicas": 2.5},
        {"replicas": True},
        {"replicas": 2, "hosts": 2},
    ):
        gang.yard.refused(400, "INVALID_ARGUMENT", "POST", path, body)
    said = gang.yard.refused(400, "INVALID_ARGUMENT", "POST", path, {"replicas": 5})
    assert "its slice has room for 4 at most" in said
    gang.yard.refused(
        404, "NOT_FOUND", "POST", f"{gang.yard.jobs(ZONE)}/nobody:resize", {"replicas": 2}
    )
    wrong = resize("--replicas", "few")
    assert wrong.returncode == 2 and "--replicas" in wrong.stderr
