"""What Google's service does where our wire once did otherwise: how nodes say that they are bought,
names that do not exist, masks, HEAD, gzip and page tokens."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from podyard.api.tpu import convert
from podyard.cli.kit import commands
from podyard.cli.kit.client import Client, Target
from podyard.cli.nodes import tpu
from podyard.cli.programs.plan import command as plan
from podyard.cli.tools.admin import hardware
from podyard.domain.fleet_file import instant_fleet, load_fleet
from podyard.engine.report.roofline import roof_of
from podyard.engine.timing.collectives import all_reduce_plan
from podyard.hardware import accelerator_types
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.topology import shape_text
from tests.yard import ZONE, Yard, open_yard

BODY: dict[str, Any] = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
PARENT = f"projects/demo/locations/{ZONE}"
QUEUED = f"/v2/{PARENT}/queuedResources"
VERSIONS = ("v1", "v1alpha1", "v2", "v2alpha1")


def _details(response: httpx.Response) -> str:
    """The descriptions of an error's google.rpc.BadRequest."""
    assert response.status_code == 400, response.text
    return "\n".join(
        violation["description"]
        for detail in response.json()["error"]["details"]
        if detail["@type"] == "type.googleapis.com/google.rpc.BadRequest"
        for violation in detail["fieldViolations"]
    )


SPOT = {"v1": {"preemptible": True}, "v1alpha1": {"preemptible": True}, "v2": {"spot": True}}
PREEMPTIBLE = {version: {"preemptible": True} for version in VERSIONS}
PLAIN: dict[str, dict[str, Any]] = {version: {} for version in VERSIONS}


@pytest.mark.parametrize(
    ("tier", "shown"),
    [
        ({"spot": {}}, SPOT | {"v2alpha1": {"spot": True, "provisioningModel": "SPOT"}}),
        ({"bestEffort": {}}, PREEMPTIBLE),
        (
            {"provisioningModel": "SPOT"},
            SPOT | {"v2alpha1": {"spot": True, "provisioningModel": "SPOT"}},
        ),
        ({"guaranteed": {}}, PLAIN),
        ({}, PLAIN),
    ],
    ids=["spot", "best-effort", "provisioning-model", "guaranteed", "nothing"],
)
def test_a_node_of_a_queued_resource_shows_how_it_is_bought(
    yard: Yard, tier: dict[str, Any], shown: dict[str, Any]
) -> None:
    # STANDARD is what a node says that leaves the choice to its queued resource.
    node = (
        BODY | {"schedulingConfig": {"provisioningModel": "STANDARD"}} if "spot" in tier else BODY
    )
    body = {"tpu": {"nodeSpec": [{"nodeId": "n", "node": node}]}, **tier}
    yard.ok("POST", f"/v2alpha1/{PARENT}/queuedResources?queuedResourceId=q", body)
    yard.step()
    for version in VERSIONS:
        node = yard.ok("GET", f"/{version}/{PARENT}/nodes/n")
        scheduling = {
            k: v for k, v in node["schedulingConfig"].items() if k != "terminationTimestamp"
        }
        assert scheduling == shown[version], version
        assert yard.ok("GET", f"/{version}/{PARENT}/nodes")["nodes"] == [node]


def test_a_reserved_node_names_its_reservation_where_the_version_has_the_field(yard: Yard) -> None:
    reservation = {"generation": "v2", "size": 16, "capacityUnits": "CORES"}
    yard.ok("POST", f"/podyard/v1/{PARENT}/reservations?reservationId=r", reservation)
    name = f"{PARENT}/reservations/r"
    yard.create("n", schedulingConfig={"reserved": True, "spot": False})
    spec = {"tpu": {"nodeSpec": [{"nodeId": "m", "node": BODY}]}, "reservationName": name}
    yard.ok("POST", f"{QUEUED}?queuedResourceId=q", spec)
    yard.step()
    for version in VERSIONS:
        alpha = version == "v2alpha1"
        model = {"provisioningModel": "RESERVATION_BOUND"} if alpha else {}
        plain, queued = (
            yard.ok("GET", f"/{version}/{PARENT}/nodes/{node}")["schedulingConfig"] for node in "nm"
        )
        assert plain == {"reserved": True} | model
        assert queued == plain | ({"reservationName": name} if alpha else {})


