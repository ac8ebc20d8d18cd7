"""Jobs on several slices, over HTTP: how their nodes are made, placed, lost, made again and
deleted, all together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.control.gang import Gang
from tests.yard import ZONE, Yard

NODE = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
SPOT = {"schedulingConfig": {"spot": True}}


def _submit(yard: Yard, job: str = "j", count: int = 2, **fields: Any) -> str:
    body = {"run": {"command": "true"}, "numNodes": count, **NODE, **fields}
    yard.ok("POST", f"{yard.jobs()}?jobId={job}", body)
    return f"{yard.jobs()}/{job}"


def _nodes(yard: Yard, zone: str = "-") -> dict[str, str]:
    """State by id, without the fixture's node."""
    found = yard.ok("GET", yard.nodes(zone)).get("nodes", [])
    return {
        node["name"].rsplit("/", 1)[1]: node["state"]
        for node in found
        if not node["name"].endswith("/n")
    }


def _turn(gang: Gang, rounds: int = 4) -> None:
    """The loop turns; processes and hosts that are to stop are gone."""
    for _ in range(rounds):
        gang.yard.step(1.5)
        gang.end_what_stops()


def test_a_gang_runs_on_all_hosts_of_all_slices(gang: Gang) -> None:
    yard = gang.yard
    path = _submit(yard)
    assert yard.ok("GET", path)["nodes"] == ["j-0", "j-1"]
    yard.step()
    first, second = gang.sync()
    told = sorted(
        (gang.specification(replica) for replica in (first, second)), key=lambda one: one["rank"]
    )
    assert [(one["rank"], one["processCount"], one["hostCount"],
        one["hostIndices"]) for one in told] == [
        (0, 2, 2, [0]), (1, 2, 2, [1]),
    ]  # fmt: skip
    inside = [pair[0] for pair in told[0]["run"]["workers"]]
    assert told[0]["run"]["workers"] == told[1]["run"]["workers"]
    assert len(set(inside)) == 2
    assert all(outside.startswith("127.") for _, outside in told[0]["run"]["workers"])
    facts = gang.sync_hosts([])["nodes"].values()
    slices = [one["facts"]["multislice"] for one in facts]
    assert sorted((one["slice_id"], one["slice_count"]) for one in slices) == [(0, 2), (1, 2)]
    assert {one["coordinator_internal_ip"] for one in slices} == {inside[0]}
    for replica in (first, second):
        gang.report(replica, state="SUCCEEDED")
    _turn(gang)
    gang.exit_all()
    _turn(gang)
    assert yard.ok("GET", path)["state"] == "SUCCEEDED"
    assert _nodes(yard) == {}, "the nodes go with the job"


