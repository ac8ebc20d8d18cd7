"""A running job is resized to another type and back: its checkpoint stays, each step counts once,
and each node is billed for its own seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from podyard.cli.kit.commands import root
from podyard.control.checks import fsck
from podyard.pricing.current_card import default_rate_card
from tests.unit.control.gang import Gang
from tests.yard import Yard, open_yard

ZONE = "europe-west4-a"
SHA = "0" * 64


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        yield found
        card, fleet = default_rate_card(), found.loop.fleet
        wrong = found.database.read(lambda uow: fsck.check(uow, fleet, card))
        assert [str(one.as_json()) for one in wrong] == []


def submit(yard: Yard, **fields: Any) -> tuple[Gang, str]:
    """A job of ten steps on a v3-8 that is made for it, with all of its processes RUNNING."""
    gang = Gang(yard)
    place = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-vm-base"}
    body = {"recipe": "digits-cnn", "steps": 10, "globalBatch": 64, **place, **fields}
    yard.ok("POST", f"{yard.jobs(ZONE)}?jobId=j", body)
    yard.step()
    assert run(gang, 1)
    return gang, f"{yard.jobs(ZONE)}/j"


def run(gang: Gang, count: int) -> list[dict[str, Any]]:
    """The processes of the job, `count` of them, each of which has reported."""
    replicas = gang.sync()
    assert len(replicas) == count
    for replica in replicas:
        assert gang.report(replica).status_code == 200
    return replicas


def save_and_leave(gang: Gang, step: int) -> None:
    """The gang has been asked to yield: its first process saves `step`, and all of them leave."""
    replicas = gang.sync()
    assert gang.report(replicas[0]).json()["desired"] == "YIELD"
    resumed = gang.specification(replicas[0])["resumeStep"]
    gang.points(replicas[0], resumed + 1, step)
    saved = {"step": step, "name": f"c{step}", "sha256": SHA}
    gang.report(replicas[0], state="YIELDED", checkpoints=[saved])
    for replica in replicas[1:]:
        gang.report(replica, state="YIELDED")
    gang.exit_all()
    gang.yard.step(3)


def test_a_job_is_resized_to_a_larger_type_and_back(yard: Yard) -> None:
    gang, path = submit(yard)
    resized = yard.ok("POST", f"{path}:resize", {"acceleratorType": "v3-32"})
    assert "v3-8 to v3-32" in resized["stateReason"]
    save_and_leave(gang, 4)
    larger = run(gang, 4)
    job = yard.ok("GET", path)
    assert (job["state"], job["acceleratorType"], job["stepsDone"]) == ("RUNNING", "v3-32", 4)
    assert gang.specification(larger[0])["resumeStep"] == 4
    yard.ok("POST", f"{path}:resize", {"acceleratorType": "v3-8"})
    save_and_leave(gang, 7)
    smaller = run(gang, 1)
    gang.points(smaller[0], 8, 10)
    last = {"step": 10, "name": "c10", "sha256": SHA}
    gang.report(smaller[0], state="SUCCEEDED", checkpoints=[last])
    gang.exit_all()
    yard.step(3)
    job = yard.ok("GET", path)
    assert (job["state"], job["acceleratorType"]) == ("SUCCEEDED", "v3-8")
    assert (job["failures"], job["preemptions"]) == (0, 0)
    points = yard.ok("GET", f"{path}:metrics?pageSize=100")["metrics"]
    assert [point["step"] for point in points] == list(range(1, 11)), "each step counts once"
    used = yard.usage()["nodes"]
    assert [node["acceleratorType"] for node in used] == ["v3-8", "v3-32", "v3-8"]
    attempts = yard.ok("GET", f"{path}:attempts")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["RESIZED", "RESIZED", "SUCCEEDED"]


def test_the_command_resizes_too(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = submit(yard)
    monkeypatch.setenv("PODYARD_URL", yard.url)
    monkeypatch.setenv("PODYARD_TOKEN", yard.token)
    command = ["job", "resize", "j", "--project=demo", f"--zone={ZONE}"]
    wrong = CliRunner().invoke(root, [*command, "--accelerator-type=v3-32", "--replicas=1"])
    assert wrong.exit_code == 2 and "either --accelerator-type or --replicas" in wrong.output
    done = CliRunner().invoke(root, [*command, "--accelerator-type=v3-32"])
    assert done.exit_code == 0, done.output
    assert "v3-8 to v3-32" in yard.ok("GET", path)["stateReason"]


def test_each_node_is_billed_for_its_own_seconds(yard: Yard) -> None:
    gang, path = submit(yard)
    for _ in range(10):
        yard.step(10)
        run(gang, 1)
    yard.ok("POST", f"{path}:resize", {"acceleratorType": "v3-32"})
    save_and_leave(gang, 1)
    before = {node["acceleratorType"]: node["seconds"] for node in yard.usage()["nodes"]}
    yard.step(50)
    after = {node["acceleratorType"]: node["seconds"] for node in yard.usage()["nodes"]}
    assert after["v3-8"] == before["v3-8"] and 100 <= before["v3-8"] < 104
    assert after["v3-32"] - before["v3-32"] == 50


def test_a_job_on_a_node_that_was_there_moves_to_one_that_is_made_for_it(yard: Yard) -> None:
    yard.create("mine", "v3-8", ZONE)
    gang = Gang(yard)
    body = {"recipe": "digits-cnn", "steps": 10, "globalBatch": 64, "node": "mine"}
    yard.ok("POST", f"{yard.jobs(ZONE)}?jobId=j", body)
    yard.step()
    run(gang, 1)
    yard.ok("POST", f"{yard.jobs(ZONE)}/j:resize", {"acceleratorType": "v3-32"})
    save_and_leave(gang, 2)
    run(gang, 4)
    job = yard.ok("GET", f"{yard.jobs(ZONE)}/j")
    assert (job["node"], job["acceleratorType"]) == ("j", "v3-32")
    assert yard.ok("GET", f"{yard.nodes(ZONE)}/mine")["state"] == "READY", "it stays"


def test_a_type_that_the_job_cannot_have_is_refused_before_anything_changes(yard: Yard) -> None:
    _, path = submit(yard)

    def refuse(status: int, name: str, said: str, kind: str) -> None:
        text = yard.refused(status, name, "POST", f"{path}:resize", {"acceleratorType": kind})
        assert said in text, text

    refuse(400, "INVALID_ARGUMENT", "v3-9", "v3-9")
    refuse(400, "INVALID_ARGUMENT", "globalBatch 64", "v3-128")
    refuse(400, "FAILED_PRECONDITION", "already runs on v3-8", "v3-8")
    both = {"acceleratorType": "v3-32", "replicas": 1}
    yard.refused(400, "INVALID_ARGUMENT", "POST", f"{path}:resize", both)
    yard.refused(400, "INVALID_ARGUMENT", "POST", f"{path}:resize", {})
    yard.step(3)
    job = yard.ok("GET", path)
    assert (job["state"], job["acceleratorType"]) == ("RUNNING", "v3-8")


def test_the_quota_counts_the_chips_that_the_job_gives_back(yard: Yard) -> None:
    gang, path = submit(yard)
    yard.ok("PATCH", "/podyard/v1/projects/demo", {"quota": {"chips": 16}})
    yard.ok("POST", f"{path}:resize", {"acceleratorType": "v3-32"})
    save_and_leave(gang, 1)
    run(gang, 4)
    assert yard.ok("GET", path)["acceleratorType"] == "v3-32"


def test_a_quota_that_is_too_small_refuses_and_the_job_goes_on(yard: Yard) -> None:
    gang, path = submit(yard)
    yard.ok("PATCH", "/podyard/v1/projects/demo", {"quota": {"chips": 15}})
    yard.refused(429, "RESOURCE_EXHAUSTED", "POST", f"{path}:resize", {"acceleratorType": "v3-32"})
    assert gang.report(gang.sync()[0]).json()["desired"] == "RUN"


def test_without_capacity_the_job_continues_on_its_former_type(yard: Yard) -> None:
    gang, path = submit(yard)
    yard.ok("POST", f"{path}:resize", {"acceleratorType": "v3-32"})
    rule = {"effect": "stockout", "match": {"acceleratorType": "v3-32"}}
    yard.ok("POST", "/podyard/v1/faults", rule)
    save_and_leave(gang, 3)
    replica = run(gang, 1)[0]
    assert gang.specification(replica)["resumeStep"] == 3
    job = yard.ok("GET", path)
    assert (job["state"], job["acceleratorType"], job["failures"]) == ("RUNNING", "v3-8", 0)
    outcomes = [one["outcome"] for one in yard.ok("GET", f"{path}:attempts")["attempts"][:-1]]
    assert outcomes == ["RESIZED"]
