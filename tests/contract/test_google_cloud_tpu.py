"""Google's own client library, unmodified, over its REST transport (the only version that has one
is v2)."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.auth.exceptions import RefreshError
from google.cloud import tpu_v2
from google.oauth2.credentials import Credentials

from podyard.domain.node import NodeSpec, UsageClass
from podyard.web.kit import client_commands
from tests.stack import Stack

PARENT = "projects/demo/locations/us-central2-b"
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    # Warnings of the library itself about Python versions and its own dependencies.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture
def client(stack: Stack) -> tpu_v2.TpuClient:
    return tpu_v2.TpuClient(
        credentials=Credentials(stack.token),
        transport="rest",
        client_options={"api_endpoint": stack.url},
    )


def _node(**fields: object) -> tpu_v2.Node:
    return tpu_v2.Node(runtime_version="tpu-vm-v4-base", **fields)


def test_a_node_lives_its_life(client: tpu_v2.TpuClient) -> None:
    config = tpu_v2.AcceleratorConfig(type_="V4", topology="2x2x2")
    spot = tpu_v2.SchedulingConfig(spot=True)
    wanted = _node(accelerator_config=config, labels={"team": "a"}, scheduling_config=spot)
    operation = client.create_node(parent=PARENT, node_id="life", node=wanted)
    node = operation.result(timeout=60)
    assert node.state == tpu_v2.Node.State.READY
    assert operation.metadata.verb == "create"
    assert (node.accelerator_type, node.accelerator_config.topology) == ("v4-16", "2x2x2")
    assert len(node.network_endpoints) == 2
    assert len({endpoint.ip_address for endpoint in node.network_endpoints}) == 2
    assert node.scheduling_config.spot

    assert client.get_node(name=node.name).health == tpu_v2.Node.Health.HEALTHY
    assert [found.name for found in client.list_nodes(parent=PARENT)] == [node.name]
    assert node.name in [
        found.name for found in client.list_nodes(parent="projects/demo/locations/-")
    ]

    changed = tpu_v2.Node(name=node.name, labels={"team": "b"}, description="second")
    mask = {"paths": ["labels", "description"]}
    updated = client.update_node(node=changed, update_mask=mask).result(timeout=30)
    assert (dict(updated.labels), updated.description) == ({"team": "b"}, "second")

    client.delete_node(name=node.name).result(timeout=30)
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=node.name)


def test_stop_and_start_of_a_single_host(client: tpu_v2.TpuClient) -> None:
    name = (
        client.create_node(parent=PARENT, node_id="pause", node=_node(accelerator_type="v4-8"))
        .result()
        .name
    )
    assert client.stop_node({"name": name}).result(timeout=30).state == tpu_v2.Node.State.STOPPED
    assert client.start_node({"name": name}).result(timeout=30).state == tpu_v2.Node.State.READY
    client.delete_node(name=name).result(timeout=30)


def test_errors_are_the_classes_that_the_library_knows(client: tpu_v2.TpuClient) -> None:
    name = (
        client.create_node(parent=PARENT, node_id="twice", node=_node(accelerator_type="v4-8"))
        .result()
        .name
    )
    with pytest.raises(exceptions.Conflict):
        client.create_node(parent=PARENT, node_id="twice", node=_node(accelerator_type="v4-8"))
    with pytest.raises(exceptions.BadRequest, match="v9-8"):
        client.create_node(parent=PARENT, node_id="other", node=_node(accelerator_type="v9-8"))
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=f"{PARENT}/nodes/none")
    refused = client.create_node(
        parent=PARENT,
        node_id="reserved",
        node=_node(
            accelerator_type="v4-8", scheduling_config=tpu_v2.SchedulingConfig(reserved=True)
        ),
    )
    with pytest.raises(exceptions.FailedPrecondition, match="Insufficient reserved capacity"):
        refused.result(timeout=30)
    client.delete_node(name=name).result(timeout=30)


def test_the_catalogue_is_listed(client: tpu_v2.TpuClient) -> None:
    types = {kind.type_ for kind in client.list_accelerator_types(parent=PARENT)}
    assert {"v4-8", "v4-4096"} <= types
    versions = {found.version for found in client.list_runtime_versions(parent=PARENT)}
    assert "tpu-vm-v4-base" in versions
    locations = client.list_locations({"name": "projects/demo"}).locations
    assert {"us-central1-a", "us-central2-b", "us-east5-a"} <= {
        found.location_id for found in locations
    }
    assert client.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v4-8").type_ == "v4-8"


def test_a_stranger_is_refused(stack: Stack) -> None:
    stranger = tpu_v2.TpuClient(
        credentials=Credentials("wrong"),
        transport="rest",
        client_options={"api_endpoint": stack.url},
    )
    # After a 401 the library tries to refresh the token, and says that it cannot.
    with pytest.raises((exceptions.Unauthorized, RefreshError)):
        list(stranger.list_nodes(parent=PARENT))


def test_the_program_that_the_console_shows_creates_the_node(
    stack: Stack,
    client: tpu_v2.TpuClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PODYARD_URL", stack.url)
    monkeypatch.setenv("PODYARD_TOKEN", stack.token)
    kind, version = "v4-8", "tpu-vm-v4-base"
    spec = NodeSpec(kind, "2x2x1", version, UsageClass.SPOT, 'a "quoted" word', {"team": "a"})
    zone = PARENT.rpartition("/")[2]
    (text,) = (
        one.text
        for one in client_commands.create_node("demo", zone, "shown", spec)
        if one.label == "Python"
    )
    exec(text, {})
    (listing,) = (
        one.text for one in client_commands.list_nodes("demo", zone) if one.label == "Python"
    )
    exec(listing, {})
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "READY" and f"{PARENT}/nodes/shown READY" in said[1:]
    node = client.get_node(name=f"{PARENT}/nodes/shown")
    assert node.scheduling_config.spot and (node.description, dict(node.labels)) == (
        spec.description,
        {"team": "a"},
    )
    client.delete_node(name=node.name).result(timeout=30)
