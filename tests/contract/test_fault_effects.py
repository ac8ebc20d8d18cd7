"""Each effect of a fault, as a client of Google's API meets it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.fault_yard import (
    FAULTS,
    FLEET,
    SPOT,
    add,
    advance,
    changes,
    fired,
    node,
    queue,
    queued,
    queues,
    ready,
    states,
)
from tests.unit.control.gang import Gang, submit
from tests.yard import ZONE, Yard, open_yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, FLEET, clock_mode="virtual") as found:
        yield found


# Events


def test_a_preemption_takes_the_first_that_match_in_the_order_of_their_names(yard: Yard) -> None:
    ready(yard, "c", "a", "b", **SPOT)
    ready(yard, "bought")
    fault = add(yard, "preempt", count=2)
    yard.step()
    assert states(yard) == {"a": "PREEMPTED", "b": "PREEMPTED", "c": "READY", "bought": "READY"}
    assert fired(yard, fault) == (2, True)
    assert changes(yard, "nodes/a")[-1] == ("PREEMPTED", f"fault {fault}: preempt", "fault")


def test_an_event_comes_again_until_its_end(yard: Yard) -> None:
    ready(yard, *[f"n{index}" for index in range(5)], **SPOT)
    fault = add(yard, "preempt", starts="10m", every="10m", until="35m", match={"resource": "n?"})
    yard.ok("DELETE", f"{yard.nodes()}/n0")
    advance(yard, "9m")
    assert set(states(yard).values()) == {"READY"}
    advance(yard, "1h")
    assert fired(yard, fault) == (4, True)
    ready(yard, "later", **SPOT)
    assert node(yard, "later")["state"] == "READY"


def test_probability_takes_about_its_part(yard: Yard) -> None:
    ready(yard, *[f"n{index}" for index in range(8)], **SPOT)
    fault = add(yard, "preempt", probability=0.5)
    yard.step()
    taken = sum(state == "PREEMPTED" for state in states(yard).values())
    assert taken == fired(yard, fault)[0]
    none = add(yard, "preempt", probability=0)
    yard.step()
    assert fired(yard, none) == (0, True)


def test_a_preemption_with_notice_comes_after_it(yard: Yard) -> None:
    ready(yard, "n", **SPOT)
    fault = add(yard, "preempt", notice="30s")
    yard.step()
    assert node(yard, "n")["state"] == "READY"
    advance(yard, "29s")
    assert node(yard, "n")["state"] == "READY"
    advance(yard, "1s")
    assert changes(yard, "nodes/n")[-1] == ("PREEMPTED", f"fault {fault}: preempt", "fault")


def test_a_rule_that_is_removed_takes_its_notice_back(yard: Yard) -> None:
    ready(yard, "n", **SPOT)
    fault = add(yard, "preempt", notice="30s")
    yard.step()
    yard.ok("DELETE", f"{FAULTS}/{fault}")
    advance(yard, "1h")
    assert node(yard, "n")["state"] == "READY"


def test_a_node_can_be_preempted_while_it_is_created(yard: Yard) -> None:
    fault = add(yard, "preempt", during="create", count=1)
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base", **SPOT}
    operation = yard.ok("POST", f"{yard.nodes()}?nodeId=n", body)
    yard.step()
    advance(yard, "60s")
    ended = yard.ok("GET", f"/v2/{operation['name']}")
    assert (ended["error"]["code"], node(yard, "n")["state"]) == (1, "PREEMPTED")
    assert f"fault {fault}: preempt" in ended["error"]["message"]
    assert [state for state, _, _ in changes(yard, "nodes/n")] == ["CREATING", "PREEMPTED"]
    ready(yard, "m", **SPOT)


def test_a_node_can_be_preempted_while_it_is_deleted_and_then_stays_until_it_is_deleted_again(
    yard: Yard,
) -> None:
    ready(yard, "n", **SPOT)
    add(yard, "preempt", during="delete", count=1)
    operation = yard.ok("DELETE", f"{yard.nodes()}/n")
    assert yard.ok("GET", f"/v2/{operation['name']}")["error"]["code"] == 1
    advance(yard, "60s")
    assert node(yard, "n")["state"] == "PREEMPTED"
    yard.ok("DELETE", f"{yard.nodes()}/n")
    advance(yard, "60s")
    assert states(yard) == {}


def test_a_maintenance_takes_its_time(yard: Yard) -> None:
    ready(yard, "n")
    fault = add(yard, "maintenance", seconds="1h", match={"resource": "n"})
    yard.step()
    found = node(yard, "n")
    assert (found["state"], found["upcomingMaintenance"]["maintenanceStatus"]) == (
        "REPAIRING",
        "ONGOING",
    )
    assert fault in found["healthDescription"]
    advance(yard, "59m")
    assert node(yard, "n")["state"] == "REPAIRING"
    advance(yard, "1m")
    found = node(yard, "n")
    assert (found["state"], found["health"], "upcomingMaintenance" in found) == (
        "READY",
        "HEALTHY",
        False,
    )


def test_the_clock_jumps_over_nothing(yard: Yard) -> None:
    ready(yard, "n", schedulingConfig={"preemptible": True})
    add(yard, "jump", seconds="2d", starts="1h")
    advance(yard, "1h")
    assert yard.ok("GET", "/podyard/v1/clock")["platformTime"] == "2026-03-03T01:01:00Z"
    assert node(yard, "n")["state"] == "TERMINATED"


def test_only_a_virtual_clock_can_jump(tmp_path: Path) -> None:
    with open_yard(tmp_path) as local:
        rules = [{"effect": "stockout"}, {"effect": "jump", "seconds": 60}]
        text = local.refused(
            400, "FAILED_PRECONDITION", "POST", f"{FAULTS}:batchCreate", {"faults": rules}
        )
        assert "virtual" in text
        assert local.ok("GET", FAULTS)["faults"] == []


# Placing, quota, lateness


def test_in_a_stockout_creations_fail_with_the_usual_text_and_queued_resources_wait(
    yard: Yard,
) -> None:
    fault = add(yard, "stockout", until="1h", match={"acceleratorType": "v2-*"})
    done = yard.create("n")
    assert done["error"]["code"] == 8
    assert done["error"]["message"].startswith(f'There is no more capacity in the zone "{ZONE}"')
    assert fault in done["error"]["details"][0]["metadata"]["why"]
    assert changes(yard, "nodes/n")[-1] == (
        "GONE",
        f"fault {fault}: stockout of v2-8 in {ZONE}",
        "fault",
    )
    assert yard.create("other", "v3-8")["done"] is False  # it is being created
    queue(yard)
    yard.step()
    assert queued(yard) == "WAITING_FOR_RESOURCES"
    rows = yard.ok("GET", f"/podyard/v1/projects/demo/locations/{ZONE}/queue")
    assert fault in json.dumps(rows)
    assert fired(yard, fault)[0] == 1
    advance(yard, "59m")
    assert queued(yard) == "WAITING_FOR_RESOURCES"
    advance(yard, "2m")
    assert queued(yard) == "ACTIVE"


def test_a_stockout_with_a_count_denies_so_many_creations(yard: Yard) -> None:
    fault = add(yard, "stockout", count=2)
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    for name in ("a", "b", "c"):
        yard.ok("POST", f"{yard.nodes()}?nodeId={name}", body)
    yard.step()
    assert list(states(yard).values()) == ["CREATING"]
    assert fired(yard, fault) == (2, True)


def test_a_quota_can_be_cut_while_nodes_are_there(yard: Yard) -> None:
    ready(yard, "n")
    fault = add(yard, "quota", limit=8, match={"acceleratorType": "v2-*", "usage": "on-demand"})
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    text = yard.refused(429, "RESOURCE_EXHAUSTED", "POST", f"{yard.nodes()}?nodeId=m", body)
    assert "Limit: 8,8 in region us-central1" in text
    ready(yard, "spot", **SPOT)
    ready(yard, "other", kind="v3-8")
    yard.ok("DELETE", f"{FAULTS}/{fault}")
    ready(yard, "m")


def test_a_queued_resource_is_fulfilled_late(yard: Yard) -> None:
    fault = add(yard, "late", seconds="70m", match={"resource": "q"})
    queue(yard)
    queue(yard, "prompt")
    yard.step()
    advance(yard, "69m")
    assert (queued(yard), queued(yard, "prompt")) == ("WAITING_FOR_RESOURCES", "ACTIVE")
    advance(yard, "2m")
    assert queued(yard) == "ACTIVE"
    assert fired(yard, fault) == (1, False)


def test_what_was_deleted_meanwhile_never_comes_alive(yard: Yard) -> None:
    add(yard, "late", seconds="70m")
    queue(yard)
    yard.step()
    advance(yard, "30m")
    yard.ok("DELETE", f"{queues()}/q")
    advance(yard, "3h")
    yard.refused(404, "NOT_FOUND", "GET", f"{queues()}/q")
    assert states(yard) == {}
    assert "PROVISIONING" not in [state for state, _, _ in changes(yard, "queuedResources/q")]


# Views


def test_a_preempted_node_is_shown_as_another(yard: Yard) -> None:
    ready(yard, "n", "m", **SPOT)
    add(yard, "preempt", match={"resource": "n"})
    yard.step()
    fault = add(yard, "dirty", **{"as": "READY", "count": 2, "match": {"method": "nodes.get"}})
    assert states(yard) == {"m": "READY", "n": "PREEMPTED"}
    assert [node(yard, "n")["state"] for _ in range(3)] == ["READY", "READY", "PREEMPTED"]
    assert fired(yard, fault) == (2, True)


def test_states_are_shown_as_they_were(yard: Yard) -> None:
    ready(yard, "n")
    queue(yard)
    yard.step()
    advance(yard, "5m")
    fault = add(yard, "stale", seconds="1h")
    assert (node(yard, "n")["state"], states(yard)["n"], queued(yard)) == (
        "CREATING",
        "CREATING",
        "CREATING",
    )
    advance(yard, "55m")
    assert (node(yard, "n")["state"], queued(yard)) == ("READY", "PROVISIONING")
    yard.ok("DELETE", f"{FAULTS}/{fault}")
    assert queued(yard) == "ACTIVE"


def test_the_health_is_missing(yard: Yard) -> None:
    ready(yard, "n")
    node(yard, "n")
    fault = add(yard, "health", until="1h")
    assert "health" not in node(yard, "n")
    assert "health" not in yard.ok("GET", yard.nodes())["nodes"][0]
    advance(yard, "1h")
    assert node(yard, "n")["health"] == "HEALTHY"
    assert fired(yard, fault) == (2, True)


# Calls


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_call_fails_without_an_effect(yard: Yard, code: int, name: str) -> None:
    fault = add(
        yard, "error", code=code, count=1, match={"method": "nodes.create", "resource": "n"}
    )
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    assert states(yard) == {}
    yard.refused(code, name, "POST", f"{yard.nodes()}?nodeId=n", body)
    assert states(yard) == {}
    assert fired(yard, fault) == (1, True)
    yard.ok("POST", f"{yard.nodes()}?nodeId=n", body)


def test_an_error_says_what_it_is_told_to_and_only_to_who_may_call(yard: Yard) -> None:
    fault = add(yard, "error", message="Backend Error")
    answer = yard.call("GET", yard.nodes()).json()["error"]
    assert (answer["message"], answer["details"][0]["metadata"]["fault"]) == (
        "Backend Error",
        fault,
    )
    assert yard.bare.get(yard.nodes()).status_code == 401
    yard.ok("GET", FAULTS)  # the creator of the rule can remove it
    yard.ok("GET", "/podyard/v1/projects/demo/pods")


def test_an_answer_is_lost_after_the_effect(yard: Yard) -> None:
    add(yard, "lostAnswer", count=1, match={"method": "nodes.create"})
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    yard.refused(503, "UNAVAILABLE", "POST", f"{yard.nodes()}?nodeId=n", body)
    assert states(yard) == {"n": "CREATING"}
    yard.refused(409, "ALREADY_EXISTS", "POST", f"{yard.nodes()}?nodeId=n", body)


def test_a_connection_ends_without_an_answer(yard: Yard) -> None:
    add(yard, "lostAnswer", close=True, count=1, match={"method": "nodes.delete"})
    ready(yard, "n")
    with pytest.raises(httpx.RemoteProtocolError):
        yard.call("DELETE", f"{yard.nodes()}/n")
    assert states(yard) == {"n": "DELETING"}


def test_a_call_waits_for_platform_time(yard: Yard) -> None:
    ready(yard, "n")
    add(yard, "latency", seconds=90, real=False, match={"method": "nodes.get"})
    answers: list[str] = []
    token = {"Authorization": f"Bearer {yard.token}"}
    slow = threading.Thread(
        target=lambda: answers.append(
            httpx.get(f"{yard.url}{yard.nodes()}/n", headers=token).json()["state"]
        )
    )
    slow.start()
    while not yard.ok("GET", FAULTS)["faults"][0]["fired"]:
        pass
    advance(yard, "89s")
    assert answers == []
    advance(yard, "1s")
    slow.join(10)
    assert answers == ["READY"]


def test_an_operation_is_lost_and_its_effect_is_not(yard: Yard) -> None:
    fault = add(yard, "lostOperation", count=1, match={"method": "nodes.create"})
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    lost, kept = (
        yard.ok("POST", f"{yard.nodes()}?nodeId={name}", body)["name"] for name in ("n", "m")
    )
    yard.refused(404, "NOT_FOUND", "GET", f"/v2/{lost}")
    yard.refused(404, "NOT_FOUND", "POST", f"/v2/{lost}:cancel")
    advance(yard, "2m")
    assert yard.ok("GET", f"/v2/{kept}")["done"]
    assert states(yard) == {"m": "READY", "n": "READY"}
    operations = yard.ok("GET", f"/v2/projects/demo/locations/{ZONE}/operations")["operations"]
    assert [item["name"] for item in operations] == [kept]
    assert fired(yard, fault) == (1, True)


# Hosts and jobs


def _run_job(yard: Yard) -> tuple[Gang, str, dict[str, Any]]:
    """A job on the node `n` whose replica runs."""
    ready(yard, "n")
    gang = Gang(yard)
    gang.sync()
    path = submit(gang, checkpointEverySteps=2)
    (replica,) = gang.sync()
    gang.report(replica)
    return gang, path, replica


def _save(gang: Gang, replica: dict[str, Any], step: int) -> Any:
    saved = {"step": step, "name": f"c{step}", "sha256": "0" * 64}
    return gang.report(replica, checkpoints=[saved]).json()


def test_a_job_goes_on_from_its_last_checkpoint_when_chips_break_under_it(yard: Yard) -> None:
    gang, path, replica = _run_job(yard)
    gang.points(replica, 1, 5)
    _save(gang, replica, 4)
    fault = add(yard, "chip", seconds=100)
    yard.step()
    assert (node(yard, "n")["state"], yard.ok("GET", path)["state"]) == ("REPAIRING", "RECOVERING")
    assert (node(yard, "n")["health"], node(yard, "n")["symptoms"][0]["workerId"]) == (
        "UNHEALTHY_TENSORFLOW",
        "0",
    )
    assert fault in yard.ok("GET", path)["stateReason"]
    assert gang.exit_all() == []
    advance(yard, "99s")
    assert yard.ok("GET", path)["state"] == "RECOVERING"
    advance(yard, "1s")
    gang.sync()
    yard.step()
    (again,) = gang.sync()
    assert gang.specification(again)["resumeStep"] == 4
    assert yard.ok("GET", path)["attempt"] == 2


def test_a_slice_is_not_given_up_before_the_last_process_on_it_is_gone(yard: Yard) -> None:
    gang, path, _ = _run_job(yard)
    add(yard, "chip")
    yard.step()
    held = yard.ok("GET", "/podyard/v1/projects/demo/pods")["pods"]
    assert sum(pod["chipsHeld"] for pod in held) == 4
    gang.exit_all()
    advance(yard, "1s")
    advance(yard, "60s")
    assert node(yard, "n")["state"] == "READY"
    assert yard.ok("GET", path)["state"] in ("RECOVERING", "PREPARING")


def test_a_checkpoint_that_cannot_be_written_is_none_and_the_job_goes_on(yard: Yard) -> None:
    gang, path, replica = _run_job(yard)
    gang.points(replica, 1, 6)
    assert _save(gang, replica, 2)["checkpointsFail"] is False
    fault = add(yard, "checkpoint", count=1)
    assert gang.points(replica, 7, 7).json()["checkpointsFail"] is True
    _save(gang, replica, 4)
    found = yard.ok("GET", path)
    assert found["state"] == "RUNNING"
    assert (
        found["stateReason"]
        == f"the checkpoint of step 4 could not be written: fault {fault}: checkpoint"
    )
    assert _save(gang, replica, 6)["checkpointsFail"] is False
    listed = yard.ok("GET", f"{path}:checkpoints")["checkpoints"]
    assert [item["step"] for item in listed] == [6, 2]
    assert fired(yard, fault) == (1, True)


def test_a_slow_link_makes_steps_longer(yard: Yard) -> None:
    gang, path, replica = _run_job(yard)
    gang.points(replica, 1, 2)
    add(yard, "link", factor=10, seconds="1h")
    yard.step()
    gang.points(replica, 3, 3)
    advance(yard, "1h")
    gang.points(replica, 4, 4)
    points = yard.ok("GET", f"{path}:metrics")["metrics"]
    assert [point["modelledSeconds"] for point in points] == [0.5, 0.5, 5.0, 0.5]
    assert node(yard, "n")["state"] == "READY"


def test_hosts_are_told_that_their_metadata_servers_are_down(yard: Yard) -> None:
    ready(yard, "n")
    gang = Gang(yard)
    gang.sync()
    here = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/n"
    yard.ok("POST", f"{here}:materialise", {})

    def down() -> list[int]:
        answer = gang._http.post("/podyard/v1/agents/local:syncHosts", json={"hosts": []}).json()
        (news,) = answer["nodes"].values()
        found: list[int] = news["facts"]["metadata_down"]
        return found

    assert down() == []
    fault = add(yard, "metadata", match={"resource": "n"})
    assert down() == [0]
    yard.ok("DELETE", f"{FAULTS}/{fault}")
    assert down() == []