def _run(gang: Gang, seconds: int) -> None:
    for _ in range(seconds // 5):
        for replica in gang.sync():
            gang.report(replica)
        gang.yard.step(5)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_the_cost_of_a_job_is_that_of_all_nodes_that_it_had(gang: Gang, count: int) -> None:
    yard = gang.yard
    path = _submit(yard, count=count, **SPOT)
    yard.step()
    _run(gang, 100)
    first = yard.ok("GET", path)["node"]
    yard.ok("POST", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/{first}:preempt", {})
    _turn(gang)
    _run(gang, 50)
    for replica in gang.sync():
        gang.report(replica, state="SUCCEEDED")
    gang.exit_all()
    job = yard.ok("GET", path)
    assert job["attempt"] == 2
    used = [node for node in yard.usage()["nodes"] if "/nodes/j" in node["node"]]
    assert len(used) == 2 * count
    costs = yard.ok("GET", "/podyard/v1/projects/demo/costs")
    (row,) = [one for one in costs["jobs"] if one["name"] == job["name"]]
    assert row["seconds"] == sum(node["seconds"] for node in used) >= count * (100 + 50)
    assert float(job["cost"]) == pytest.approx(
        sum(float(node["amount"]) for node in used), abs=1e-9
    )


def test_slices_are_placed_together_or_not_at_all(gang: Gang) -> None:
    yard = gang.yard
    yard.ok(
        "POST", "/podyard/v1/faults", {"effect": "stockout", "match": {"zone": ZONE}, "count": 1}
    )
    path = _submit(yard, fallbacks=[{"location": "us-central1-b"}])
    yard.step()
    assert _nodes(yard, ZONE) == {}, "one of the two was denied its chips: neither is left"
    yard.step(1.5)
    job = yard.ok("GET", path)
    assert (job["nodeZone"], job["nodes"]) == ("us-central1-b", ["j-0", "j-1"])
    yard.step()
    assert _nodes(yard, "us-central1-b") == {"j-0": "READY", "j-1": "READY"}


def test_a_preempted_slice_ends_the_attempt_and_all_are_made_again(gang: Gang) -> None:
    yard = gang.yard
    path = _submit(yard, **SPOT)
    yard.step()
    for replica in gang.sync():
        gang.report(replica)
    before = {node["name"]: node["id"] for node in yard.ok("GET", yard.nodes())["nodes"]}
    yard.ok("POST", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/j-1:preempt", {})
    assert {one["desired"] for one in gang.sync()} == {"STOP"}
    job = yard.ok("GET", path)
    assert (job["state"], job["preemptions"]) == ("RECOVERING", 0)
    _turn(gang)
    job = yard.ok("GET", path)
    assert (job["state"], job["attempt"], job["preemptions"]) == ("PREPARING", 2, 1)
    after = {node["name"]: node["id"] for node in yard.ok("GET", yard.nodes())["nodes"]}
    assert after.keys() == before.keys()
    assert not {after[name] for name in after if "/j-" in name} & {
        before[name] for name in before
    }, "both are new"
    assert len(gang.sync()) == 2


def test_a_slice_that_its_user_deletes_ends_the_job_and_the_others(gang: Gang) -> None:
    yard = gang.yard
    path = _submit(yard)
    yard.step()
    for replica in gang.sync():
        gang.report(replica)
    yard.ok("DELETE", f"{yard.nodes()}/j-1")
    _turn(gang)
    job = yard.ok("GET", path)
    assert job["state"] == "FAILED"
    assert "node j-1 is" in job["error"]["message"]
    assert _nodes(yard) == {}


def test_another_job_on_a_slice_of_a_job_takes_its_turn(gang: Gang) -> None:
    yard = gang.yard
    _submit(yard)
    yard.step()
    assert len(gang.sync()) == 2
    other = yard.ok(
        "POST", f"{yard.jobs()}?jobId=other", {"node": "j-1", "recipe": "digits-cnn", "steps": 10}
    )
    yard.step(1)
    found = yard.ok("GET", f"/podyard/v1/{other['name']}")
    assert (found["state"], found["stateReason"]) == ("QUEUED", "node j-1 is busy with job j")


def test_kept_slices_stay_and_a_copy_makes_its_own(gang: Gang) -> None:
    yard = gang.yard
    path = _submit(yard, keepNode=True)
    yard.step()
    for replica in gang.sync():
        gang.report(replica, state="SUCCEEDED")
    gang.exit_all()
    _turn(gang)
    assert yard.ok("GET", path)["state"] == "SUCCEEDED"
    assert _nodes(yard) == {"j-0": "READY", "j-1": "READY"}
    copy = yard.ok("POST", f"{yard.jobs()}?jobId=copy", {"cloneOf": "j"})
    assert (copy["numNodes"], copy["nodes"], copy["keepNode"]) == (2, ["copy-0", "copy-1"], True)
    one = yard.ok("POST", f"{yard.jobs()}?jobId=one", {"cloneOf": "j", "node": "n"})
    assert (one["node"], "numNodes" in one) == ("n", False)


def test_idle_slices_are_deleted_together(gang: Gang) -> None:
    yard = gang.yard
    _submit(yard, autostopSeconds=30)
    yard.step()
    for replica in gang.sync():
        gang.report(replica, state="SUCCEEDED")
    gang.exit_all()
    yard.step(20)
    assert _nodes(yard) == {"j-0": "READY", "j-1": "READY"}
    yard.step(15)
    _turn(gang)
    assert _nodes(yard) == {}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"numNodes": 0}, "numNodes is 0: it must be from 1 to 64"),
        ({"numNodes": 65}, "numNodes is 65: it must be from 1 to 64"),
        ({"numNodes": "2"}, "Invalid value"),
        ({"run": None, "recipe": "digits-cnn"}, "numNodes requires run"),
        (
            {"acceleratorType": None, "runtimeVersion": None, "node": "n"},
            "numNodes is for nodes that are created",
        ),
    ],
)
def test_what_has_no_slices_is_refused(gang: Gang, fields: dict[str, Any], why: str) -> None:
    body = {"run": {"command": "true"}, "numNodes": 2, **NODE, **fields}
    path = f"{gang.yard.jobs()}?jobId=j"
    text = gang.yard.refused(
        400, "INVALID_ARGUMENT", "POST", path, {k: v for k, v in body.items() if v is not None}
    )
    assert why in text
    assert _nodes(gang.yard) == {}


def test_jobs_of_a_sweep_have_one_slice_each(gang: Gang) -> None:
    path = f"/podyard/v1/projects/demo/locations/{ZONE}/sweeps?sweepId=s"
    body = {"run": {"command": "true"}, "numNodes": 2, **NODE, "values": {"A": ["1", "2"]}}
    text = gang.yard.refused(400, "INVALID_ARGUMENT", "POST", path, body)
    assert text == "the jobs of a sweep run on one slice each: remove numNodes"


def test_quota_counts_all_slices(gang: Gang) -> None:
    yard = gang.yard
    yard.ok("POST", "/podyard/v1/faults", {"effect": "quota", "limit": 16})
    body = {"run": {"command": "true"}, "numNodes": 2, **NODE}
    # n has the other 8 cores
    yard.refused(429, "RESOURCE_EXHAUSTED", "POST", f"{yard.jobs()}?jobId=j", body)
    assert _nodes(yard) == {}
