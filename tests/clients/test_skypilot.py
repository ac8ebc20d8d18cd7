"""SkyPilot: what its provisioner does for TPU VMs, and what its failover makes of the failures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stack import Stack, until

ENVIRONMENT = "sky"
PROGRAM = "skypilot.py"
ZONE = "us-central1-a"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


def _path(zone: str, node: str) -> str:
    return f"projects/demo/locations/{zone}/nodes/{node}"


def test_a_cluster_lives_its_life(client: Callable[..., Any], stack: Stack) -> None:
    made = client("launch", "life", ZONE, "v2-8", "2")
    assert client("statuses", "life", ZONE).keys() == {
        _path(ZONE, name) for name in made["created"]
    }
    names = [_path(ZONE, name) for name in made["created"]]
    head = _path(ZONE, made["head"])
    assert len(names) == 2
    assert head in names
    nodes = {name: stack.call("GET", f"/v2/{name}") for name in names}
    found = client("machines", "life", ZONE)
    assert found["head"] == head
    for name, node in nodes.items():
        (endpoint,) = node["networkEndpoints"]
        external = endpoint["accessConfig"]["externalIp"]
        assert found["machines"].pop(name) == [[endpoint["ipAddress"], external, node["labels"]]]
        assert node["labels"]["ray-node-type"] == ("head" if name == head else "worker")
        assert node["metadata"]["ssh-keys"] == "gcpuser:ssh-ed25519 AAAA gcpuser"
    assert not found["machines"]

    # this lists the machines of Compute Engine too, of which there are none
    client("stop", "life", ZONE)
    assert client("statuses", "life", ZONE) == dict.fromkeys(names, "STOPPED")
    again = client("launch", "life", ZONE, "v2-8", "2")
    assert again == {"head": head, "created": [], "resumed": names}
    assert client("statuses", "life", ZONE) == dict.fromkeys(names, "UP")
    client("terminate", "life", ZONE)
    assert client("statuses", "life", ZONE) == {}


def test_tags_and_labels_are_set_with_a_mask_each(client: Callable[..., Any], stack: Stack) -> None:
    stack.create_node("sky-tags", "v2-8", ZONE, labels={"kept": "yes"}, tags=["zeroth"])
    assert client("tag", _path(ZONE, "sky-tags"), ZONE) == "default"
    node = stack.call("GET", f"/v2/{_path(ZONE, 'sky-tags')}")
    assert (node["tags"], node["labels"]) == (
        ["zeroth", "first", "second"],
        {"kept": "yes", "team": "others"},
    )
    stack.delete_node("sky-tags", ZONE)


def test_a_pod_has_a_machine_per_host_and_a_full_zone_is_left_out(
    client: Callable[..., Any],
) -> None:
    made = client("launch", "pod", "us-east1-d", "v2-32", "1")
    found = client("machines", "pod", "us-east1-d")
    (hosts,) = found["machines"].values()
    assert len({address for address, _, _ in hosts}) == 4
    refused = client("launch", "other", "us-east1-d", "v2-32", "1")
    (error,) = refused["errors"]
    assert error["code"] == 8
    assert error["message"].startswith(
        'There is no more capacity in the zone "us-east1-d"; you can try in another'
    )
    assert refused["blocked"] == [["us-east1", "us-east1-d"]]
    client("terminate", "pod", "us-east1-d")
    assert made["created"] == [made["head"]]


@pytest.mark.parametrize("queued", [(), ("queued",)], ids=["node", "queued resource"])
def test_a_used_up_quota_leaves_out_the_region(
    client: Callable[..., Any], queued: tuple[str, ...]
) -> None:
    # A queued resource is asked for six times, with longer and longer pauses.
    refused = client("launch", "large", "europe-west4-a", "v3-64", "1", "spot", *queued)
    assert refused["errors"] == [
        {
            "code": "type.googleapis.com/google.rpc.QuotaFailure",
            "domain": "projects/demo",
            "message": "Quota 'TPUV3sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. "
            "Limit 32 in region europe-west4",
        }
    ]
    assert refused["blocked"] == [["europe-west4", None]]


def test_a_type_that_the_zone_has_not_leaves_out_the_zone(client: Callable[..., Any]) -> None:
    refused = client("launch", "none", "us-central2-b", "v2-8", "1")
    assert [error["message"] for error in refused["errors"]]
    assert refused["blocked"] == [["us-central2", "us-central2-b"]]


def test_a_preempted_cluster_is_cleared_away(client: Callable[..., Any], stack: Stack) -> None:
    name = _path(ZONE, client("launch", "spotty", ZONE, "v2-8", "1", "spot")["head"])
    stack.call("POST", f"/podyard/v1/{name}:preempt", {})
    # no separate status; and it deletes the node
    assert client("statuses", "spotty", ZONE) == {name: None}
    assert client("statuses", "spotty", ZONE) == {}


def test_a_queued_resource_becomes_a_cluster(client: Callable[..., Any], stack: Stack) -> None:
    made = client("launch", "waiting", ZONE, "v2-8", "1", "spot", "queued")
    name = f"projects/demo/locations/{ZONE}/queuedResources/{made['head']}-q"
    queued = stack.call("GET", f"/v2/{name}")
    assert (queued["state"]["state"], queued["spot"]) == ("ACTIVE", {})
    assert client("statuses", "waiting", ZONE) == {_path(ZONE, made["head"]): "UP"}
    client("terminate", "waiting", ZONE)
    # It deletes the node only: the queued resource stays, as it does at Google.
    until(
        lambda: stack.call("GET", f"/v2/{name}")["state"]["state"] == "SUSPENDED" or None,
        20,
        "SUSPENDED",
    )
    stack.call("DELETE", f"/v2/{name}")


def test_a_zone_that_is_not_there_has_no_nodes(client: Callable[..., Any]) -> None:
    missing = f"Failed to get VPC name for instance {_path(ZONE, 'none')}"
    assert client("elsewhere", "mars-a") == [{}, ["ValueError", missing]]


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_a_check_passes_and_an_account_is_made(
    client: Callable[..., Any], stack: Stack, tmp_path: Path
) -> None:
    path = "/podyard/v1/projects/demo/serviceAccounts/sky-user@demo.iam.gserviceaccount.com/keys"
    key = tmp_path / "key.json"
    key.write_text(json.dumps(stack.call("POST", path, {"roles": ["owner"]})))
    found = client("check", str(key))
    assert found["checks"] == [[True, None], [True, None]]
    assert found["account"] == "skypilot-v1@demo.iam.gserviceaccount.com"
    manager = "/google/cloudresourcemanager.googleapis.com/v1/projects/demo"
    policy = stack.call("POST", f"{manager}:getIamPolicy", {})
    member = f"serviceAccount:{found['account']}"
    roles = {item["role"] for item in policy["bindings"] if member in item["members"]}
    assert {"roles/compute.admin", "roles/tpu.admin", "roles/iam.serviceAccountUser"} <= roles


def test_a_client_may_pause_between_two_requests(client: Callable[..., Any], stack: Stack) -> None:
    stack.create_node("sky-pause", "v2-8", ZONE)
    try:
        assert client("pause", _path(ZONE, "sky-pause"), ZONE).startswith(
            "projects/demo/locations/"
        )
    finally:
        stack.delete_node("sky-pause", ZONE)
