"""gcloud's commands of Compute Engine, unmodified, with the exports of `podyard env`."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.gcloud import Terminal

ZONE = "us-central1-f"
REGION = "us-central1"
IMAGES = "ubuntu-os-accelerator-images"
FAMILY = "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]


def _gcloud(terminal: Terminal, text: str) -> Any:
    """The answer of `gcloud compute TEXT`; the error where it is refused."""
    done = terminal.run(f"gcloud compute {text} --format json --quiet")
    if done.returncode != 0:
        return done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


def _names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


def test_networks_live_their_lives(terminal: Terminal) -> None:
    def run(text: str) -> Any:
        return _gcloud(terminal, text)

    (network,) = run("networks create own --subnet-mode custom --mtu 1500")
    assert (network["name"], network["mtu"]) == ("own", 1500)
    place = f"--region {REGION}"
    run(f"networks subnets create small --network own --range 10.0.0.0/24 {place}")
    (subnetwork,) = run("networks subnets list --network own")
    assert subnetwork["ipCidrRange"] == "10.0.0.0/24"
    (rule,) = run("firewall-rules create web --network own --allow tcp:80,icmp")
    assert len(rule["allowed"]) == 2
    run("firewall-rules update web --source-ranges 10.0.0.0/8")
    assert run("firewall-rules describe web")["sourceRanges"] == ["10.0.0.0/8"]
    assert _names(run("firewall-rules list --filter name=web")) == ["web"]
    run(f"addresses create out {place}")
    assert run(f"addresses describe out {place}")["status"] == "RESERVED"
    assert "already being used by" in run("networks delete own")
    assert "was not found" in run("firewall-rules create x --network none --allow tcp")
    for text in (
        f"addresses delete out {place}",
        "firewall-rules delete web",
        f"networks subnets delete small {place}",
        "networks delete own",
    ):
        assert run(text) is None or "error" not in str(run("networks list")).lower(), text
    assert _names(run("networks list")) == ["default"]


def test_the_catalogue_is_read(terminal: Terminal) -> None:
    def run(text: str) -> Any:
        return _gcloud(terminal, text)

    assert ZONE in _names(run("zones list"))
    assert REGION in _names(run("regions list"))
    machine = run(f"machine-types describe n2-standard-4 --zone {ZONE}")
    assert machine["guestCpus"] == 4
    assert "n1-standard-1" in _names(run(f"machine-types list --zones {ZONE}"))
    assert run(f"images describe-from-family {FAMILY} --project {IMAGES}")["family"] == FAMILY
    assert "pd-ssd" in _names(run(f"disk-types list --zones {ZONE}"))
    assert run("project-info describe")["quotas"]
    (disk,) = run(f"disks create d --zone {ZONE} --size 10")
    assert disk["name"] == "d"
    operations = run(f"operations list --zones {ZONE} --filter operationType=insert")
    assert any(one["targetLink"].endswith("/disks/d") for one in operations)
    one = run(f"operations describe {operations[0]['name']} --zone {ZONE}")
    assert one["status"] == "DONE"
    run(f"disks delete d --zone {ZONE}")
