"""Instances as machines: start-up scripts, serial port, guest attributes, ssh, a shutdown script
when one is preempted, and JAX over the slice of a managed group."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.stack import Stack, open_stack, until
from tests.waiting import patient

ZONE = "us-central1-b"
COMPUTE = "/compute/v1/projects/demo"
HERE = f"{COMPUTE}/zones/{ZONE}"
API = "https://www.googleapis.com/compute/v1/projects/demo"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]
STARTUP = """#!/bin/bash
ask() { curl -sf -H Metadata-Flavor:Google "http://$GCE_METADATA_HOST/computeMetadata/v1/$1"; }
echo "host $(ask instance/hostname)"
echo "type $(ask instance/machine-type)"
echo "tpu [$(ask instance/attributes/accelerator-type)] [$TPU_WORKER_ID]"
echo "token $(ask instance/service-accounts/default/token | cut -c1-15)"
curl -sf -X PUT --data ready -H Metadata-Flavor:Google \
  "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/guest-attributes/boot/state"
echo done
"""
SHUTDOWN = """#!/bin/bash
echo "bye, preempted $(curl -sf -H Metadata-Flavor:Google \
  "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/preempted")" > FILE
"""
JAX = """#!/bin/bash
curl -sf -H Metadata-Flavor:Google \
  "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes/worker-network-endpoints"
echo
python3 - <<'PROGRAM'
import jax
jax.distributed.initialize()
import jax.numpy as jnp
ones = jnp.full(jax.local_device_count(), jax.process_index() + 1.0)
total = jax.pmap(lambda x: jax.lax.psum(x, "d"), axis_name="d")(ones).addressable_shards[0].data[0]
print(f"<{jax.process_count()} {jax.local_device_count()} {jax.device_count()} {float(total)}>")
PROGRAM
echo "exit $?"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("instances"), {"PODYARD_BOXES": boxes}) as found:
        yield found


def _metadata(**items: str) -> dict[str, Any]:
    return {"items": [{"key": key.replace("_", "-"), "value": text} for key, text in items.items()]}


def _create(stack: Stack, name: str, machine: str, **fields: Any) -> None:
    body = {
        "name": name,
        "machineType": f"zones/{ZONE}/machineTypes/{machine}",
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "disks": [{"boot": True, "autoDelete": True}],
        **fields,
    }
    _wait(stack, stack.call("POST", f"{HERE}/instances", body))


def _wait(stack: Stack, operation: dict[str, Any]) -> None:
    path = operation["selfLink"].partition("/projects/")[2]
    done = stack.call("POST", f"/compute/v1/projects/{path}/wait")
    assert (done["status"], done.get("error")) == ("DONE", None)


def _serial(stack: Stack, name: str, last: str) -> str:
    def ask() -> str | None:
        shown = stack.call("GET", f"{HERE}/instances/{name}/serialPort")
        text: str = shown["contents"]
        return text if last in text else None

    text: str = until(ask, 90, f"{last!r} on the console of {name}")
    return text


def _delete(stack: Stack, name: str) -> None:
    _wait(stack, stack.call("DELETE", f"{HERE}/instances/{name}"))


def test_a_machine_without_chips_runs_its_script(stack: Stack) -> None:
    script = _metadata(startup_script=STARTUP, enable_guest_attributes="true")
    _create(stack, "vm", "e2-standard-2", metadata=script)
    text = _serial(stack, "vm", "done")
    lines = [line.partition(": ")[2] for line in text.splitlines()]
    assert lines[0] == f"host vm.{ZONE}.c.demo.internal"
    assert lines[1].endswith("/machineTypes/e2-standard-2")
    assert lines[2] == "tpu [] []"
    assert lines[3] == 'token {"access_token"'

    def attributes() -> list[dict[str, str]] | None:
        path = f"{HERE}/instances/vm/getGuestAttributes?queryPath=boot/"
        response = stack.http.request("GET", path)
        return response.json()["queryValue"]["items"] if response.status_code == 200 else None

    assert until(attributes, 30, "guest attributes") == [
        {"namespace": "boot", "key": "state", "value": "ready"}
    ]
    _delete(stack, "vm")


