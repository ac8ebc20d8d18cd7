"""gcloud, unmodified, with the exports of `podyard env`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
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
    attributes = _run(environment, *tpus, "tpu-vm", "get-guest-attributes", "gm")
    assert [(one["namespace"], one["key"], one["worker_id"]) for one in attributes] == [
        ("guestInventory", "hostname", 0),
        ("hostkeys", "ssh-ed25519", 0),
    ]
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


def _in_folder(environment: dict[str, str], folder: Path, command: str, *, code: int = 0) -> str:
    """Return what a command prints, run in a folder that is also its user's home."""
    done = subprocess.run(
        shlex.split(command),
        env=environment | {"HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(120),
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("gsutil") is None, reason="gsutil is not installed")
def test_gsutil_needs_the_exports_only(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "tree" / "deep" / "b.bin").write_bytes(bytes(9 << 20))  # a resumable upload
    for command in (
        "mb gs://by-gsutil",
        "cp a.txt gs://by-gsutil/",
        "rsync -r tree gs://by-gsutil/t",
    ):
        _in_folder(environment, tmp_path, f"gsutil {command}")
    listed = _in_folder(environment, tmp_path, "gsutil ls gs://by-gsutil/**")
    assert listed.split() == ["gs://by-gsutil/a.txt", "gs://by-gsutil/t/deep/b.bin"]
    assert _in_folder(environment, tmp_path, "gsutil cat gs://by-gsutil/a.txt") == "hello\n"
    _in_folder(environment, tmp_path, "gsutil cp gs://by-gsutil/t/deep/b.bin back.bin")
    assert (tmp_path / "back.bin").read_bytes() == bytes(9 << 20)
    _in_folder(environment, tmp_path, "gsutil rm -r gs://by-gsutil")


def test_an_account_is_signed_in_and_the_project_can_be_set(
    environment: dict[str, str], tmp_path: Path
) -> None:
    accounts = _in_folder(environment, tmp_path, "gcloud auth list --format=value(account,status)")
    assert accounts.split() == ["owner@podyard.local", "*"]
    said = _in_folder(environment, tmp_path, "gcloud config set project demo")
    assert "WARNING" not in said, said
    _in_folder(environment, tmp_path, "gcloud config set project other")
    assert _in_folder(environment, tmp_path, "gcloud config get project").split()[-1] == "other"
    _in_folder(environment, tmp_path, "gcloud config set project demo")
    assert _in_folder(environment, tmp_path, "gcloud projects list --format=value(projectId)") == (
        "demo\n"
    )


@pytest.mark.parametrize("by_hand", [True, False], ids=["code", "browser"])
def test_somebody_else_signs_in(
    environment: dict[str, str], stack: Stack, tmp_path: Path, by_hand: bool
) -> None:
    """As in a terminal next to a browser: the page is opened, a token is typed there, and the code
    comes back by hand or to the port where gcloud listens."""
    email = f"{'hand' if by_hand else 'browser'}@example.com"
    words = ("auth", "token", "create", email, "--role", "tpu.viewer", "-o", "json")
    made = stack.command(*words, "--data", str(stack.data))
    token = json.loads(made.stdout)["token"]
    command = ["gcloud", "auth", "login", *(["--no-launch-browser"] if by_hand else [])]
    with subprocess.Popen(
        command,
        env=environment | {"HOME": str(tmp_path), "BROWSER": "true", "DISPLAY": ":0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as login:
        assert login.stdout is not None
        url = next(line.strip() for line in login.stdout if line.strip().startswith("http://"))
        page = httpx.post(url, data={"use": "token", "token": token}, follow_redirects=True)
        code = page.text.partition("readonly>pdycode_")[2].partition("<")[0]
        assert bool(code) == by_hand
        said, _ = login.communicate(f"pdycode_{code}\n" if by_hand else "", patient(60))
        assert login.returncode == 0 and f"logged in as [{email}]" in said, said
    try:
        active = _in_folder(
            environment, tmp_path, "gcloud auth list --filter=status:ACTIVE --format=value(account)"
        )
        assert active.split() == [email]
        assert _gcloud(environment, "list") == []
        denied = _in_folder(
            environment, tmp_path,
            f"gcloud compute tpus tpu-vm create no --zone {ZONE} --accelerator-type v2-8 "
            "--version tpu-vm-base", code=1,
        )  # fmt: skip
        assert email in denied and "tpu.nodes.create" in denied
    finally:
        _in_folder(environment, tmp_path, f"gcloud auth revoke {email}")
        _in_folder(environment, tmp_path, "gcloud config set account owner@podyard.local")