def test_unknown_runtime_versions_are_refused_with_the_nearest(yard: Yard) -> None:
    text = yard.refused(
        400,
        "INVALID_ARGUMENT",
        "POST",
        f"{yard.nodes()}?nodeId=a",
        BODY | {"runtimeVersion": "tpu-vm-bse"},
    )
    assert text == (
        "runtime version 'tpu-vm-bse' does not exist; the nearest that runs on v2 is 'tpu-vm-base'"
    )
    spec = {"nodeId": "a", "node": BODY | {"runtimeVersion": "v2-alpha-tpuv9"}}
    body = {"tpu": {"nodeSpec": [spec]}}
    assert "is 'v2-alpha'" in yard.refused(
        400, "INVALID_ARGUMENT", "POST", f"{QUEUED}?queuedResourceId=q", body
    )
    job = {"recipe": "digits-cnn", "acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-bse"}
    assert "'tpu-vm-base'" in yard.refused(
        400, "INVALID_ARGUMENT", "POST", f"{yard.jobs()}?jobId=j", job
    )
    node = {"acceleratorType": "v2-8", "tensorflowVersion": "2.4"}
    refused = yard.call("POST", f"/v1/{PARENT}/nodes?nodeId=a", node)
    assert refused.json()["error"]["message"].startswith(
        'Cloud TPU received an invalid argument. The field "TensorflowVersion" cannot be '
        '"2.4". [EID: 0x'
    )
    assert "the nearest that does is '2.4.1'" in _details(refused)
    yard.create("a")
    refused = yard.call("POST", f"/v1/{PARENT}/nodes/a:reimage", {"tensorflowVersion": "2.12"})
    assert "the nearest that does is '2.12.0'" in _details(refused)
    assert [node["name"] for node in yard.ok("GET", yard.nodes())["nodes"]] == [f"{PARENT}/nodes/a"]
    yard.ok("POST", f"/v1/{PARENT}/nodes/a:reimage", {"tensorflowVersion": "2.12.0"})


def test_what_skypilot_ray_and_gcloud_ask_for_is_known(yard: Yard) -> None:
    asked = {
        "v2-8": ("us-central1-a", "tpu-vm-base v2-alpha 2.3 tpu-ubuntu2204-base"),
        "v4-8": ("us-central2-b", "tpu-vm-v4-base v2-alpha-tpuv4 tpu-vm-tf-2.18.0-pjrt"),
        "v5litepod-4": ("us-central1-a", "v2-alpha-tpuv5-lite v2-alpha-tpuv5"),
        "v5p-8": ("us-central1-a", "v2-alpha-tpuv5 tpu-vm-cos-stable"),
        "v6e-4": ("us-central1-b", "v2-alpha-tpuv6e"),
    }
    for kind, (zone, versions) in asked.items():
        for index, version in enumerate(versions.split()):
            body = {"acceleratorType": kind, "runtimeVersion": version}
            yard.ok("POST", f"{yard.nodes(zone)}?nodeId={kind}-{index}", body)
            listed = yard.ok("GET", f"/v2/projects/demo/locations/{zone}/runtimeVersions/{version}")
            assert listed["version"] == version
    for version in ("1.1", "1.15", "2.4.1", "2.12.0"):
        assert yard.ok("GET", f"/v1/{PARENT}/tensorflowVersions/{version}")["version"] == version


def test_a_fleet_may_allow_unknown_runtime_versions(tmp_path: Path) -> None:
    fleet = load_fleet("extends: instant\nunknown_runtime_versions: allow\n")
    with open_yard(tmp_path, fleet=fleet) as yard:
        yard.create("a", runtimeVersion="a-version-of-next-week")
        yard.ok(
            "POST",
            f"/v1/{PARENT}/nodes?nodeId=b",
            {"acceleratorType": "v2-8", "tensorflowVersion": "9.9"},
        )
        # A version that is known to serve other generations is refused all the same.
        body = BODY | {"runtimeVersion": "v2-alpha-tpuv5"}
        assert "does not run on v2" in yard.refused(
            400, "INVALID_ARGUMENT", "POST", f"{yard.nodes()}?nodeId=c", body
        )


