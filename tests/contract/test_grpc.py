"""google-cloud-tpu's three packages, unmodified, over gRPC: their default transport, and the only
one of v1 and v2alpha1."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v1, tpu_v2, tpu_v2alpha1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.rpc import error_details_pb2

from podyard.api.tpu import descriptors
from tests.stack import Stack, until
from tests.waiting import patient

ZONE = "us-central2-b"
PARENT = f"projects/demo/locations/{ZONE}"
PACKAGES = {"v1": tpu_v1, "v2": tpu_v2, "v2alpha1": tpu_v2alpha1}
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


class _WithToken(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """What google-auth does on a channel with TLS: on one without, gRPC refuses to send credentials
    by itself."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: Any, request: Any
    ) -> Any:
        metadata = [*(details.metadata or ()), ("authorization", f"Bearer {self._token}")]
        return continuation(details._replace(metadata=metadata), request)


@pytest.fixture
def channel(stack: Stack) -> Iterator[grpc.Channel]:
    port = json.loads((stack.data / "podyard.json").read_text())["grpcPort"]
    plain = grpc.insecure_channel(f"127.0.0.1:{port}")
    yield grpc.intercept_channel(plain, _WithToken(stack.token))
    plain.close()


def _client(channel: grpc.Channel, version: str) -> Any:
    package = PACKAGES[version]
    return package.TpuClient(
        transport=package.services.tpu.transports.TpuGrpcTransport(channel=channel)
    )


def _node(version: str, **fields: Any) -> Any:
    software = (
        {"tensorflow_version": "2.12.0"}
        if version == "v1"
        else {"runtime_version": "tpu-vm-v4-base"}
    )
    return PACKAGES[version].Node(**software, **{"accelerator_type": "v4-8", **fields})


@pytest.mark.parametrize("version", ["v1", pytest.param("v2", marks=pytest.mark.smoke), "v2alpha1"])
def test_a_node_lives_its_life(channel: grpc.Channel, version: str) -> None:
    client, package = _client(channel, version), PACKAGES[version]
    node_id = f"grpc-{version}"
    begun = client.create_node(
        parent=PARENT, node_id=node_id, node=_node(version, labels={"a": "b"})
    )
    assert begun.metadata.verb == "create"
    made = begun.result(timeout=30)
    assert type(made) is package.Node
    assert (made.name, made.state) == (f"{PARENT}/nodes/{node_id}", package.Node.State.READY)
    assert dict(made.labels) == {"a": "b"}
    seen = client.get_node(name=made.name)
    assert seen.health == package.Node.Health.HEALTHY
    assert (
        seen.api_version
        == package.Node.ApiVersion[{"v1": "V1", "v2": "V2", "v2alpha1": "V2_ALPHA1"}[version]]
    )
    assert made.name in [node.name for node in client.list_nodes(parent=PARENT)]
    if version != "v1":
        changed = package.Node(name=made.name, tags=["x"], description="second")
        mask = {"paths": ["tags", "description"]}
        updated = client.update_node(node=changed, update_mask=mask).result(timeout=30)
        assert (list(updated.tags), updated.description, dict(updated.labels)) == (
            ["x"],
            "second",
            {"a": "b"},
        )
    stopped = client.stop_node(request={"name": made.name}).result(timeout=30)
    assert stopped.state == package.Node.State.STOPPED
    assert (
        client.start_node(request={"name": made.name}).result(timeout=30).state
        == package.Node.State.READY
    )
    if version == "v1":
        again = client.reimage_node(
            request={"name": made.name, "tensorflow_version": "2.11.0"}
        ).result(timeout=30)
        assert (again.tensorflow_version, again.state) == ("2.11.0", package.Node.State.READY)
    gone = client.delete_node(request={"name": made.name}).result(timeout=30)
    # v1's delete answers with the node, the others' with nothing.
    assert type(gone) is (package.Node if version == "v1" else empty_pb2.Empty)
    with pytest.raises(exceptions.NotFound, match=node_id):
        client.get_node(name=made.name)


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_a_queued_resource_lives_its_life(channel: grpc.Channel, version: str) -> None:
    client, package = _client(channel, version), PACKAGES[version]
    name = f"grpc-qr-{version}"
    spec = {"parent": PARENT, "node_id": name, "node": _node(version)}
    wanted = package.QueuedResource(tpu={"node_spec": [spec]}, guaranteed={})
    made = client.create_queued_resource(
        parent=PARENT, queued_resource_id=name, queued_resource=wanted
    ).result(30)
    assert type(made) is package.QueuedResource
    active = package.QueuedResourceState.State.ACTIVE
    until(
        lambda: client.get_queued_resource(name=made.name).state.state == active or None,
        20,
        "ACTIVE",
    )
    node = client.get_node(name=f"{PARENT}/nodes/{name}")
    assert node.queued_resource == made.name
    assert made.name in [found.name for found in client.list_queued_resources(parent=PARENT)]
    with pytest.raises(exceptions.FailedPrecondition):
        client.delete_queued_resource(name=made.name)
    gone = client.delete_queued_resource(request={"name": made.name, "force": True}).result(
        timeout=30
    )
    # v2alpha1's delete answers with the queued resource, v2's with nothing.
    assert type(gone) is (package.QueuedResource if version == "v2alpha1" else empty_pb2.Empty)
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=node.name)


