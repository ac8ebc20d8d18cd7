"""A node whose type and usage have no price: its creation warns, and the month that cannot be
closed names it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.stack import PODYARD
from tests.yard import open_yard

ZONE = "us-central2-b"  # v4 has no preemptible price
SPEC = {
    "acceleratorType": "v4-8",
    "runtimeVersion": "tpu-vm-v4-base",
    "schedulingConfig": {"preemptible": True},
}


def test_creating_a_node_without_a_price_returns_a_warning(tmp_path: Path) -> None:
    with open_yard(tmp_path) as yard:
        operation = yard.ok("POST", f"{yard.nodes(ZONE)}?nodeId=n1", SPEC)
        assert (
            "no preemptible price of v4-8 in us-central2" in operation["metadata"]["statusDetail"]
        )
        yard.step()
        again = yard.ok("GET", f"/v2/{operation['name']}")
        assert again["metadata"]["statusDetail"] == operation["metadata"]["statusDetail"]
        priced = yard.ok("POST", f"{yard.nodes(ZONE)}?nodeId=n2", {**SPEC, "schedulingConfig": {}})
        assert "statusDetail" not in priced["metadata"]
        parent = f"projects/demo/locations/{ZONE}"
        spec = {**SPEC, "schedulingConfig": {}}
        body = {"spot": {}, "tpu": {"nodeSpec": [{"nodeId": "q1", "parent": parent, "node": spec}]}}
        queued = yard.ok("POST", f"/v2/{parent}/queuedResources?queuedResourceId=q", body)
        assert "statusDetail" not in queued["metadata"], "v4 has a spot price"


def test_the_command_line_prints_the_warning(tmp_path: Path) -> None:
    with open_yard(tmp_path) as yard:
        env = os.environ | {"PODYARD_URL": yard.url, "PODYARD_TOKEN": yard.token}
        flags = [
            "--accelerator-type",
            "v4-8",
            "--version",
            "tpu-vm-v4-base",
            "--preemptible",
            "--async",
        ]
        done = subprocess.run(
            [*PODYARD, "tpu", "create", "n3", "--zone", ZONE, *flags],
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "warning: no preemptible price of v4-8 in us-central2" in done.stderr


def test_what_is_held_is_named(tmp_path: Path) -> None:
    with open_yard(tmp_path, clock_mode="virtual") as yard:
        yard.ok("POST", f"{yard.nodes(ZONE)}?nodeId=n1", SPEC)
        yard.ok("POST", "/podyard/v1/clock:advance", {"time": "2026-04-05T00:00:00Z"})
        for _ in range(20):
            yard.step()
        refused = yard.http.post("/podyard/v1/projects/demo/invoices/2026-03:close", json={})
        assert refused.status_code == 400, refused.text
        assert f"s of projects/demo/locations/{ZONE}/nodes/n1: no preemptible price" in refused.text
