"""gcloud, unmodified, with the exports of `podyard env`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.stack import Stack
from tests.waiting import patient

ZONE = "us-central1-f"
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    # Not a package that the project can install: it runs where the machine has it.
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]


@pytest.fixture
def environment(stack: Stack) -> dict[str, str]:
    exports = json.loads(stack.podyard("env", "-o", "json").stdout)
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**keep, **exports}


def _run(environment: dict[str, str], *arguments: str) -> Any:
    """One gcloud command in the zone, and its answer."""
    command = ["gcloud", *arguments, "--zone", ZONE, "--format", "json", "--quiet"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


def _gcloud(environment: dict[str, str], *arguments: str) -> Any:
    return _run(environment, "compute", "tpus", "tpu-vm", *arguments)


@pytest.mark.smoke
def test_a_node_lives_its_life(environment: dict[str, str]) -> None:
    version = (
        "--accelerator-type",
        "v2-8",
        "--version",
        "tpu-vm-base",
        "--preemptible",
        "--labels",
        "a=b",
    )
    _gcloud(environment, "create", "gc", *version)
    (listed,) = _gcloud(environment, "list")
    assert listed["name"].endswith(f"/locations/{ZONE}/nodes/gc")
    found = _gcloud(environment, "describe", "gc")
    assert (found["state"], found["labels"], found["schedulingConfig"]) == (
        "READY",
        {"a": "b"},
        {"preemptible": True},
    )
    _gcloud(environment, "update", "gc", "--description", "hello", "--update-labels", "c=d")
    found = _gcloud(environment, "describe", "gc")
    assert (found["description"], found["labels"]) == ("hello", {"a": "b", "c": "d"})
    _gcloud(environment, "stop", "gc")
    assert _gcloud(environment, "describe", "gc")["state"] == "STOPPED"
    _gcloud(environment, "start", "gc")
    _gcloud(environment, "delete", "gc")
    assert _gcloud(environment, "list") == []


def test_an_error_is_shown_in_our_words(environment: dict[str, str]) -> None:
    arguments = [
        "create",
        "bad",
        "--zone",
        ZONE,
        "--accelerator-type",
        "v4-8",
        "--version",
        "tpu-vm-base",
    ]
    done = subprocess.run(
        ["gcloud", "compute", "tpus", "tpu-vm", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(120),
    )
    assert done.returncode == 1
    assert (
        'CloudTpu received an invalid AcceleratorType, "v4-8" for zone "us-central1-f"'
        in done.stderr
    )


def test_queued_resources_live_their_lives(environment: dict[str, str]) -> None:
    queue = ("compute", "tpus", "queued-resources")
    kind = ("--accelerator-type", "v2-8", "--runtime-version", "tpu-vm-base")
    made = _run(environment, *queue, "create", "gq", "--node-id", "gq-node", *kind, "--spot")
    assert made["name"].endswith("/queuedResources/gq")
    found = _run(environment, *queue, "describe", "gq")
    assert (found["spot"], found["state"]["state"]) == ({}, "ACTIVE")
    assert [item["name"] for item in _run(environment, *queue, "list")] == [made["name"]]
    _run(environment, *queue, "reset", "gq")
    _run(environment, *queue, "delete", "gq", "--force")
    # Several slices, which only the alpha commands know as nodes with a prefix.
    several = ("--node-prefix", "gs", "--node-count", "2", *kind, "--valid-until-duration", "1h")
    _run(environment, "alpha", *queue, "create", "gs", *several)
    assert _run(environment, "alpha", *queue, "describe", "gs")["state"]["state"] == "ACTIVE"
    slices = _gcloud(environment, "list")
    assert {(item["name"].rsplit("/", 1)[-1], item["multisliceNode"]) for item in slices} == {
        ("gs-0", True),
        ("gs-1", True),
    }
    _run(environment, "alpha", *queue, "delete", "gs", "--force")
    assert _gcloud(environment, "list") == []


def test_the_catalogue_maintenance_and_guest_attributes(
    environment: dict[str, str], stack: Stack
) -> None:
    tpus = ("compute", "tpus")
    kinds = {item["type"] for item in _run(environment, *tpus, "accelerator-types", "list")}
    assert kinds == {"v2-8", "v3-8"}
    versions = {item["version"] for item in _run(environment, *tpus, "tpu-vm", "versions", "list")}
    assert "tpu-vm-base" in versions
    assert {item["version"] for item in _run(environment, *tpus, "versions", "list")} >= {"2.12.0"}
    body = {"generation": "v2", "size": 8, "capacityUnits": "CORES"}
    stack.call(
        "POST", f"/podyard/v1/projects/demo/locations/{ZONE}/reservations?reservationId=kept", body
    )
    (kept,) = _run(environment, "alpha", *tpus, "reservations", "list")
    assert (kept["name"].rsplit("/", 1)[-1], kept["standard"]["size"]) == ("kept", 8)
    _run(
        environment,
        "alpha",
        *tpus,
        "tpu-vm",
        "create",
        "gm",
        "--accelerator-type",
        "v2-8",
        "--version",
        "tpu-vm-base",
    )
    played = _run(
        environment, "alpha", *tpus, "tpu-vm", "simulate-maintenance-event", "gm", "--workers", "0"
    )
    assert played["response"]["name"].endswith("/nodes/gm")
    # before the host runs
    (key,) = _run(environment, *tpus, "tpu-vm", "get-guest-attributes", "gm")
    assert (key["namespace"], key["key"], key["worker_id"]) == ("hostkeys", "ssh-ed25519", 0)
    _gcloud(environment, "delete", "gm")


def test_a_node_of_the_first_api(environment: dict[str, str]) -> None:
    tpus = ("compute", "tpus")
    made = ("--version", "2.12.0", "--accelerator-type", "v2-8", "--range", "10.240.1.0/29")
    _run(environment, *tpus, "create", "gone", *made, "--network", "default")
    found = _run(environment, *tpus, "describe", "gone")
    assert (found["apiVersion"], found["tensorflowVersion"], found["cidrBlock"]) == (
        "V1",
        "2.12.0",
        "10.240.1.0/29",
    )
    assert (found["ipAddress"], found["port"]) == (
        found["networkEndpoints"][0]["ipAddress"],
        "8470",
    )
    _run(environment, *tpus, "reimage", "gone", "--version", "2.11.0")
    assert _run(environment, *tpus, "describe", "gone")["tensorflowVersion"] == "2.11.0"
    # gcloud hides nodes of the first API from the list of TPU VMs.
    assert _gcloud(environment, "list") == []
    _run(environment, *tpus, "delete", "gone")


def test_a_disk_lives_its_life(environment: dict[str, str]) -> None:
    disks = ("compute", "disks")
    (made,) = _run(
        environment,
        *disks,
        "create",
        "gd",
        "--size",
        "200GB",
        "--type",
        "pd-ssd",
        "--labels",
        "a=b",
    )
    assert (made["name"], made["sizeGb"], made["status"], made["labels"]) == (
        "gd",
        "200",
        "READY",
        {"a": "b"},
    )
    assert _listed_disks(environment) == ["gd"]
    _run(environment, *disks, "resize", "gd", "--size", "300GB")
    _run(environment, *disks, "update", "gd", "--update-labels", "c=d")
    found = _run(environment, *disks, "describe", "gd")
    assert (found["sizeGb"], found["labels"]) == ("300", {"a": "b", "c": "d"})
    _run(environment, *disks, "delete", "gd")
    assert _listed_disks(environment) == []


def _listed_disks(environment: dict[str, str]) -> list[str]:
    """In all zones, which the command line of disks has no flag for."""
    command = ["gcloud", "compute", "disks", "list", "--format", "json", "--quiet"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stderr
    return [item["name"] for item in json.loads(done.stdout)]
