"""Ray's autoscaler: its TPU resource and its node provider."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stack import Stack

ENVIRONMENT = "ray"
PROGRAM = "ray_autoscaler.py"
ZONE = "us-central1-a"
FULL = 'There is no more capacity in the zone "us-east1-d"; you can try in another zone'
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


def test_a_node_lives_its_life(client: Callable[..., Any]) -> None:
    found = client("life", ZONE)
    assert found["id"].startswith("ray-life-")
    assert found["name"] == f"projects/demo/locations/{ZONE}/nodes/{found['id']}"
    assert all(found["addresses"])
    labels = {"ray-node-name": "ray-life", "ray-node-type": "worker", "ray-cluster-name": "life"}
    labelled = {**labels, "ray-node-status": "up-to-date"}
    ready = ["READY", True, False, labelled]
    assert found["seen"] == [
        ["READY", True, False, labels],
        ["STOPPED", False, True, labelled],
        ready,
    ]
    assert (found["listed"], found["listed_while_stopped"], found["left"]) == ([ready], 0, 0)
    assert found["deleted"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}


@pytest.mark.parametrize("credentials", ["token", "key", "environment"])
def test_the_node_provider_runs_a_pod(
    client: Callable[..., Any], stack: Stack, tmp_path: Path, credentials: str
) -> None:
    given = {"token": "token", "environment": "", "key": str(tmp_path / "key.json")}[credentials]
    if credentials == "key":
        path = "/podyard/v1/projects/demo/serviceAccounts/ray@demo.iam.gserviceaccount.com/keys"
        Path(given).write_text(json.dumps(stack.call("POST", path, {})))
    # It lists the machines of Compute Engine with each look, of which there are none.
    found = client("provider", "us-central2-b", given)
    assert found["name"] == found["response"]
    assert (found["running"], found["workers"], found["others"], found["left"]) == (True, 2, [], [])
    assert found["tags"].items() >= {"ray-launch-config": "abc", "ray-cluster-name": "pods"}.items()
    assert all(found["addresses"])


def test_failures_of_operations_and_of_requests_are_raised(client: Callable[..., Any]) -> None:
    found = client("no_room", "us-east1-d")
    kind, text = found["full"]
    assert kind == "Exception"
    assert text.startswith("{'code': 8, ")
    assert FULL in text
    kind, text = found["wrong"]
    assert kind == "HttpError"
    assert text.startswith("<HttpError 400 when requesting")
    assert "accelerator type 'v2-9' does not exist" in text


def test_a_project_with_its_account_and_key_is_prepared(
    client: Callable[..., Any], stack: Stack
) -> None:
    email = "ray-autoscaler-sa-v1@ray-project.iam.gserviceaccount.com"
    assert client("bootstrap", "ray-project") == {"email": email, "key": True}
    manager = "/google/cloudresourcemanager.googleapis.com/v1/projects/ray-project"
    policy = stack.call("POST", f"{manager}:getIamPolicy", {})
    roles = {item["role"] for item in policy["bindings"]}
    assert roles == {
        "roles/compute.admin", "roles/iam.roleViewer", "roles/iam.serviceAccountUser",
        "roles/storage.objectAdmin", "roles/tpu.admin",
    }  # fmt: skip


def test_a_preempted_node_is_terminated(client: Callable[..., Any], stack: Stack) -> None:
    labels = {"ray-cluster-name": "any"}
    node = stack.create_node(
        "ray-spot", "v2-8", ZONE, labels=labels, schedulingConfig={"preemptible": True}
    )
    assert client("looked_at", node["name"], ZONE) == [True, False, 1]
    stack.call("POST", f"/podyard/v1/{node['name']}:preempt", {})
    assert client("looked_at", node["name"], ZONE) == [False, True, 0]
    stack.delete_node("ray-spot", ZONE)
