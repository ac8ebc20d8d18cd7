"""gcloud, unmodified, with the exports of `podyard env`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.stack import Stack

ZONE = "us-central1-f"
pytestmark = [
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


def _gcloud(environment: dict[str, str], *arguments: str) -> Any:
    command = ["gcloud", "compute", "tpus", "tpu-vm", *arguments, "--zone", ZONE, "--format", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


def test_a_node_lives_its_life(environment: dict[str, str]) -> None:
    version = ("--accelerator-type", "v2-8", "--version", "tpu-vm-base", "--preemptible", "--labels", "a=b")
    _gcloud(environment, "create", "gc", *version)
    (listed,) = _gcloud(environment, "list")
    assert listed["name"].endswith(f"/locations/{ZONE}/nodes/gc")
    found = _gcloud(environment, "describe", "gc")
    assert (found["state"], found["labels"], found["schedulingConfig"]) == ("READY", {"a": "b"}, {"preemptible": True})
    _gcloud(environment, "update", "gc", "--description", "hello", "--update-labels", "c=d")
    found = _gcloud(environment, "describe", "gc")
    assert (found["description"], found["labels"]) == ("hello", {"a": "b", "c": "d"})
    _gcloud(environment, "stop", "gc")
    assert _gcloud(environment, "describe", "gc")["state"] == "STOPPED"
    _gcloud(environment, "start", "gc")
    _gcloud(environment, "delete", "gc", "--quiet")
    assert _gcloud(environment, "list") == []


def test_an_error_is_shown_in_our_words(environment: dict[str, str]) -> None:
    arguments = ["create", "bad", "--zone", ZONE, "--accelerator-type", "v4-8", "--version", "tpu-vm-base"]
    done = subprocess.run(
        ["gcloud", "compute", "tpus", "tpu-vm", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert 'CloudTpu received an invalid AcceleratorType, "v4-8" for zone "us-central1-f"' in done.stderr
