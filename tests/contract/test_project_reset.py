"""`podyard project reset` on a project that has one of everything, with real processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.stack import PODYARD, Stack
from tests.waiting import patient, until

pytestmark = [pytest.mark.real, pytest.mark.slow]

ZONE = "us-central1-f"
PROJECT = "reset-me"
WIRE = f"projects/{PROJECT}/locations"
NODE = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-ubuntu2204-base"}
SECTIONS = {
    "nodes": f"/v2/{WIRE}/-/nodes",
    "queuedResources": f"/v2alpha1/{WIRE}/-/queuedResources",
    "reservations": f"/podyard/v1/{WIRE}/-/reservations",
}


def test_a_reset_ends_and_deletes_all_that_a_project_has_and_keeps_the_project(
    stack: Stack, tmp_path: Path
) -> None:
    run(stack, "project", "create", PROJECT, "--quota", "chips=64", "--budget", "50")
    fill(stack, tmp_path)
    own = stack.call("GET", f"/podyard/v1/{WIRE}/{ZONE}/jobs/own")
    assert own["state"] not in ("SUCCEEDED", "FAILED", "CANCELLED")
    assert all(names(stack, kind) for kind in SECTIONS)

    done = run(stack, "project", "reset", PROJECT, "--yes")
    parts = (
        "2 jobs ended",
        "2 queued resources deleted",
        "1 disk deleted",
        "1 reservation deleted",
        "2 buckets deleted",
        "1 webhook deleted",
    )
    for part in parts:
        assert part in done, done

    assert {kind: names(stack, kind) for kind in SECTIONS} == {kind: [] for kind in SECTIONS}
    assert run(stack, "storage", "ls", "--project", PROJECT).strip() == ""
    jobs = stack.call("GET", f"/podyard/v1/{WIRE}/-/jobs")["jobs"]
    assert {job["state"] for job in jobs} == {"CANCELLED"}, (
        "jobs stay listed, since the bill names them"
    )
    (project,) = [
        one
        for one in stack.call("GET", "/podyard/v1/projects")["projects"]
        if one["projectId"] == PROJECT
    ]
    assert project["quota"] == {"chips": 64}
    budgets = stack.call("GET", f"/podyard/v1/projects/{PROJECT}/budgets")["budgets"]
    assert {budget["name"].rpartition("/")[2] for budget in budgets} == {"project", "team"}, (
        "limits are not work"
    )
    assert stack.call("GET", f"/podyard/v1/projects/{PROJECT}/webhooks")["webhooks"] == []
    assert "was empty" in run(stack, "project", "reset", PROJECT, "--yes"), (
        "a second reset finds nothing"
    )


def fill(stack: Stack, folder: Path) -> None:
    """Jobs on a node and on one of their own, a queued resource with a node and one that waits, a
    node under a reservation, a disk, and buckets, one with objects in folders."""
    until(lambda: stack.call("GET", "/podyard/v1/agents")["agents"] or None, 30, "an agent")
    reservation = {"generation": "v2", "size": 8, "capacityUnits": "CORES"}
    stack.call("POST", f"/podyard/v1/{WIRE}/{ZONE}/reservations?reservationId=r", reservation)
    stack.call(
        "POST",
        f"/v2/{WIRE}/{ZONE}/nodes?nodeId=held",
        NODE | {"schedulingConfig": {"reserved": True}},
    )
    stack.call("POST", f"/v2/{WIRE}/{ZONE}/nodes?nodeId=plain", NODE)
    waiting = {"queueingPolicy": {"validAfterTime": "2099-01-01T00:00:00Z"}}
    for name, policy in (("active", {}), ("waiting", waiting)):
        body = {
            "tpu": {
                "nodeSpec": [{"parent": f"{WIRE}/{ZONE}", "nodeId": f"q-{name}", "node": NODE}]
            },
            **policy,
        }
        stack.call("POST", f"/v2alpha1/{WIRE}/{ZONE}/queuedResources?queuedResourceId={name}", body)
    until(lambda: len(ready(stack)) == 3 or None, 30, "nodes")
    job = {"recipe": "digits-cnn", "steps": 100_000}
    jobs = f"/podyard/v1/{WIRE}/{ZONE}/jobs?jobId="
    stack.call("POST", f"{jobs}on-node", job | {"node": "plain"})
    own = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    stack.call("POST", f"{jobs}own", job | own)
    stack.call("POST", f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/disks", {"name": "data"})
    hook = {"url": "http://127.0.0.1:9/hook", "events": ["job.cancelled"]}
    stack.call("PUT", f"/podyard/v1/projects/{PROJECT}/webhooks/chat", hook)
    stack.call(
        "PUT",
        f"/podyard/v1/projects/{PROJECT}/budgets/team",
        {"amount": "20", "scope": "label:team=a"},
    )
    file = folder / "x"
    file.write_text("x")
    run(stack, "storage", "mb", f"gs://{PROJECT}-a", f"gs://{PROJECT}-b", "--project", PROJECT)
    for name in ("one", "folder/two and three?#%", "folder/"):
        run(stack, "storage", "cp", str(file), f"gs://{PROJECT}-a/{name}", "--project", PROJECT)


def ready(stack: Stack) -> list[Any]:
    nodes = stack.call("GET", SECTIONS["nodes"]).get("nodes", [])
    return [node for node in nodes if node["state"] == "READY"]


def names(stack: Stack, kind: str) -> list[str]:
    return [one["name"] for one in stack.call("GET", SECTIONS[kind]).get(kind, [])]


def run(stack: Stack, group: str, command: str, *arguments: str) -> str:
    """Return what the command writes."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
    }
    line = [*PODYARD, group, command, "--data", str(stack.data), *arguments]
    done = subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
