"""`podyard up` as users start it: with the default fleet, whose nodes take time and whose quotas
end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack import Stack, open_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

NODES = "/v2/projects/demo/locations/us-central1-a/nodes"
# another zone of the same region, so of the same quota
NEIGHBOUR = "/v2/projects/demo/locations/us-central1-f/nodes"
V2_8_PER_POD = 64
SPEC = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}


def test_a_node_of_the_default_fleet_is_created_in_seconds_of_platform_time(tmp_path: Path) -> None:
    with open_stack(tmp_path / "data", fleet=None) as stack:
        operation = stack.call("POST", f"{NODES}?nodeId=n1", SPEC)
        assert stack.call("GET", f"{NODES}/n1")["state"] == "CREATING"
        assert not stack.call("GET", f"/v2/{operation['name']}")["done"]
        done = until(lambda: _finished(stack, operation["name"]), 60, "the creation")
        assert done["response"]["state"] == "READY"
        _fill_a_pod(stack, nodes=V2_8_PER_POD - 1)
        refused = stack.http.post(f"{NEIGHBOUR}?nodeId=last", json=SPEC)
        assert refused.status_code == 429
        assert "Limit: 512,512 in region us-central1" in refused.text
        assert stack.podyard("fsck").returncode == 0
    assert stack.podyard("fsck").returncode == 0


def test_fsck_reads_the_fleet_that_up_emulated(tmp_path: Path) -> None:
    with open_stack(tmp_path / "data", fleet="instant") as stack:
        stack.call("POST", f"{NEIGHBOUR}?nodeId=last", SPEC)
        _fill_a_pod(stack, nodes=V2_8_PER_POD)
    checked = stack.podyard("fsck")
    assert checked.returncode == 0, checked.stdout


def _fill_a_pod(stack: Stack, nodes: int) -> None:
    for index in range(nodes):
        stack.call("POST", f"{NODES}?nodeId=m{index}", SPEC)


def _finished(stack: Stack, name: str) -> dict[str, object] | None:
    operation = stack.call("GET", f"/v2/{name}")
    return operation if operation["done"] else None
