"""googleapiclient with the document that it ships and with the one that we serve, all versions; and
cloud-tpu-client on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

from tests.contract.discovery_schema import VERSIONS, violations
from tests.stack import Stack, until

ZONE = "us-central1-f"
PARENT = f"projects/demo/locations/{ZONE}"
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(params=["static", "served"])
def locations(request: pytest.FixtureRequest, stack: Stack) -> Iterator[Any]:
    """`locations(version)`: the methods below `projects.locations`."""
    built = []

    def of(version: str) -> Any:
        options: dict[str, Any] = {
            "credentials": Credentials(stack.token),
            "cache_discovery": False,
        }
        if request.param == "static":
            options |= {"client_options": {"api_endpoint": stack.url}, "static_discovery": True}
        else:
            options["discoveryServiceUrl"] = f"{stack.url}/$discovery/rest?version={{apiVersion}}"
        service = build("tpu", version, **options)
        built.append(service)
        return service.projects().locations()

    yield of
    for service in built:
        service.close()


def _done(locations: Any, operation: dict[str, Any]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = locations.operations().get(name=operation["name"]).execute()
        return found if found["done"] else None

    return until(look, 30, "the operation")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_lives_its_life(locations: Any, version: str) -> None:
    client = locations(version)
    software = (
        {"tensorflowVersion": "2.12.0"}
        if version.startswith("v1")
        else {"runtimeVersion": "tpu-vm-base"}
    )
    body = {"acceleratorType": "v2-8", "labels": {"a": "b"}, **software}
    node_id = f"api-{version}"
    done = _done(client, client.nodes().create(parent=PARENT, nodeId=node_id, body=body).execute())
    assert done["response"]["@type"] == f"type.googleapis.com/google.cloud.tpu.{version}.Node"
    assert done["metadata"]["apiVersion"] == version
    name = f"{PARENT}/nodes/{node_id}"
    node = client.nodes().get(name=name).execute()
    assert (node["state"], node["health"]) == ("READY", "HEALTHY")
    assert not violations(version, "Node", node)
    request, found = client.nodes().list(parent=PARENT, pageSize=1), []
    while request is not None:
        page = request.execute()
        found += [item["name"] for item in page.get("nodes", [])]
        request = client.nodes().list_next(request, page)
    assert name in found
    if not version.startswith("v1"):
        patched = (
            client.nodes()
            .patch(name=name, updateMask="labels", body={"labels": {"c": "d"}})
            .execute()
        )
        assert _done(client, patched)["response"]["labels"] == {"c": "d"}
    deleted = _done(client, client.nodes().delete(name=name).execute())
    assert deleted["response"]["@type"].endswith(
        ".Node" if version.startswith("v1") else "protobuf.Empty"
    )
    with pytest.raises(HttpError) as missing:
        client.nodes().get(name=name).execute()
    assert (missing.value.status_code, name in missing.value.reason) == (404, True)


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_a_queued_resource_lives_its_life(locations: Any, version: str) -> None:
    client = locations(version)
    queue, name = client.queuedResources(), f"api-qr-{version}"
    node = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    body = {"spot": {}, "tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": name, "node": node}]}}
    _done(client, queue.create(parent=PARENT, queuedResourceId=name, body=body).execute())
    full = f"{PARENT}/queuedResources/{name}"
    found = until(lambda: _in_state(queue.get(name=full).execute(), "ACTIVE"), 20, "ACTIVE")
    assert not violations(version, "QueuedResource", found)
    assert (found["spot"], found["state"]["activeData"]) == ({}, {})
    # Its user deletes the node: it is suspended, and says whose doing that was.
    _done(client, client.nodes().delete(name=f"{PARENT}/nodes/{name}").execute())
    found = until(lambda: _in_state(queue.get(name=full).execute(), "SUSPENDED"), 20, "SUSPENDED")
    assert found["state"]["stateInitiator"] == "USER"
    _done(client, queue.reset(name=full, body={}).execute())
    until(lambda: _in_state(queue.get(name=full).execute(), "ACTIVE"), 20, "ACTIVE again")
    _done(client, queue.delete(name=full, force=True).execute())
    assert full not in [
        item["name"] for item in queue.list(parent=PARENT).execute()["queuedResources"]
    ]


def _in_state(found: dict[str, Any], state: str) -> dict[str, Any] | None:
    return found if found["state"]["state"] == state else None