@pytest.mark.parametrize("version", PACKAGES)
def test_zones_types_versions_and_operations_are_listed(
    channel: grpc.Channel, version: str
) -> None:
    client = _client(channel, version)
    assert f"{PARENT}/acceleratorTypes/v4-8" in [
        kind.name for kind in client.list_accelerator_types(parent=PARENT)
    ]
    assert client.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v4-8").type_ == "v4-8"
    lists = client.list_tensor_flow_versions if version == "v1" else client.list_runtime_versions
    assert list(lists(parent=PARENT))
    zones = client.list_locations({"name": "projects/demo"}).locations
    assert PARENT in [zone.name for zone in zones]
    assert client.get_location({"name": PARENT}).location_id == ZONE
    if version != "v1":
        identity = client.generate_service_identity({"parent": PARENT}).identity
        assert identity.email.endswith("@cloud-tpu.iam.gserviceaccount.com")
    begun = client.create_node(parent=PARENT, node_id=f"grpc-op-{version}", node=_node(version))
    begun.result(timeout=30)
    name = begun.operation.name
    shown = client.get_operation(operations_pb2.GetOperationRequest(name=name))
    # Their service has no version: an operation is shown in the one that began it.
    assert shown.response.type_url == f"type.googleapis.com/google.cloud.tpu.{version}.Node"
    assert name in [found.name for found in client.list_operations({"name": PARENT}).operations]
    client.delete_operation({"name": name})
    with pytest.raises(exceptions.NotFound):
        client.get_operation({"name": name})
    client.delete_node(request={"name": f"{PARENT}/nodes/grpc-op-{version}"}).result(timeout=30)


def test_maintenance_is_played_and_reservations_are_listed(channel: grpc.Channel) -> None:
    client = _client(channel, "v2alpha1")
    node = client.create_node(parent=PARENT, node_id="grpc-mt", node=_node("v2alpha1")).result(
        timeout=30
    )
    played = client.simulate_maintenance_event(
        request={"name": node.name, "worker_ids": ["0"]}
    ).result(timeout=30)
    assert type(played) is tpu_v2alpha1.Node
    with pytest.raises(exceptions.FailedPrecondition):
        client.perform_maintenance(request={"name": node.name})
    assert list(client.list_reservations({"parent": PARENT})) == []
    client.delete_node(request={"name": node.name}).result(timeout=30)


