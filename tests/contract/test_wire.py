"""The wire as bytes: shapes, spellings and errors that clients depend on, over a real HTTP
server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.yard import ZONE, Yard, open_yard

BODY: dict[str, Any] = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}


def test_an_operation_always_says_done_and_holds_no_null(yard: Yard) -> None:
    pending = yard.ok("POST", f"{yard.nodes()}?nodeId=a", BODY)
    assert pending["done"] is False
    assert set(pending) == {"name", "metadata", "done"}
    assert (
        pending["metadata"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata"
    )
    assert (pending["metadata"]["verb"], pending["metadata"]["apiVersion"]) == ("create", "v2")
    yard.step()
    done = yard.ok("GET", f"/v2/{pending['name']}")
    assert set(done) == {"name", "metadata", "done", "response"}
    assert done["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2.Node"
    assert "health" not in done["response"]
    assert yard.ok("GET", f"{yard.nodes()}/a")["health"] == "HEALTHY"
    assert "null" not in httpx.Response(200, json=done).text


def test_a_finished_operation_does_not_change_with_its_node(yard: Yard) -> None:
    done = yard.create("a")
    yard.ok("PATCH", f"{yard.nodes()}/a?updateMask=description", {"description": "later"})
    yard.ok("DELETE", f"{yard.nodes()}/a")
    yard.step()
    assert yard.ok("GET", f"/v2/{done['name']}") == done


def test_enums_may_be_numbers_and_fields_may_be_snake_case(yard: Yard) -> None:
    body = {
        "accelerator_config": {"type": 7, "topology": "2x2x2"},
        "runtime_version": "tpu-vm-v4-base",
    }
    yard.ok(
        "POST", f"{yard.nodes('us-central2-b')}?nodeId=a&%24alt=json%3Benum-encoding%3Dint", body
    )
    yard.step()
    node = yard.ok("GET", f"{yard.nodes('us-central2-b')}/a")
    assert node["acceleratorConfig"] == {"type": "V4", "topology": "2x2x2"}
    assert node["acceleratorType"] == "v4-16"
    assert isinstance(node["id"], str)
    assert isinstance(node["networkEndpoints"][0]["port"], int)


@pytest.mark.parametrize(
    "mask", ["labels,networkConfig.enableExternalIps", "labels,network_config.enable_external_ips"]
)
def test_both_spellings_of_a_mask_do_the_same(yard: Yard, mask: str) -> None:
    yard.create("a", labels={"x": "y"})
    yard.ok(
        "PATCH",
        f"{yard.nodes()}/a?updateMask={mask}",
        {"networkConfig": {"enableExternalIps": True}},
    )
    node = yard.ok("GET", f"{yard.nodes()}/a")
    assert "labels" not in node  # masked and absent means cleared
    assert node["networkConfig"]["enableExternalIps"] is True
    assert "externalIp" in node["networkEndpoints"][0]["accessConfig"]


def test_a_whole_node_may_be_sent_back_with_its_output_fields(yard: Yard) -> None:
    yard.create("a")
    node = yard.ok("GET", f"{yard.nodes()}/a")
    yard.ok("PATCH", f"{yard.nodes()}/a?updateMask=tags", {**node, "tags": ["net"]})
    assert yard.ok("GET", f"{yard.nodes()}/a")["tags"] == ["net"]


def test_lists_have_their_key_when_empty_and_pages_when_long(yard: Yard) -> None:
    assert yard.ok("GET", yard.nodes()) == {"nodes": []}
    for index in range(3):
        yard.create(f"n{index}")
    first = yard.ok("GET", f"{yard.nodes()}?pageSize=2")
    second = yard.ok("GET", f"{yard.nodes()}?pageSize=2&pageToken={first['nextPageToken']}")
    assert [n["name"][-2:] for n in first["nodes"] + second["nodes"]] == ["n0", "n1", "n2"]
    assert "nextPageToken" not in second
    assert len(yard.ok("GET", yard.nodes("-"))["nodes"]) == 3


def test_a_stockout_is_told_by_the_operation_and_the_node_vanishes(yard: Yard) -> None:
    operation = yard.create("huge", "v2-8", "us-central1-c")
    assert "error" not in operation
    for index in range(15):
        yard.create(f"more{index}", "v2-8", "us-central1-c")
    refused = yard.create("last", "v2-8", "us-central1-c")
    assert refused["done"] is True
    assert "response" not in refused
    assert refused["error"]["code"] == 8
    text = 'There is no more capacity in the zone "us-central1-c"; you can try in another zone'
    assert refused["error"]["message"].startswith(text)
    assert "[EID: 0x" in refused["error"]["message"]
    assert "largest free box" in refused["error"]["details"][0]["metadata"][
        "why"
    ] or "no box is free" in str(refused)
    yard.refused(404, "NOT_FOUND", "GET", f"{yard.nodes('us-central1-c')}/last")
    yard.ok("DELETE", f"{yard.nodes('us-central1-c')}/huge")
    yard.step()
    assert "error" not in yard.create("last", "v2-8", "us-central1-c")


def test_stop_gives_the_chips_back_and_start_takes_some(yard: Yard) -> None:
    yard.create("a")
    yard.ok("POST", f"{yard.nodes()}/a:stop", {})
    yard.step()
    assert yard.ok("GET", f"{yard.nodes()}/a")["state"] == "STOPPED"
    pods = yard.ok("GET", "/podyard/v1/projects/demo/pods")["pods"]
    assert sum(pod["chipsHeld"] for pod in pods) == 0
    yard.ok("POST", f"{yard.nodes()}/a:start", {})
    yard.step()
    assert yard.ok("GET", f"{yard.nodes()}/a")["state"] == "READY"


def test_a_preempted_node_stays_listed_until_it_is_deleted(yard: Yard) -> None:
    yard.create("a", schedulingConfig={"spot": True})
    yard.ok("POST", "/podyard/v1/projects/demo/locations/us-central1-f/nodes/a:preempt", {})
    yard.step()
    assert yard.ok("GET", f"{yard.nodes()}/a")["state"] == "PREEMPTED"
    text = yard.refused(
        400, "INVALID_ARGUMENT", "PATCH", f"{yard.nodes()}/a?updateMask=labels", {"labels": {}}
    )
    assert text.startswith(
        "Cloud TPU received a bad request. update is not supported while in state "
        "PREEMPTED [EID: 0x"
    )
    yard.refused(400, "INVALID_ARGUMENT", "POST", f"{yard.nodes()}/a:start", {})
    yard.ok("DELETE", f"{yard.nodes()}/a")
    yard.step()
    assert yard.ok("GET", yard.nodes()) == {"nodes": []}


def test_a_preemptible_node_ends_after_24_hours_and_a_spot_node_does_not(tmp_path: Path) -> None:
    with open_yard(tmp_path, clock_mode="system") as yard:
        yard.create("short", schedulingConfig={"preemptible": True})
        yard.create("long", schedulingConfig={"spot": True})
        yard.clock.advance(24 * 3600 - 1)
        yard.step()
        assert yard.ok("GET", f"{yard.nodes()}/short")["state"] == "READY"
        yard.clock.advance(100)
        yard.step()
        assert yard.ok("GET", f"{yard.nodes()}/short")["state"] == "TERMINATED"
        assert yard.ok("GET", f"{yard.nodes()}/long")["state"] == "READY"
        billed = {item["node"].rsplit("/")[-1]: item["seconds"] for item in yard.usage()["nodes"]}
        # The timer fired at its due time, not when the loop came to it: 100 s late costs nothing.
        assert billed["short"] == 24 * 3600


def _client(yard: Yard, token: str | None) -> httpx.Client:
    """Another user's client, closed with the yard."""
    client = httpx.Client(
        base_url=yard.url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        verify=False,
    )
    yard.others.append(client)
    return client


