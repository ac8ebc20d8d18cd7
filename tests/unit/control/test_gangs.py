"""Attempts as the control plane sees them: an agent and its replicas are played by the test, over
HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.db.jobs import jobs as job_rows
from podyard.domain.job import Job
from podyard.domain.lists.pages import Order, RowQuery
from podyard.settings import Leases
from podyard.web.jobs import copies as job_copy
from podyard.web.jobs.place import NEW_NODE
from tests.builders import node_spec
from tests.unit.control.gang import Gang, submit

LEASES = Leases()


def test_a_job_goes_through_its_states_and_pokes_its_agent(gang: Gang) -> None:
    path = submit(gang)
    yard = gang.yard
    assert yard.ok("GET", path)["state"] == "PREPARING"
    assert ("agent.local", "podyard.poke_agent", ["local"]) in yard.sent
    (replica,) = gang.sync()
    assert gang.points(replica, 1, 10).json()["desired"] == "RUN"
    assert yard.ok("GET", path)["state"] == "RUNNING"
    gang.report(replica, state="SUCCEEDED", summary={"testAccuracy": 0.99})
    assert yard.ok("GET", path)["state"] == "RUNNING"  # its process has not gone yet
    assert gang.exit_all() == []
    job = yard.ok("GET", path)
    assert (job["state"], job["stepsDone"], job["modelledSeconds"]) == ("SUCCEEDED", 10, 5.0)
    assert job["metrics"]["latest"]["testAccuracy"] == 0.99


def test_a_replica_that_exits_unasked_is_recovered_from_the_last_checkpoint(gang: Gang) -> None:
    path = submit(gang)
    (first,) = gang.sync()
    saved = [{"step": 4, "name": "checkpoint-4", "sha256": "0" * 64}]
    gang.points(first, 1, 6)
    gang.report(first, checkpoints=saved)
    gang.exit_all()
    assert gang.yard.ok("GET", path)["state"] == "RECOVERING"
    gang.yard.step()
    (second,) = gang.sync()
    assert second["fence"] == first["fence"] + 1
    spec = gang.specification(second)
    assert "resume" not in spec
    assert (spec["resumeStep"], spec["attempt"]) == (4, 2)
    gang.points(second, 5, 10)
    found = gang.yard.ok("GET", f"{path}:metrics")["metrics"]
    assert [(p["step"], p["attempt"]) for p in found] == [
        (s, 1 if s <= 4 else 2) for s in range(1, 11)
    ]
    assert gang.yard.ok("GET", path)["modelledSeconds"] == 5.0


def test_what_a_gang_says_while_it_is_ended_is_kept_for_the_next_one(gang: Gang) -> None:
    """The first replica's last report comes after another one's end was seen."""
    yard = gang.yard
    yard.create("pod", "v3-32", "europe-west4-a")
    body = {"recipe": "digits-cnn", "steps": 10, "globalBatch": 128, "node": "pod"}
    path = f"{yard.jobs('europe-west4-a')}/j"
    yard.ok("POST", f"{yard.jobs('europe-west4-a')}?jobId=j", body)
    yard.step()
    first, *others = gang.sync()
    ranks = {gang.specification(replica)["rank"]: replica for replica in (first, *others)}
    gang.points(ranks[0], 1, 3)
    gang.report(ranks[1], state="FAILED", error="killed")
    assert yard.ok("GET", path)["state"] == "RECOVERING"
    gang.points(ranks[0], 4, 5)
    late = gang.report(
        ranks[0], checkpoints=[{"step": 5, "name": "checkpoint-5", "sha256": "0" * 64}]
    )
    assert late.json()["desired"] == "STOP"
    gang.exit_all()
    yard.step()
    assert {gang.specification(replica)["resumeStep"] for replica in gang.sync()} == {5}
    assert yard.ok("GET", path)["stepsDone"] == 5


def test_a_job_fails_when_its_failures_are_used_up(gang: Gang) -> None:
    path = submit(gang, maxFailures=1)
    for _ in range(2):
        gang.exit_all()
        gang.yard.step()
    job = gang.yard.ok("GET", path)
    assert (job["state"], job["error"]["status"]) == ("FAILED", "ABORTED")
    assert "2 attempts failed (maxFailures 1)" in job["error"]["message"]
    assert gang.sync() == []


def test_a_machine_that_leaves_in_order_is_no_failure_of_the_job(gang: Gang) -> None:
    path = submit(gang, maxFailures=0)
    gang.exit_all(released=True)
    gang.yard.step()
    job = gang.yard.ok("GET", path)
    assert (job["state"], job["failures"], job["preemptions"]) == ("PREPARING", 0, 1)


def test_a_job_survives_more_lost_machines_than_it_may_have_failures(gang: Gang) -> None:
    path = submit(gang, maxFailures=3)
    for _ in range(5):
        (replica,) = gang.sync()
        gang.points(replica, 1, 2)
        gang.yard.step(LEASES.replica_seconds + 1)
        gang.register()
        gang.yard.step(1)
    job = gang.yard.ok("GET", path)
    assert (job["failures"], job["preemptions"]) == (0, 5)
    (replica,) = gang.sync()
    gang.points(replica, 1, 10)
    gang.report(replica, state="SUCCEEDED")
    gang.exit_all()
    assert gang.yard.ok("GET", path)["state"] == "SUCCEEDED"


def test_lost_machines_end_a_job_after_its_max_preemptions(gang: Gang) -> None:
    path = submit(gang, maxPreemptions=1)
    for _ in range(2):
        gang.sync()
        gang.yard.step(LEASES.replica_seconds + 1)
        gang.register()
        gang.yard.step(1)
    job = gang.yard.ok("GET", path)
    assert (job["state"], job["error"]["status"]) == ("FAILED", "ABORTED")
    assert "preempted 2 times (maxPreemptions 1)" in job["error"]["message"]


@pytest.mark.parametrize("is_lost", [True, False], ids=["machine lost", "machine well"])
def test_peers_that_fail_since_a_machine_is_lost_are_no_failure(gang: Gang, is_lost: bool) -> None:
    """The ring breaks at once; that a machine is lost is known when its lease is over."""
    yard = gang.yard
    yard.create("pod", "v3-32", "europe-west4-a")
    body = {"recipe": "digits-cnn", "steps": 10, "globalBatch": 128, "node": "pod"}
    path = f"{yard.jobs('europe-west4-a')}/j"
    yard.ok("POST", f"{yard.jobs('europe-west4-a')}?jobId=j", {**body, "maxFailures": 3})
    yard.step()
    ranks = {gang.specification(replica)["rank"]: replica for replica in gang.sync()}
    gang.points(ranks[0], 1, 3)
    gang.report(ranks[1], state="FAILED", error="host 3 closed the connection")
    assert yard.ok("GET", path)["state"] == "RECOVERING"
    if is_lost:
        yard.step(LEASES.replica_seconds + 1)
    else:
        gang.exit_all()
    job = yard.ok("GET", path)
    assert (job["failures"], job["preemptions"]) == ((0, 1) if is_lost else (1, 0))
    (attempt,) = yard.ok("GET", f"{path}:attempts")["attempts"]
    assert attempt["outcome"] == ("PREEMPTED" if is_lost else "FAILED")


def test_steps_come_once_and_without_a_gap(gang: Gang) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 3)
    assert gang.points(replica, 2, 5).status_code == 200  # doubled: kept once
    assert gang.points(replica, 7, 8).status_code == 400
    assert [p["step"] for p in gang.yard.ok("GET", f"{path}:metrics")["metrics"]] == [1, 2, 3, 4, 5]


def test_an_old_fence_is_refused(gang: Gang) -> None:
    submit(gang)
    (replica,) = gang.sync()
    assert gang.report({**replica, "fence": 99}).status_code == 409
    old = gang.fence
    gang.register()
    gang.fence, new = old, gang.fence
    with pytest.raises(AssertionError, match="has registered again"):
        gang.sync()
    gang.fence = new
    assert len(gang.sync()) == 1


def test_a_silent_replica_is_lost_after_its_lease_and_never_before_the_loop_has_watched_one(
    gang: Gang,
) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 2)
    gang.yard.step(LEASES.replica_seconds - 1)
    assert gang.yard.ok("GET", path)["state"] == "RUNNING"
    gang.yard.step(3)
    # The agent has been silent as well: its replica is written off, and the job waits for an agent.
    job = gang.yard.ok("GET", path)
    assert job["state"] == "RECOVERING"
    assert "room for 0" in job["stateReason"]
    (attempt,) = gang.yard.ok("GET", f"{path}:attempts")["attempts"]
    assert attempt["reason"] == "replica 0: agent local is silent and the lease is over"
    gang.register()
    gang.yard.step(1)
    assert gang.yard.ok("GET", path)["state"] == "PREPARING"


def test_a_loop_that_comes_back_does_not_declare_anybody_lost_at_once(gang: Gang) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 2)
    gang.yard.clock.advance(10 * LEASES.replica_seconds)  # nobody could report: the machine slept
    gang.yard.step()
    gang.yard.step(1)
    assert gang.yard.ok("GET", path)["state"] == "RUNNING"
    gang.sync()
    gang.points(replica, 3, 4)
    gang.yard.step(LEASES.replica_seconds / 2)
    assert gang.yard.ok("GET", path)["state"] == "RUNNING"


def test_chips_are_given_back_only_when_the_last_process_is_gone(gang: Gang) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 2)
    gang.yard.ok("DELETE", f"{gang.yard.nodes()}/n")
    gang.yard.step(2)
    held = lambda: sum(  # noqa: E731
        p["chipsHeld"] for p in gang.yard.ok("GET", "/podyard/v1/projects/demo/pods")["pods"]
    )
    assert held() == 4
    assert gang.report(replica).json()["desired"] == "STOP"
    gang.exit_all()
    gang.yard.step(2)
    assert held() == 0
    assert gang.yard.ok("GET", path)["state"] == "FAILED"


def test_a_gang_is_placed_whole_or_not_at_all(gang: Gang) -> None:
    yard = gang.yard
    yard.create("pod", "v3-32", "europe-west4-a")
    yard.create("big", "v3-64", "europe-west4-a")
    body = {"recipe": "digits-cnn", "steps": 10, "globalBatch": 128}
    text = yard.refused(
        400, "FAILED_PRECONDITION", "POST", yard.jobs("europe-west4-a"), {**body, "node": "big"}
    )
    assert "needs 8 replicas" in text
    assert "at most 4" in text
    yard.ok("POST", f"{yard.jobs()}?jobId=a", {**body, "node": "n"})
    yard.step()
    yard.ok("POST", f"{yard.jobs('europe-west4-a')}?jobId=b", {**body, "node": "pod"})
    yard.step()
    waiting = yard.ok("GET", f"{yard.jobs('europe-west4-a')}/b")
    assert waiting["state"] == "QUEUED"
    assert (
        waiting["stateReason"]
        == "4 replicas are needed at once and the live agents have room for 3"
    )
    assert len(gang.sync()) == 1
    gang.exit_all()
    yard.ok("POST", f"{yard.jobs()}/a:cancel", {})
    yard.step()
    assert len(gang.sync()) == 4


def _own_node(gang: Gang, **fields: Any) -> str:
    body = {
        "recipe": "digits-cnn",
        "steps": 10,
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
    }
    gang.yard.ok(
        "POST",
        f"{gang.yard.jobs()}?jobId=j",
        {**body, "schedulingConfig": {"spot": True}, **fields},
    )
    gang.yard.step(1)
    return f"{gang.yard.jobs()}/j"


def test_a_job_whose_own_spot_node_is_preempted_gets_another_and_resumes(gang: Gang) -> None:
    path = _own_node(gang)
    (first,) = gang.sync()
    gang.points(first, 1, 6)
    gang.report(first, checkpoints=[{"step": 5, "name": "checkpoint-5", "sha256": "0" * 64}])
    gang.yard.ok("POST", "/podyard/v1/projects/demo/locations/us-central1-f/nodes/j:preempt", {})
    assert gang.report(first).json()["desired"] == "STOP"
    gang.exit_all()
    gang.yard.step(5)
    job = gang.yard.ok("GET", path)
    assert (job["state"], job["preemptions"], job["failures"], job["stepsDone"]) == (
        "PREPARING",
        1,
        0,
        5,
    )
    assert gang.yard.ok("GET", f"{gang.yard.nodes()}/j")["state"] == "READY"
    (second,) = gang.sync()
    gang.points(second, 6, 10)
    gang.report(second, state="SUCCEEDED")
    gang.exit_all()
    gang.yard.step(5)
    assert gang.yard.ok("GET", path)["state"] == "SUCCEEDED"
    gang.yard.refused(404, "NOT_FOUND", "GET", f"{gang.yard.nodes()}/j")
    assert len(gang.yard.usage()["nodes"]) == 3  # both nodes of the job are on the bill


def test_a_node_stays_until_no_job_has_run_on_it_for_the_autostop_time(gang: Gang) -> None:
    path = _own_node(gang, autostopSeconds=12)
    assert gang.yard.ok("GET", path)["autostopSeconds"] == 12
    _succeed(gang)
    gang.yard.step(5)
    assert gang.yard.ok("GET", path)["state"] == "SUCCEEDED"
    gang.sync()
    body = {"recipe": "digits-cnn", "steps": 10, "node": "j"}
    gang.yard.ok("POST", f"{gang.yard.jobs()}?jobId=next", body)
    for _ in range(4):  # past the first job's time, while the next one runs
        gang.yard.step(3)
        (replica,) = gang.sync()
        gang.report(replica)
    _succeed(gang)
    gang.yard.step(10)
    assert gang.yard.ok("GET", f"{gang.yard.nodes()}/j")["state"] == "READY"
    gang.yard.step(4)
    gang.yard.refused(404, "NOT_FOUND", "GET", f"{gang.yard.nodes()}/j")
    gang.sync()
    again = gang.yard.ok("POST", f"{gang.yard.jobs()}?jobId=again", {"cloneOf": "j"})
    assert (again["node"], again["autostopSeconds"]) == ("again", 12)
    (gone,) = (job for job in _jobs(gang) if job.job_id == "j")
    assert job_copy.form_fields(gone, node_spec())["node"] == NEW_NODE


def _jobs(gang: Gang) -> list[Job]:
    query = RowQuery(Order.NEWEST, 100)
    return gang.yard.database.read(lambda uow: job_rows.page(uow, "demo", None, query))


def _succeed(gang: Gang) -> None:
    (replica,) = gang.sync()
    gang.report(replica, state="SUCCEEDED")
    gang.exit_all()
    gang.yard.step()


def test_an_autostop_time_needs_a_node_that_is_made_for_the_job(gang: Gang) -> None:
    body = {
        "recipe": "digits-cnn",
        "steps": 10,
        "acceleratorType": "v2-8",
        "autostopSeconds": 60,
        "keepNode": True,
    }
    text = gang.yard.refused(400, "INVALID_ARGUMENT", "POST", f"{gang.yard.jobs()}?jobId=k", body)
    assert text == "autostopSeconds and keepNode contradict each other: set one of them"
    body = {"recipe": "digits-cnn", "steps": 10, "node": "pod", "autostopSeconds": 60}
    text = gang.yard.refused(400, "INVALID_ARGUMENT", "POST", f"{gang.yard.jobs()}?jobId=k", body)
    assert text == "autostopSeconds is for a node that is created: set acceleratorType"


def test_a_job_fails_when_its_preemptions_are_used_up(gang: Gang) -> None:
    path = _own_node(gang, maxPreemptions=0)
    gang.sync()
    gang.yard.ok("POST", "/podyard/v1/projects/demo/locations/us-central1-f/nodes/j:preempt", {})
    gang.exit_all()
    gang.yard.step(5)
    job = gang.yard.ok("GET", path)
    assert job["state"] == "FAILED"
    assert "preempted 1 times (maxPreemptions 0)" in job["error"]["message"]