@pytest.mark.parametrize("several", ["multisliceParams", "multiNodeParams"])
def test_one_node_is_not_several(yard: Yard, several: str) -> None:
    version = "v2" if several == "multisliceParams" else "v2alpha1"
    path = f"/{version}/{PARENT}/queuedResources?queuedResourceId=q"
    body = {"tpu": {"nodeSpec": [{"node": BODY, several: {"nodeCount": 1}}]}}
    text = yard.refused(400, "INVALID_ARGUMENT", "POST", path, body)
    assert f"{several}.nodeCount is 1: this needs to be > 1" in text
    body["tpu"]["nodeSpec"][0][several]["nodeCount"] = 2
    yard.ok("POST", path, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_types_are_refused_in_googles_words_and_explained_in_the_details(
    yard: Yard, version: str
) -> None:
    software = {"tensorflowVersion" if version.startswith("v1") else "runtimeVersion": "2.3"}
    zone = "us-central1-c"
    path = f"/{version}/projects/demo/locations/{zone}/nodes?nodeId=a"
    refused = yard.call("POST", path, {"acceleratorType": "v3-16", **software})
    expected = (
        'CloudTpu received an invalid AcceleratorType, "v3-16" for zone '
        '"us-central1-c". Valid '
        'values are "v2-8, ".'
    )
    assert refused.json()["error"]["message"] == expected
    assert "the nearest that do are v3-8, v3-32" in _details(refused)
    refused = yard.call("POST", path, {"acceleratorType": "v3-8", **software})
    assert refused.json()["error"]["message"] == expected.replace("v3-16", "v3-8")
    assert "it is offered in us-central1-b" in _details(refused)
    refused = yard.call("POST", path, {"acceleratorType": "tpu7x-8", **software})
    assert refused.json()["error"]["message"] == expected.replace("v3-16", "tpu7x-8")
    assert "not in the Cloud TPU API: create instances of machine type tpu7x-" in _details(refused)


def test_a_queued_resource_and_a_job_refuse_unknown_types_in_the_same_words(yard: Yard) -> None:
    body = {"tpu": {"nodeSpec": [{"nodeId": "n", "node": BODY | {"acceleratorType": "v2-7"}}]}}
    refused = yard.call("POST", f"{QUEUED}?queuedResourceId=q", body)
    assert refused.json()["error"]["message"].startswith(
        'CloudTpu received an invalid AcceleratorType, "v2-7" for zone'
    )
    assert "nearest that do are v2-8" in _details(refused)
    job = {"recipe": "digits-cnn", "acceleratorType": "v2-7", "runtimeVersion": "tpu-vm-base"}
    refused = yard.call("POST", f"{yard.jobs()}?jobId=j", job)
    assert refused.json()["error"]["message"].startswith(
        'CloudTpu received an invalid AcceleratorType, "v2-7" for zone'
    )


def test_the_command_line_prints_google_s_words_and_ours(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(Client(Target(yard.url, yard.token, "demo", ZONE))) as client:
        monkeypatch.setattr(tpu, "client_of", lambda *_: client)
        with pytest.raises(SystemExit):
            commands.run(
                [
                    "tpu",
                    "create",
                    "n",
                    "--zone",
                    ZONE,
                    "--accelerator-type",
                    "v2-9",
                    "--version",
                    "tpu-vm-base",
                ]
            )
    first, second = capsys.readouterr().err.splitlines()
    assert 'CloudTpu received an invalid AcceleratorType, "v2-9" for zone' in first
    assert second == (
        "accelerator type 'v2-9' does not exist; the nearest that do are v2-8, v2-32, "
        "v2-128, v2-256"
    )


def _legal() -> Iterator[tuple[str, str, str]]:
    """(generation, its name on the wire, topology) of every legal shape."""
    for generation in GENERATIONS.values():
        if generation.wire_type is not None and generation.node_type:
            for shape in accelerator_types.legal_shapes(generation):
                yield generation.name, generation.wire_type, shape_text(shape)


def test_every_legal_shape_has_its_name_everywhere(yard: Yard) -> None:
    fleet = instant_fleet()
    zones = {
        "v2": "us-central1-a",
        "v3": "us-east1-d",
        "v4": "us-central2-b",
        "v5e": "us-central1-a",
    }
    zones |= {"v5p": "us-central1-a", "v6e": "us-central1-b"}
    described = {
        (zone, kind["type"]): [config["topology"] for config in kind["acceleratorConfigs"]]
        for zone in set(zones.values())
        for kind in yard.ok(
            "GET", f"/v2/projects/demo/locations/{zone}/acceleratorTypes?pageSize=1000"
        )["acceleratorTypes"]
    }
    count, names = 0, set()
    for generation, wire_type, topology in _legal():
        config = {
            "acceleratorConfig": {"type": wire_type, "topology": topology},
            "runtimeVersion": "tpu-ubuntu2204-base",
        }
        zone = zones[generation]
        asked = convert.from_api_node(
            "v2", config, lambda name, zone=zone: fleet.type_named(zone, name)
        )
        kind = accelerator_types.parse(asked.accelerator_type)
        assert kind.name == asked.accelerator_type
        assert fleet.type_named(zone, kind.name) == kind
        offer = fleet.zones[zone].offers[generation]
        if offer.fits(accelerator_types.from_config(wire_type, topology)):
            assert topology in described[zone, kind.name], (zone, topology)
        names.add(kind.name)
        count += 1
    assert count == 5 + 8 + 186 + 8 + 414 + 8
    of_nodes = [k for k in accelerator_types.all_types() if k.generation.wire_type is not None]
    assert names == {kind.name for kind in of_nodes}
    assert (
        sorted(plan._kinds("v4-*", fleet), key=lambda kind: kind.chip_count)[-1].name == "v4-8192"
    )
    assert all_reduce_plan("v4-8192", 1 << 20).seconds > 0
    assert roof_of("v4-8192") == roof_of("v4-8")
    path = "/v2/projects/demo/locations/us-central2-b/acceleratorTypes/v4-8192"
    assert yard.ok("GET", path)["acceleratorConfigs"][0] == {"type": "V4", "topology": "16x16x16"}
    body = {"acceleratorType": "v4-8192", "runtimeVersion": "tpu-vm-v4-base"}
    yard.ok("POST", f"{yard.nodes('us-central2-b')}?nodeId=pod", body)
    yard.step()
    assert (
        yard.ok("GET", f"{yard.nodes('us-central2-b')}/pod")["acceleratorConfig"]["topology"]
        == "16x16x16"
    )
    pod = "/podyard/v1/projects/demo/pods/us-central2-b-v4-1:defragment?acceleratorType=v4-8192"
    assert yard.ok("GET", pod)["acceleratorType"] == "v4-8192"
    shown = CliRunner().invoke(hardware, ["show", "v4-8192", "-o", "json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["name"] == "v4-8192"


def test_an_update_without_a_mask_is_refused(yard: Yard) -> None:
    yard.create("a", description="first")
    path = f"{yard.nodes()}/a"
    for query in ("", "?updateMask="):
        text = yard.refused(
            400, "INVALID_ARGUMENT", "PATCH", f"{path}{query}", {"description": "second"}
        )
        assert text.startswith("updateMask is required")
    assert yard.ok("GET", path)["description"] == "first"


def test_scopes_come_back_with_the_one_that_google_adds(yard: Yard) -> None:
    """GoogleCloudPlatform/magic-modules#9308: the server adds pubsub to scopes without it."""
    scope = "https://www.googleapis.com/auth/"
    account = {"email": "bot@demo.iam.gserviceaccount.com", "scope": [f"{scope}cloud-platform"]}
    yard.create("a", serviceAccount=account)
    shown = yard.ok("GET", f"{yard.nodes()}/a")["serviceAccount"]
    assert shown == account | {"scope": [f"{scope}cloud-platform", f"{scope}pubsub"]}
    yard.create("b", serviceAccount=shown)
    assert yard.ok("GET", f"{yard.nodes()}/b")["serviceAccount"] == shown


def test_a_queued_resource_shows_type_and_topology_of_its_nodes(yard: Yard) -> None:
    """`gcloud compute tpus queued-resources list` reads both of the first node."""
    node = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    spec = {"parent": f"projects/demo/locations/{ZONE}", "nodeId": "n", "node": node}
    path = f"/v2/projects/demo/locations/{ZONE}/queuedResources"
    yard.ok("POST", f"{path}?queuedResourceId=q", {"tpu": {"nodeSpec": [spec]}})
    (queued,) = yard.ok("GET", path)["queuedResources"]
    shown = queued["tpu"]["nodeSpec"][0]["node"]
    assert shown["acceleratorType"] == "v2-8"
    assert shown["acceleratorConfig"] == {"type": "V2", "topology": "2x2"}


def test_a_mask_of_one_star_replaces_all_that_can_be_updated(yard: Yard) -> None:
    yard.create("a", description="first", labels={"k": "v"}, tags=["t"], metadata={"m": "1"})
    path = f"{yard.nodes()}/a"
    yard.ok("PATCH", f"{path}?updateMask=*", {"labels": {"only": "this"}})
    node = yard.ok("GET", path)
    assert node["labels"] == {"only": "this"}
    assert not {"description", "tags", "metadata"} & set(node)
    assert node["acceleratorType"] == "v2-8"
    text = yard.refused(
        400, "INVALID_ARGUMENT", "PATCH", f"{path}?updateMask=*,labels", {"labels": {}}
    )
    assert "means all fields" in text


def test_head_answers_as_get_without_a_body(yard: Yard) -> None:
    yard.create("a")
    for path in (
        f"{yard.nodes()}/a",
        yard.nodes(),
        f"/v1/{PARENT}/nodes/a",
        "/$discovery/rest?version=v2",
        "/v1/services",
    ):
        head, got = yard.call("HEAD", path), yard.call("GET", path)
        assert (head.status_code, head.content) == (200, b""), path
        for name in ("content-type", "content-length", "content-encoding"):
            assert head.headers.get(name) == got.headers.get(name), (path, name)
    missing = yard.call("HEAD", f"{yard.nodes()}/none")
    assert (missing.status_code, missing.content) == (404, b"")


def test_answers_of_some_size_are_compressed_for_who_accepts_it(yard: Yard) -> None:
    path = f"/v2/{PARENT}/runtimeVersions"
    with yard.http.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    plain = yard.call("GET", path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(raw) == plain.content
    assert len(raw) < len(plain.content) / 2
    small = yard.call("GET", f"/v2/{PARENT}", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in small.headers


def test_compressed_requests_are_read(yard: Yard) -> None:
    path = f"{yard.nodes()}?nodeId=a"
    packed = {
        "content": gzip.compress(json.dumps(BODY).encode()),
        "headers": {"Content-Encoding": "gzip"},
    }
    created = yard.http.post(path, **packed)
    assert created.status_code == 200, created.text
    for content, encoding, says in (
        (b"{}", "gzip", "not gzip"),
        (packed["content"][:-4], "gzip", "one complete gzip stream"),
        (gzip.compress(b" " * (1 << 21)), "gzip", "larger than"),
        (b"{}", "br", "Content-Encoding 'br' is not supported"),
    ):
        refused = yard.http.post(path, content=content, headers={"Content-Encoding": encoding})
        assert refused.status_code == 400, refused.text
        assert says in refused.json()["error"]["message"]


def test_a_page_token_continues_only_the_list_that_gave_it(yard: Yard) -> None:
    for index in range(3):
        yard.create(f"n{index}")
    types = f"/v2/{PARENT}/acceleratorTypes?pageSize=1"
    token = yard.ok("GET", f"{yard.nodes()}?pageSize=1")["nextPageToken"]
    assert len(yard.ok("GET", f"{yard.nodes()}?pageSize=2&pageToken={token}")["nodes"]) == 2
    narrowed = yard.ok("GET", f"/v2/{PARENT}/runtimeVersions?pageSize=1&filter=version:tpu*")[
        "nextPageToken"
    ]
    forged = base64.urlsafe_b64encode(f"{PARENT}/nodes/n1".encode()).decode()
    cut = base64.urlsafe_b64encode(base64.urlsafe_b64decode(token)[:-1] + b"9").decode()
    for path in (
        f"{yard.nodes()}?pageToken={forged}",
        f"{yard.nodes()}?pageToken={cut}",
        f"{yard.nodes()}?pageToken=not-a-token",
        f"{yard.nodes('us-central1-a')}?pageToken={token}",
        f"{yard.nodes('-')}?pageToken={token}",
        f"{types}&pageToken={token}",
        f"/v2/{PARENT}/runtimeVersions?pageToken={narrowed}",
        f"/v2/{PARENT}/runtimeVersions?filter=version:v2*&pageToken={narrowed}",
        f"/v1/services?pageToken={token}",
    ):
        assert "pageToken" in yard.refused(400, "INVALID_ARGUMENT", "GET", path), path
    yard.ok("GET", f"/v2/{PARENT}/runtimeVersions?filter=version:tpu*&pageToken={narrowed}")