def test_roles_allow_what_they_say_and_refusals_look_the_same(yard: Yard) -> None:
    body = {"email": "ann@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    token = yard.ok("POST", "/podyard/v1/tokens", body)["token"]
    ann = _client(yard, token)
    yard.create("there")
    assert ann.get(yard.nodes()).status_code == 200
    there, missing = (ann.delete(f"{yard.nodes()}/{name}") for name in ("there", "missing"))
    assert there.status_code == missing.status_code == 403
    assert there.text.replace("there", "X") == missing.text.replace("missing", "X")
    # Authorised before validated: a viewer learns nothing from a malformed request.
    assert ann.post(f"{yard.nodes()}?nodeId=BAD", json={"acceleratorType": 5}).status_code == 403
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    assert ann.get("/v2/projects/other/locations/-/nodes").status_code == 403
    assert ann.get("/podyard/v1/projects/demo/usage").status_code == 403
    assert ann.post("/podyard/v1/tokens", json={**body, "roles": ["owner"]}).status_code == 403


def test_a_foreign_host_header_is_refused(yard: Yard) -> None:
    response = yard.http.get(yard.nodes(), headers={"Host": "evil.example"})
    assert response.status_code == 403


@pytest.mark.parametrize(
    "host",
    [
        "a@b",
        "a@127.0.0.1",
        "127.0.0.1:1@evil.example",
        "localhost:",
        "localhost:x",
        "[::1",
        "127.0.0.1/x",
        "localhost,evil.example",
        "localhost evil",
    ],
)
def test_a_malformed_host_header_is_refused(yard: Yard, host: str) -> None:
    response = yard.http.get(yard.nodes(), headers={"Host": host})
    assert (response.status_code, response.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert f"Host '{host}' is not a host name" in response.json()["error"]["message"]


def test_platform_routes_answer(yard: Yard) -> None:
    yard.create("a")
    assert 'podyard_nodes{project="demo",state="READY"} 1' in yard.call("GET", "/metrics").text
    assert yard.ok("GET", "/podyard/v1/clock")["mode"] == "local"
    pods = {pod["pod"]: pod for pod in yard.ok("GET", "/podyard/v1/projects/demo/pods")["pods"]}
    assert pods[f"{ZONE}-v2-0"]["chipsHeld"] == 4
    price = yard.ok(
        "GET", f"/podyard/v1/projects/demo/locations/{ZONE}/prices/v2-8?usage=preemptible"
    )
    assert price["pricePerHour"] == "1.350000000"
