"""Bad input: the right code in the one envelope, and no row half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from podyard.db.tables.base import metadata
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import load_fleet
from tests.yard import ZONE, Yard, open_yard

SMALL_FLEET = """
zones:
  us-central1-f:
    v2: {shape: 4x4, types: [v2-8, v2-32]}
quotas:
  default: 16
"""


def _rows(yard: Yard) -> dict[str, int]:
    counted = {}
    for table in metadata.sorted_tables:
        if table.name not in ("clock", "leases", "tokens"):
            query = select(func.count()).select_from(table)
            counted[table.name] = yard.database.read(lambda uow, q=query: uow.execute(q).scalar())
    return counted


GOOD: dict[str, Any] = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}


@pytest.mark.parametrize(
    ("node_id", "body", "says"),
    [
        ("a", {**GOOD, "acceleratorType": "v9-8"}, "v9-8"),
        ("a", {**GOOD, "acceleratorType": "v2-9"}, "v2-8"),
        ("a", {**GOOD, "acceleratorType": "v4-8"}, "CloudTpu received an invalid AcceleratorType"),
        (
            "a",
            {"acceleratorConfig": {"type": "V2", "topology": "3x3"}, "runtimeVersion": "x"},
            "3x3",
        ),
        (
            "a",
            {"acceleratorConfig": {"type": "V4", "topology": "abc"}, "runtimeVersion": "x"},
            "abc",
        ),
        ("a", {"acceleratorConfig": {"type": 99, "topology": "2x2"}, "runtimeVersion": "x"}, "99"),
        ("a", {**GOOD, "acceleratorConfig": {"type": "V2", "topology": "4x4"}}, "contradicts"),
        ("a", {**GOOD, "networkConfig": {}, "networkConfigs": [{}]}, "cannot be combined"),
        ("a", {**GOOD, "metadata": {"a key": "x"}}, "a key"),
        ("a", {**GOOD, "tags": ["Tag"]}, "Tag"),
        ("a", {"runtimeVersion": "tpu-vm-base"}, "acceleratorType"),
        ("a", {"acceleratorType": "v2-8"}, "runtimeVersion"),
        ("a", {**GOOD, "runtimeVersion": "tpu-vm-v4-base"}, "tpu-vm-v4-base"),
        ("a", {**GOOD, "labels": {"Bad Key": "x"}}, "Bad Key"),
        ("a", {**GOOD, "labels": ["x"]}, "labels"),
        ("a", {**GOOD, "acceleratorType": 5}, "'node.accelerator_type' (TYPE_STRING), 5"),
        ("a", {**GOOD, "unknownField": 1}, "unknownField"),
        ("a", {**GOOD, "description": "x" * 513}, "512"),
        (
            "a",
            {**GOOD, "schedulingConfig": {"spot": True, "preemptible": True}},
            "cannot be combined",
        ),
        ("A", GOOD, "nodeId"),
        ("1a", GOOD, "nodeId"),
        ("a_b", GOOD, "nodeId"),
        ("a" * 70, GOOD, "nodeId"),
        ("", GOOD, "nodeId"),
        ("a", [GOOD], "object"),
        ("a", None, "acceleratorType"),
    ],
)
def test_a_wrong_node_is_refused_and_leaves_nothing(
    yard: Yard, node_id: str, body: Any, says: str
) -> None:
    before = _rows(yard)
    message = yard.refused(
        400, "INVALID_ARGUMENT", "POST", f"{yard.nodes()}?nodeId={node_id}", body
    )
    assert says in message
    assert _rows(yard) == before


def test_what_is_no_json_or_too_large_or_nowhere_has_the_envelope_too(yard: Yard) -> None:
    def error(**options: Any) -> dict[str, Any]:
        found: dict[str, Any] = yard.http.request(**options).json()["error"]
        return found

    path = f"{yard.nodes()}?nodeId=a"
    assert error(method="POST", url=path, content=b"{")["code"] == 400
    assert error(method="POST", url=path, content=b"[" * 100_000)["code"] == 400
    assert error(method="POST", url=path, content=b" " * (1 << 20) + b"{}")["code"] == 413
    assert error(method="GET", url="/v2/nothing")["status"] == "NOT_FOUND"
    assert error(method="PUT", url=yard.nodes())["code"] == 405
    assert (
        error(method="GET", url=f"{yard.nodes()}?pageToken=%21%21")["status"] == "INVALID_ARGUMENT"
    )
    assert error(method="GET", url=f"{yard.nodes()}?pageSize=x")["status"] == "INVALID_ARGUMENT"


def test_a_zone_that_is_not_there_is_refused_in_googles_words(yard: Yard) -> None:
    message = yard.refused(
        403, "PERMISSION_DENIED", "POST", f"{yard.nodes('mars-1')}?nodeId=a", GOOD
    )
    assert message == "Location mars-1 is not found or access is unauthorized."


def test_a_second_node_of_the_same_name_is_refused(yard: Yard) -> None:
    yard.create("a")
    before = _rows(yard)
    yard.refused(409, "ALREADY_EXISTS", "POST", f"{yard.nodes()}?nodeId=a", GOOD)
    assert _rows(yard) == before


def test_quota_is_refused_with_its_name_and_limit(tmp_path: Path) -> None:
    fleet: Fleet = load_fleet(SMALL_FLEET)
    with open_yard(tmp_path, fleet) as yard:
        yard.create("a")
        yard.create("b")
        before = _rows(yard)
        response = yard.call("POST", f"{yard.nodes()}?nodeId=c", GOOD)
        error = response.json()["error"]
        assert (response.status_code, error["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert error["message"].startswith("Quota limit 'TPUV2sPerProjectPerRegionForTPUAPI,")
        assert "Limit: 16,16 in region us-central1,zone us-central1-f." in error["message"]
        assert error["details"][0]["@type"].endswith("QuotaFailure")
        assert _rows(yard) == before
        # A preempted node goes on holding quota until it is deleted.
        yard.create("s1", schedulingConfig={"spot": True})
        yard.create("s2", schedulingConfig={"spot": True})
        yard.ok("POST", "/podyard/v1/projects/demo/locations/us-central1-f/nodes/s1:preempt", {})
        yard.refused(
            429,
            "RESOURCE_EXHAUSTED",
            "POST",
            f"{yard.nodes()}?nodeId=s3",
            {**GOOD, "schedulingConfig": {"spot": True}},
        )


@pytest.mark.parametrize(
    ("body", "status", "name", "says"),
    [
        ({"recipe": "nope", "node": "a"}, 400, "INVALID_ARGUMENT", "digits-cnn"),
        ({"node": "a"}, 400, "INVALID_ARGUMENT", "recipe"),
        ({"recipe": "digits-cnn"}, 400, "INVALID_ARGUMENT", "node"),
        ({"recipe": "digits-cnn", "node": "a", "stepz": 3}, 400, "INVALID_ARGUMENT", "stepz"),
        ({"recipe": "digits-cnn", "node": "a", "steps": "10"}, 400, "INVALID_ARGUMENT", "steps"),
        ({"recipe": "digits-cnn", "node": "a", "steps": 0}, 400, "INVALID_ARGUMENT", "steps"),
        ({"recipe": "digits-cnn", "node": "a", "globalBatch": 13}, 400, "INVALID_ARGUMENT", "13"),
        ({"recipe": "digits-cnn", "node": "a", "mode": "fly"}, 400, "INVALID_ARGUMENT", "fly"),
        (
            {"recipe": "digits-cnn", "node": "a", "arguments": {"x": 1}},
            400,
            "INVALID_ARGUMENT",
            "x",
        ),
        (
            {"recipe": "digits-cnn", "node": "a", "arguments": {"dropout": 2}},
            400,
            "INVALID_ARGUMENT",
            "dropout",
        ),
        (
            {"recipe": "digits-cnn", "node": "a", "replicaProcesses": 9},
            400,
            "INVALID_ARGUMENT",
            "replicaProcesses",
        ),
        (
            {"recipe": "digits-cnn", "node": "a", "execution": "imagined"},
            400,
            "INVALID_ARGUMENT",
            "imagined",
        ),
        (
            {"recipe": "digits-cnn", "node": "a", "acceleratorType": "v2-8"},
            400,
            "INVALID_ARGUMENT",
            "node cannot be combined",
        ),
        ({"recipe": "digits-cnn", "node": "none"}, 404, "NOT_FOUND", "none"),
        ({"recipe": "digits-cnn", "node": "stopped"}, 400, "FAILED_PRECONDITION", "STOPPED"),
        (
            {"recipe": "digits-cnn", "node": "a", "mode": "evaluate"},
            400,
            "INVALID_ARGUMENT",
            "startFrom",
        ),
        (
            {"recipe": "digits-cnn", "node": "a", "training": {"keepCheckpoints": 1}},
            400,
            "INVALID_ARGUMENT",
            "keep",
        ),
        (
            {"recipe": "digits-cnn", "node": "a", "elastic": {}},
            400,
            "INVALID_ARGUMENT",
            "minReplicas",
        ),
        (
            {"recipe": "digits-cnn", "node": "a", "elastic": {"minReplicas": 2}},
            400,
            "INVALID_ARGUMENT",
            "has 1",
        ),
        ({"program": "../x:y", "node": "a"}, 400, "INVALID_ARGUMENT", "MODULE:FUNCTION"),
        ({"node": "a", "mode": "export", "startFrom": {"job": "none"}}, 404, "NOT_FOUND", "none"),
        (
            {"recipe": "digits-cnn", "node": "a"},
            400,
            "FAILED_PRECONDITION",
            "live agents (0) can run at most 0",
        ),
    ],
)
def test_a_wrong_job_is_refused_and_leaves_nothing(
    yard: Yard, body: dict[str, Any], status: int, name: str, says: str
) -> None:
    yard.create("a")
    yard.create("stopped")
    yard.ok("POST", f"{yard.nodes()}/stopped:stop", {})
    yard.step()
    before = _rows(yard)
    assert says in yard.refused(status, name, "POST", f"{yard.jobs()}?jobId=j", body)
    assert _rows(yard) == before
    yard.refused(404, "NOT_FOUND", "GET", f"{yard.jobs()}/j")


def test_a_job_that_makes_its_node_leaves_no_node_when_it_is_refused(yard: Yard) -> None:
    before = _rows(yard)
    body = {"recipe": "digits-cnn", "acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    yard.refused(400, "FAILED_PRECONDITION", "POST", f"{yard.jobs()}?jobId=j", body)
    assert _rows(yard) == before
    assert yard.ok("GET", yard.nodes(ZONE)) == {"nodes": []}