def test_a_request_id_is_carried_out_once(channel: grpc.Channel) -> None:
    client = _client(channel, "v2alpha1")
    uuid = "12345678-1234-4234-8234-123456789abc"
    request = {
        "parent": PARENT,
        "node_id": "grpc-once",
        "node": _node("v2alpha1"),
        "request_id": uuid,
    }
    first, second = client.create_node(request=request), client.create_node(request=request)
    assert first.operation.name == second.operation.name
    first.result(timeout=30)
    with pytest.raises(exceptions.AlreadyExists, match=uuid):
        client.create_node(request={**request, "node_id": "grpc-other"})
    client.delete_node(request={"name": f"{PARENT}/nodes/grpc-once"}).result(timeout=30)


def test_errors_have_their_codes_and_details(channel: grpc.Channel, stack: Stack) -> None:
    client = _client(channel, "v2")
    with pytest.raises(exceptions.InvalidArgument) as refused:
        client.create_node(parent=PARENT, node_id="BAD", node=_node("v2"))
    violation = next(
        item for item in refused.value.details if isinstance(item, error_details_pb2.BadRequest)
    )
    assert violation.field_violations[0].field == "nodeId"
    with pytest.raises(exceptions.PermissionDenied, match="Location mars-a is not found"):
        client.create_node(parent="projects/demo/locations/mars-a", node_id="a", node=_node("v2"))
    port = json.loads((stack.data / "podyard.json").read_text())["grpcPort"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as stranger:
        with pytest.raises(exceptions.Unauthenticated):
            _client(stranger, "v2").get_node(name=f"{PARENT}/nodes/a")
        with pytest.raises(grpc.RpcError) as unknown:
            stranger.unary_unary("/google.cloud.tpu.v9.Tpu/GetNode")(b"")
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_readme_s_program_runs_as_it_is_printed(stack: Stack) -> None:
    """REST, then gRPC until the operation of a new node has ended, in a separate program."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (program,) = [
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "grpc" in block
    ]
    stack.create_node("n1", "v2-8", "us-central1-f")
    port = json.loads((stack.data / "podyard.json").read_text())["grpcPort"]
    own = {
        "PODYARD_TOKEN": stack.token,
        "PODYARD_URL": stack.url,
        "PODYARD_GRPC_TARGET": f"127.0.0.1:{port}",
    }
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, text=True, timeout=patient(60)
    )
    stack.delete_node("n1", "us-central1-f")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "2", "1"]  # READY, READY, HEALTHY


def test_our_descriptors_are_those_of_the_released_library() -> None:
    """Every message, field number, type and enum value; names with an underscore behind them are
    Python's way out."""

    def fields(descriptor: Any) -> dict[int, tuple[Any, ...]]:
        return {
            field.number: (
                field.name.rstrip("_"),
                field.type,
                field.is_repeated,
                field.message_type and field.message_type.full_name,
                field.enum_type and field.enum_type.full_name,
            )
            for field in descriptor.fields
        }

    def compare(theirs: Any) -> int:
        ours = descriptors.pool().FindMessageTypeByName(theirs.full_name)
        assert fields(ours) == fields(theirs), theirs.full_name
        for enum in theirs.enum_types:
            mine = descriptors.pool().FindEnumTypeByName(enum.full_name)
            assert {v.name: v.number for v in mine.values} == {
                v.name: v.number for v in enum.values
            }
        return 1 + sum(
            compare(inner) for inner in theirs.nested_types if not inner.GetOptions().map_entry
        )

    compared = 0
    for version, package in PACKAGES.items():
        file = package.Node.pb(package.Node()).DESCRIPTOR.file
        compared += sum(compare(message) for message in file.message_types_by_name.values())
        ours = {method.rpc for method in descriptors.tpu_methods(version)}
        methods = {name for name in vars(package.TpuClient) if not name.startswith("_")}
        assert len(ours) >= 11
        assert {_snake(name) for name in ours} <= methods
    assert compared > 120


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip(
        "_"
    )
