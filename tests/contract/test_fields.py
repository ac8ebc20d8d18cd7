"""Field by field against Google's own discovery documents: every method is there, every field that
a client may set is taken and given back, every answer is one that the documents allow. What is
otherwise has an id in docs/compatibility.md; a difference without one fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httplib2
import pytest
from googleapiclient.discovery import build_from_document

from podyard.api.tpu import discovery, schema
from tests.contract.discovery_schema import (
    VERSIONS,
    document,
    methods,
    properties,
    request_fields,
    violations,
)
from tests.yard import Yard, open_yard

# Ids of docs/compatibility.md: (version, schema, field path) -> id.
LEFT_ASIDE = {
    ("health",): "health-is-ours",
    ("ipAddress",): "addresses-are-ours",
    ("port",): "addresses-are-ours",
}
STATE_IS_OURS = "state-is-ours"
PROJECT = "projects/demo/locations"
ZONE = "us-central1-f"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_yard(tmp_path_factory.mktemp("fields")) as found:
        yield found


def _software(version: str) -> dict[str, str]:
    return (
        {"tensorflowVersion": "2.12.0"}
        if version.startswith("v1")
        else {"runtimeVersion": "tpu-vm-base"}
    )


def _node(version: str) -> dict[str, Any]:
    return {"acceleratorType": "v2-8", **_software(version)}


def _sample(path: str, kind: dict[str, Any]) -> Any:
    """A value that makes sense there."""
    name = path.rsplit(".", 1)[-1]
    samples: dict[str, Any] = {
        "acceleratorType": "v2-8",
        "tensorflowVersion": "2.11.0",
        "runtimeVersion": "tpu-ubuntu2204-base",
        "topology": "2x2",
        "cidrBlock": "10.240.0.0/29",
        "network": "projects/demo/global/networks/default",
        "subnetwork": "projects/demo/regions/us-central1/subnetworks/default",
        "tags": ["web", "train"],
        "workerIds": ["0"],
        # with the one that the server adds
        "scope": [
            "https://www.googleapis.com/auth/cloud-platform",
            "https://www.googleapis.com/auth/pubsub",
        ],
        "sourceDisk": f"projects/demo/zones/{ZONE}/disks/data",
        "reservationName": f"{PROJECT}/{ZONE}/reservations/mine",
        "nodeCount": 2,
        "parent": f"{PROJECT}/{ZONE}",
        "startTime": "2026-03-02T00:00:00Z",
        "endTime": "2026-03-03T00:00:00Z",
        "nodeId": "fields-own",
        "nodeIdPrefix": "fields-several",
    }
    if name in samples:
        return samples[name]
    if "enum" in kind:
        return {"type": "V2", "mode": "READ_ONLY", "provisioningModel": "SPOT"}.get(
            name, kind["enum"][-1]
        )
    by_format = {
        "int64": "100",
        "google-duration": "3600s",
        "google-datetime": "2026-03-02T00:00:00Z",
        "int32": 3,
    }
    if kind.get("format") in by_format:
        return by_format[kind["format"]]
    by_type = {"boolean": True, "string": "some-text", "object": {"a-key": "a-value"}}
    return {} if "$ref" in kind else by_type[kind["type"]]


# Other fields that a field needs.
_COMPANIONS: dict[str, dict[str, Any]] = {
    "acceleratorConfig.topology": {"acceleratorConfig.type": "V2"},
    "acceleratorConfig.type": {"acceleratorConfig.topology": "2x2"},
    "dataDisks.mode": {"dataDisks.sourceDisk": f"projects/demo/zones/{ZONE}/disks/data"},
    "dataDisks.workerIds": {"dataDisks.sourceDisk": f"projects/demo/zones/{ZONE}/disks/data"},
    "multisliceParams.nodeIdPrefix": {"multisliceParams.nodeCount": 2},
    "multiNodeParams.nodeIdPrefix": {"multiNodeParams.nodeCount": 2},
    "multiNodeParams.workloadType": {"multiNodeParams.nodeCount": 2},
    "multisliceParams.nodeCount": {},
    "multiNodeParams.nodeCount": {},
}


def _put(body: dict[str, Any], path: str, value: Any, lists: set[str]) -> None:
    here = body
    *parents, name = path.split(".")
    for parent in parents:
        if parent in lists:
            here = here.setdefault(parent, [{}])[0]
        else:
            here = here.setdefault(parent, {})
    here[name] = value


def _take(answer: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(answer, list):
            answer = answer[0]
        answer = answer.get(name) if answer is not None else None
    return answer


LISTS = {"dataDisks", "networkConfigs", "nodeSpec"}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_of_a_node_is_taken_and_given_back(yard: Yard, version: str) -> None:
    wrong = []
    for index, (path, kind) in enumerate(request_fields(version, "Node")):
        body, value = _node(version), _sample(path, kind)
        if path.startswith("acceleratorConfig"):
            del body["acceleratorType"]
        for other, given in {path: value, **_COMPANIONS.get(path, {})}.items():
            _put(body, other, given, LISTS)
        name = f"field-{index}-{version}"
        answer = yard.call("POST", f"/{version}/{PROJECT}/{ZONE}/nodes?nodeId={name}", body)
        if answer.status_code != 200:
            wrong.append(f"{path}: {answer.text}")
            continue
        shown = yard.ok("GET", f"/{version}/{PROJECT}/{ZONE}/nodes/{name}")
        wrong += [f"{path}: {text}" for text in violations(version, "Node", shown)]
        if (path,) not in LEFT_ASIDE and _take(shown, path) != value:
            wrong.append(f"{path}: {value!r} was given, {_take(shown, path)!r} came back")
        yard.step()
        # A reserved node has gone by itself: there is no reservation.
        yard.call("DELETE", f"/{version}/{PROJECT}/{ZONE}/nodes/{name}")
        yard.step()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_every_field_of_a_queued_resource_is_taken_and_given_back(yard: Yard, version: str) -> None:
    wrong = []
    for index, (path, kind) in enumerate(request_fields(version, "QueuedResource")):
        name = f"queued-{index}-{version}"
        value = _sample(path, kind)
        spec: dict[str, Any] = {
            "parent": f"{PROJECT}/{ZONE}",
            "nodeId": name,
            "node": _node(version),
        }
        body: dict[str, Any] = {"tpu": {"nodeSpec": [spec]}}
        short = path.removeprefix("tpu.nodeSpec.").removeprefix("node.")
        if short.startswith("acceleratorConfig"):
            del spec["node"]["acceleratorType"]
        if short.startswith("multi"):
            del spec["nodeId"]
        prefix = path.removesuffix(short)
        companions = {
            f"{prefix}{other}": given for other, given in _COMPANIONS.get(short, {}).items()
        }
        if path == "provisioningModel":
            value = "FLEX_START"
            companions = {"runDuration.maxRunDuration": "3600s"}
        for other, given in {path: value, **companions}.items():
            _put(body, other, given, LISTS)
        answer = yard.call(
            "POST", f"/{version}/{PROJECT}/{ZONE}/queuedResources?queuedResourceId={name}", body
        )
        if answer.status_code != 200:
            wrong.append(f"{path}: {answer.text}")
            continue
        shown = yard.ok("GET", f"/{version}/{PROJECT}/{ZONE}/queuedResources/{name}")
        wrong += [f"{path}: {text}" for text in violations(version, "QueuedResource", shown)]
        if path != "tpu.nodeSpec.node.health" and _take(shown, path) != value:
            wrong.append(f"{path}: {value!r} was given, {_take(shown, path)!r} came back")
        yard.step()
        yard.ok("DELETE", f"/{version}/{PROJECT}/{ZONE}/queuedResources/{name}?force=true")
        yard.step()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("version", VERSIONS)
def test_output_only_fields_of_a_body_are_left_aside(yard: Yard, version: str) -> None:
    body = _node(version)
    outputs = [name for name, kind in properties(version, "Node").items() if kind.get("readOnly")]
    for name in outputs:
        body[name] = {"anything": ["at", "all"]}
    node = f"outputs-{version}"
    yard.ok("POST", f"/{version}/{PROJECT}/{ZONE}/nodes?nodeId={node}", body)
    shown = yard.ok("GET", f"/{version}/{PROJECT}/{ZONE}/nodes/{node}")
    assert "anything" not in json.dumps(shown)
    assert len(outputs) >= 8


@pytest.mark.parametrize("version", VERSIONS)
def test_every_method_is_there_and_no_other(yard: Yard, version: str) -> None:
    ours = {method.id for method in schema.methods_of(version)}
    assert ours == set(methods(version))
    for name, method in methods(version).items():
        path = method["flatPath"].replace("{projectsId}", "demo").replace("{locationsId}", ZONE)
        path = (
            path[: path.index("{")] + "nobody" + path[path.index("}") + 1 :]
            if "{" in path
            else path
        )
        answer = yard.call(method["httpMethod"], f"/{path}", {} if "request" in method else None)
        # Refused for what it lacks or names, never for not being there.
        assert answer.status_code in (200, 400, 404), f"{name}: {answer.status_code} {answer.text}"
        assert "The requested URL" not in answer.text, name
        if answer.status_code == 200:
            assert not violations(version, method["response"]["$ref"], answer.json()), name


@pytest.mark.parametrize("version", VERSIONS)
def test_our_document_says_what_google_s_says(version: str) -> None:
    theirs, ours = document(version), discovery.document(version, "http://127.0.0.1:1/")
    found = []
    assert set(theirs["schemas"]) == set(ours["schemas"])
    for name in theirs["schemas"]:
        mine = ours["schemas"][name]["properties"]
        for field in set(properties(version, name)) | set(mine):
            a, b = _bare(properties(version, name).get(field)), _bare(mine.get(field))
            if a != b:
                found.append((name, field))
                assert a == {key: value for key, value in (b or {}).items() if key != "readOnly"}, (
                    name,
                    field,
                )
    # v2alpha1 does not call the state of a queued resource output only, though it is.
    only = {"QueuedResourceState", "FailedData"} if version == "v2alpha1" else set()
    assert {name for name, _ in found} == only
    for name, method in methods(version).items():
        mine = _methods(ours)[name]
        for key in (
            "id",
            "httpMethod",
            "path",
            "flatPath",
            "request",
            "response",
            "parameterOrder",
            "scopes",
        ):
            assert method.get(key) == mine.get(key), (name, key)
        assert _bare(method["parameters"]) == _bare(mine["parameters"]), name
    build_from_document(ours, http=httplib2.Http())


def test_every_difference_is_written_down_and_every_id_is_used() -> None:
    text = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")
    listed = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert {*LEFT_ASIDE.values(), STATE_IS_OURS} <= listed
    tests = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")
    )
    for name in listed:
        assert name in tests, f"{name} has no test"


def _methods(found: dict[str, Any]) -> dict[str, Any]:
    locations = found["resources"]["projects"]["resources"]["locations"]
    mine = dict(locations["methods"])
    for resource, holder in locations["resources"].items():
        mine |= {f"{resource}.{name}": method for name, method in holder["methods"].items()}
    return mine


def _bare(kind: Any) -> Any:
    """A part of a document without its sentences."""
    if isinstance(kind, dict):
        words = ("description", "enumDescriptions", "deprecated", "enumDeprecated")
        return {
            key: _bare(value)
            for key, value in kind.items()
            if key not in words or isinstance(value, dict)
        }
    return [_bare(item) for item in kind] if isinstance(kind, list) else kind
