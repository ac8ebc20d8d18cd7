"""What clients demand that read strictly: operations over REST as google-api-core parses them, the
discovery document
as SkyPilot and Ray fetch it, and the sequences of Terraform's provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.cloud import tpu_v1, tpu_v2, tpu_v2alpha1
from google.longrunning import operations_pb2
from google.protobuf import json_format

from tests.yard import ZONE, Yard

PARENT = f"projects/demo/locations/{ZONE}"
PACKAGES = {"v1": tpu_v1, "v2": tpu_v2, "v2alpha1": tpu_v2alpha1}
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def _strict(operation: dict[str, Any]) -> operations_pb2.Operation:
    """As google.api_core.operations_v1.transports.rest reads it: what it does not know is an
    error."""
    return json_format.Parse(
        json.dumps(operation), operations_pb2.Operation(), ignore_unknown_fields=False
    )


@pytest.mark.parametrize("version", PACKAGES)
def test_operations_are_read_strictly_in_every_version(yard: Yard, version: str) -> None:
    assert PACKAGES[version].Node  # its messages are in the pool that json_format resolves types in
    # Fields that the documents have and the released library has not, and those of other versions.
    rich = {
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
        "bootDiskConfig": {"customerEncryptionKey": {"kmsKeyName": "k"}, "diskSizeGb": "100"},
        "autocheckpointEnabled": True,
        "schedulingConfig": {"provisioningModel": "SPOT"},
        "dataDisks": [
            {
                "sourceDisk": f"projects/demo/zones/{ZONE}/disks/d",
                "mode": "READ_WRITE",
                "workerIds": ["0"],
            }
        ],
        "networkConfig": {"enableExternalIps": True},
    }
    begun = yard.ok("POST", f"/v2alpha1/{PARENT}/nodes?nodeId=rich", rich)
    yard.step()
    for verb in (":stop", ":start", ""):
        operation = yard.ok("GET", f"/{version}/{begun['name']}")
        parsed = _strict(operation)
        assert parsed.done
        assert parsed.response.type_url == f"type.googleapis.com/google.cloud.tpu.{version}.Node"
        assert (
            parsed.metadata.type_url
            == f"type.googleapis.com/google.cloud.tpu.{version}.OperationMetadata"
        )
        if verb:
            begun = yard.ok("POST", f"/v2/{PARENT}/nodes/rich{verb}", {})
            yard.step()
    listed = yard.ok("GET", f"/{version}/{PARENT}/operations")["operations"]
    assert len([_strict(operation) for operation in listed]) == 3
    deleted = yard.ok("DELETE", f"/{version}/{PARENT}/nodes/rich")
    assert not _strict(deleted).done
    yard.step()
    gone = _strict(yard.ok("GET", f"/{version}/{deleted['name']}"))
    wanted = "google.cloud.tpu.v1.Node" if version == "v1" else "google.protobuf.Empty"
    assert gone.response.type_url == f"type.googleapis.com/{wanted}"


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_operations_of_queued_resources_are_read_strictly(yard: Yard, version: str) -> None:
    node = {
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
        "bootDiskConfig": {"diskSizeGb": "10"},
    }
    several = {"nodeCount": 2, "nodeIdPrefix": "s", "workloadType": "THROUGHPUT_OPTIMIZED"}
    spec = {"parent": PARENT, "multiNodeParams": several, "node": node}
    body = {
        "tpu": {"nodeSpec": [spec]},
        "provisioningModel": "SPOT",
        "runDuration": {"maxRunDuration": "3600s"},
    }
    begun = yard.ok("POST", f"/v2alpha1/{PARENT}/queuedResources?queuedResourceId=q", body)
    yard.step()
    made = _strict(yard.ok("GET", f"/{version}/{begun['name']}"))
    assert (
        made.response.type_url == f"type.googleapis.com/google.cloud.tpu.{version}.QueuedResource"
    )
    found = yard.ok("GET", f"/{version}/{PARENT}/queuedResources/q")
    # Each version has its own word for several nodes.
    word = {"v2": "multisliceParams", "v2alpha1": "multiNodeParams"}[version]
    assert found["tpu"]["nodeSpec"][0][word]["nodeCount"] == 2
    deleted = yard.ok("DELETE", f"/{version}/{PARENT}/queuedResources/q?force=true")
    for _ in range(3):
        yard.step()
    gone = _strict(yard.ok("GET", f"/{version}/{deleted['name']}"))
    wanted = (
        "google.protobuf.Empty" if version == "v2" else "google.cloud.tpu.v2alpha1.QueuedResource"
    )
    assert gone.response.type_url == f"type.googleapis.com/{wanted}"


def test_an_operation_that_failed_has_a_code_a_text_and_no_response(yard: Yard) -> None:
    # A whole pod's worth of nodes, and one more.
    zone = "us-central1-c"
    for index in range(100):
        begun = yard.ok(
            "POST",
            f"{yard.nodes(zone)}?nodeId=n{index}",
            {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"},
        )
        yard.step()
        operation = yard.ok("GET", f"/v2/{begun['name']}")
        if "error" in operation:
            break
    assert operation["error"]["code"] == 8
    assert operation["error"]["message"].startswith(
        f'There is no more capacity in the zone "{zone}"; you can try in'
    )
    assert "[EID: 0x" in operation["error"]["message"]
    assert "response" not in operation
    assert _strict(operation).error.code == 8
    yard.refused(404, "NOT_FOUND", "GET", f"{yard.nodes(zone)}/n{index}")


def test_the_discovery_document_is_there_for_strangers_and_leads_back_to_us(yard: Yard) -> None:
    stranger = yard.bare
    for path in (
        "/$discovery/rest",
        "/$discovery/rest?version=v1",
        "/%24discovery/rest?version=v2alpha1",
        "/discovery/v1/apis/tpu/v2/rest",
    ):
        found = stranger.get(path).json()
        assert (found["rootUrl"], found["baseUrl"]) == (f"{yard.url}/", f"{yard.url}/"), path
        assert "mtlsRootUrl" not in found
    assert stranger.get("/$discovery/rest").json()["version"] == "v2"
    missing = stranger.get("/$discovery/rest?version=v9")
    assert (missing.status_code, missing.json()["error"]["status"]) == (404, "NOT_FOUND")
    # Who can send a token in the path only goes on with that path.
    found = stranger.get(f"/_t/{yard.token}/$discovery/rest").json()
    assert found["rootUrl"] == f"{yard.url}/_t/{yard.token}/"
    assert stranger.get(f"{found['rootUrl']}v2/{PARENT}/nodes").json() == {"nodes": []}


def test_terraform_s_sequence_for_a_tpu_vm(yard: Yard) -> None:
    """terraform-provider-google-beta, google_tpu_v2_vm: everything that was configured must come
    back unchanged."""
    base = "/v2alpha1/"
    configured = {
        "name": "tf",
        "runtimeVersion": "tpu-vm-base",
        "acceleratorType": "v2-8",
        "description": "by terraform",
        "networkConfig": {"canIpForward": True, "enableExternalIps": True, "queueCount": 16},
        "schedulingConfig": {"preemptible": True},
        "shieldedInstanceConfig": {"enableSecureBoot": True},
        "cidrBlock": "10.0.0.0/29",
        "serviceAccount": {
            "email": "tf@demo.iam.gserviceaccount.com",
            # The provider leaves aside that pubsub is added (magic-modules#9308).
            "scope": ["https://example.com/auth/x", "https://www.googleapis.com/auth/pubsub"],
        },
        "labels": {"foo": "bar", "goog-terraform-provisioned": "true"},
        "metadata": {"foo": "bar"},
        "tags": ["foo"],
        "dataDisks": [{"sourceDisk": f"projects/demo/zones/{ZONE}/disks/d", "mode": "READ_ONLY"}],
    }
    operation = yard.ok("POST", f"{base}{PARENT}/nodes?nodeId=tf", configured)
    assert operation["done"] is False
    yard.step()
    assert yard.ok("GET", f"{base}{operation['name']}")["done"] is True
    node = yard.ok("GET", f"{base}{PARENT}/nodes/tf")
    for name, value in configured.items():
        if name == "name":
            assert node["name"] == f"{PARENT}/nodes/tf"
        elif isinstance(value, dict):
            assert {key: node[name].get(key) for key in value} == value, name
        else:
            assert node[name] == value, name
    changes = {
        "description": "second",
        "labels": {"foo": "baz"},
        "metadata": {},
        "tags": [],
        "dataDisks": [],
    }
    mask = "description,dataDisks,metadata,tags,labels"
    operation = yard.ok(
        "PATCH", f"{base}{PARENT}/nodes/tf?updateMask={mask}", {**configured, **changes}
    )
    yard.step()
    assert yard.ok("GET", f"{base}{operation['name']}")["done"] is True
    node = yard.ok("GET", f"{base}{PARENT}/nodes/tf")
    assert (node["description"], node["labels"]) == ("second", {"foo": "baz"})
    assert {"metadata", "tags", "dataDisks"} & set(node) == set()
    operation = yard.ok("DELETE", f"{base}{PARENT}/nodes/tf")
    yard.step()
    assert yard.ok("GET", f"{base}{operation['name']}")["done"] is True
    yard.refused(404, "NOT_FOUND", "GET", f"{base}{PARENT}/nodes/tf")
    # Its data sources assert these keys, empty or not.
    for collection in ("acceleratorTypes", "runtimeVersions"):
        assert yard.ok("GET", f"{base}{PARENT}/{collection}")[collection]


def test_terraform_s_sequence_for_a_queued_resource(yard: Yard) -> None:
    base = f"/v2alpha1/{PARENT}/queuedResources"
    node = {
        "runtimeVersion": "tpu-vm-base",
        "acceleratorType": "v2-8",
        "description": "Text.",
        "networkConfig": {},
    }
    body = {
        "name": "tf-qr",
        "tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": "tf-node", "node": node}]},
    }
    operation = yard.ok("POST", f"{base}?queuedResourceId=tf-qr", body)
    yard.step()
    assert yard.ok("GET", f"/v2alpha1/{operation['name']}")["done"] is True
    found = yard.ok("GET", f"{base}/tf-qr")
    spec = found["tpu"]["nodeSpec"][0]
    assert (spec["parent"], spec["nodeId"], spec["node"]["description"]) == (
        PARENT,
        "tf-node",
        "Text.",
    )
    # It deletes without force: refused while there is a node.
    yard.refused(400, "FAILED_PRECONDITION", "DELETE", f"{base}/tf-qr")
    yard.ok("DELETE", f"/v2alpha1/{PARENT}/nodes/tf-node")
    for _ in range(3):
        yard.step()
    assert yard.ok("GET", f"{base}/tf-qr")["state"]["state"] == "SUSPENDED"
    yard.ok("DELETE", f"{base}/tf-qr")
    yard.step()
    yard.refused(404, "NOT_FOUND", "GET", f"{base}/tf-qr")
