"""TensorFlow's TPUClusterResolver, and cloud-tpu-client by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stack import Stack, until

ENVIRONMENT = "tf"
PROGRAM = "tensorflow_resolver.py"
ZONE = "us-central1-f"  # `podyard run` says that the command runs there
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.fixture
def pod(stack: Stack) -> Iterator[dict[str, Any]]:
    yield stack.create_node("tf-pod", "v2-32", ZONE, schedulingConfig={"preemptible": True})
    stack.delete_node("tf-pod", ZONE)


def test_the_resolver_finds_the_workers_in_their_order(
    client: Callable[..., Any], pod: dict[str, Any]
) -> None:
    workers = [f"{endpoint['ipAddress']}:8470" for endpoint in pod["networkEndpoints"]]
    assert len(workers) == 4
    assert client("found_by_itself", "tf-pod") == {
        "workers": workers,
        "master": f"grpc://{workers[0]}",
    }


def test_the_resolver_takes_all_in_arguments(
    client: Callable[..., Any], stack: Stack, pod: dict[str, Any]
) -> None:
    workers = [f"{endpoint['ipAddress']}:8470" for endpoint in pod["networkEndpoints"]]
    assert client(
        "told", "tf-pod", ZONE, f"{stack.url}/$discovery/rest?version={{apiVersion}}"
    ) == {
        "cluster": {"worker": workers, "coordinator": ["10.9.9.9:1"]},
        "master": f"grpc://{workers[0]}",
        "last": f"grpc://{workers[3]}",
    }


def test_a_stopped_node_is_not_ready_to_the_resolver(
    client: Callable[..., Any], stack: Stack
) -> None:
    node = stack.create_node("tf-stopped", "v2-8", ZONE)
    stack.call("POST", f"/v2/{node['name']}:stop", {})
    until(
        lambda: stack.call("GET", f"/v2/{node['name']}")["state"] == "STOPPED" or None,
        20,
        "STOPPED",
    )
    text = 'TPU "tf-stopped" is not yet ready; state: "STOPPED"'
    assert client("not_ready", "tf-stopped", ZONE) == [["RuntimeError", text]] * 2
    stack.delete_node("tf-stopped", ZONE)


def test_the_library_tells_a_healthy_node_from_a_preempted_one(
    client: Callable[..., Any], stack: Stack
) -> None:
    node = stack.create_node("tf-spot", "v2-8", ZONE, schedulingConfig={"preemptible": True})
    address = node["networkEndpoints"][0]["ipAddress"]
    found = client("client_library", "tf-spot", ZONE)
    endpoints = [
        (endpoint["ipAddress"], int(endpoint["port"])) for endpoint in found.pop("endpoints")
    ]
    assert endpoints == [(address, 8470)]
    version = node["runtimeVersion"]  # v1 has one field for the software, TensorFlow or not
    assert found == {
        "state": "READY",
        "health": "HEALTHY",
        "recoverable": True,
        "accelerator": "v2-8",
        "version": version,
    }
    stack.call("POST", f"/podyard/v1/{node['name']}:preempt", {})
    state, recoverable, endpoints, waited, missing = client(
        "client_library_preempted", "tf-spot", ZONE
    )
    assert (state, recoverable) == ("PREEMPTED", False)
    assert endpoints == ["RuntimeError", 'TPU "tf-spot" is not yet ready; state: "PREEMPTED"']
    assert waited == ["RuntimeError", 'Timed out waiting for TPU "tf-spot" to become healthy']
    assert missing[0] == "ValueError"
    assert "nodes/none' was not found" in missing[1]
    stack.delete_node("tf-spot", ZONE)