def test_ssh_reaches_an_instance_with_a_key_of_its_metadata(stack: Stack, tmp_path: Path) -> None:
    require(shutil.which("ssh"), "the ssh client")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    _create(stack, "vm", "n2-standard-2", metadata=_metadata(ssh_keys=f"ann:{public}"))
    shown = stack.call("GET", f"{HERE}/instances/vm")
    address = shown["networkInterfaces"][0]["accessConfigs"][0]["natIP"]
    options = ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={tmp_path / 'known'}"]

    def log_in() -> str | None:
        for port in ("22", "8722"):
            argv = ["ssh", "-i", str(key), "-p", port, "-o", "BatchMode=yes", *options]
            done = subprocess.run(
                [*argv, f"ann@{address}", "echo in $PODYARD_NODE"],
                capture_output=True, text=True, timeout=patient(60), stdin=subprocess.DEVNULL,
            )  # fmt: skip
            if done.returncode == 0:
                return done.stdout.strip()
        return None

    assert until(log_in, 60, "a login") == "in vm"
    _delete(stack, "vm")


def test_a_preempted_instance_runs_its_shutdown_script(stack: Stack, tmp_path: Path) -> None:
    said = stack.data / "said"
    script = SHUTDOWN.replace("FILE", "$HOME/said")
    _create(
        stack,
        "spot",
        "ct6e-standard-1t",
        metadata=_metadata(startup_script="#!/bin/bash\necho done\n", shutdown_script=script),
        scheduling={"provisioningModel": "SPOT", "instanceTerminationAction": "STOP"},
    )
    _serial(stack, "spot", "done")
    stack.call("POST", f"{HERE}/instances/spot/simulateMaintenanceEvent")

    def stopped() -> bool | None:
        return stack.call("GET", f"{HERE}/instances/spot")["status"] == "TERMINATED" or None

    until(stopped, 60, "a stop")
    texts = [path.read_text() for path in stack.data.rglob("said") if path.is_file()]
    assert texts == ["bye, preempted TRUE\n"], said
    _delete(stack, "spot")


def test_jax_adds_over_the_slice_of_a_group(stack: Stack) -> None:
    properties = {
        "machineType": "ct6e-standard-4t",
        "metadata": _metadata(startup_script=JAX),
        "disks": [{"boot": True, "autoDelete": True}],
    }
    stack.call(
        "POST", f"{COMPUTE}/global/instanceTemplates", {"name": "t", "properties": properties}
    )
    workload = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x4"}
    policies = f"{COMPUTE}/regions/us-central1/resourcePolicies"
    stack.call("POST", policies, {"name": "p", "workloadPolicy": workload})
    group = {
        "name": "g",
        "instanceTemplate": f"{API}/global/instanceTemplates/t",
        "targetSize": 2,
        "targetSizePolicy": {"mode": "BULK"},
        "resourcePolicies": {"workloadPolicy": f"{API}/regions/us-central1/resourcePolicies/p"},
    }
    stack.call("POST", f"{HERE}/instanceGroupManagers", group)

    def stable() -> list[str] | None:
        shown = stack.call("GET", f"{HERE}/instanceGroupManagers/g")
        if not shown["status"]["isStable"]:
            return None
        path = f"{HERE}/instanceGroupManagers/g/listManagedInstances"
        return [one["name"] for one in stack.call("POST", path)["managedInstances"]]

    names = until(stable, 60, "the group")
    for name in names:
        text = _serial(stack, name, "exit")
        assert "<2 4 8 12.0>" in text, text
        first = text.splitlines()[0].partition(": ")[2]
        assert sorted(first.split(",")) == names, json.dumps(text)
    stack.call("DELETE", f"{HERE}/instanceGroupManagers/g")

    def gone() -> bool | None:
        return "items" not in stack.call("GET", f"{HERE}/instances") or None

    until(gone, 60, "the end of the instances")
