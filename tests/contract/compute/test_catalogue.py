"""Zones, regions, and what they offer; public images; quotas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podyard.domain.fleet_file import load_fleet
from tests.yard import ZONE, Yard, open_yard

ROOT = "/compute/v1/projects/demo"
FLEET = """
zones:
  us-central1-f: {v2: {shape: 4x4}}
  us-east5-a: {v6e: {shape: 16x16}, v5e: {shape: 16x16}}
  us-east5-b: {v5p: {shape: 4x4x4}}
"""


def _names(answer: dict[str, Any]) -> list[str]:
    return [item["name"] for item in answer.get("items", ())]


@pytest.fixture
def east(tmp_path: Path) -> Any:
    with open_yard(tmp_path, load_fleet(FLEET)) as opened:
        yield opened


def test_places_are_the_fleet_s(east: Yard) -> None:
    zones = east.ok("GET", f"{ROOT}/zones")
    assert _names(zones) == ["us-central1-f", "us-east5-a", "us-east5-b"]
    assert [zone["region"].rpartition("/")[2] for zone in zones["items"]] == [
        "us-central1", "us-east5", "us-east5",
    ]  # fmt: skip
    assert east.ok("GET", f"{ROOT}/zones/us-east5-b") == zones["items"][2]
    regions = east.ok("GET", f"{ROOT}/regions")["items"]
    assert [(region["name"], len(region["zones"])) for region in regions] == [
        ("us-central1", 1),
        ("us-east5", 2),
    ]
    assert east.ok("GET", f"{ROOT}/regions/us-east5") == regions[1]
    for path in ("zones/mars-a", "regions/mars", "zones/mars-a/machineTypes"):
        text = east.refused(404, "NOT_FOUND", "GET", f"{ROOT}/{path}")
        where = "/".join(path.split("/")[:2])
        assert text == f"The resource 'projects/demo/{where}' was not found"


def test_machine_types_follow_the_chips_of_a_zone(east: Yard) -> None:
    with_chips = {
        zone: {
            item["name"]: item["accelerators"]
            for item in east.ok("GET", f"{ROOT}/zones/{zone}/machineTypes")["items"]
            if "accelerators" in item
        }
        for zone in ("us-central1-f", "us-east5-a", "us-east5-b")
    }
    assert with_chips["us-central1-f"] == {}
    assert list(with_chips["us-east5-b"]) == ["ct5p-hightpu-4t"]
    assert with_chips["us-east5-a"]["ct6e-standard-4t"] == [
        {"guestAcceleratorType": "ct6e", "guestAcceleratorCount": 4}
    ]
    plain = east.ok("GET", f"{ROOT}/zones/us-central1-f/machineTypes/n2-standard-4")
    assert (plain["guestCpus"], plain["memoryMb"], plain["zone"]) == (4, 16384, "us-central1-f")
    narrowed = east.ok("GET", f"{ROOT}/zones/us-east5-b/machineTypes?filter=name%3Dct5p-hightpu-4t")
    assert _names(narrowed) == ["ct5p-hightpu-4t"]
    missing = f"{ROOT}/zones/us-central1-f/machineTypes/ct6e-standard-4t"
    east.refused(404, "NOT_FOUND", "GET", missing)


def test_a_long_list_comes_in_pages_of_all_zones(east: Yard) -> None:
    token, seen, pages = "", list[tuple[str, str]](), 0
    while pages == 0 or token:
        path = f"{ROOT}/aggregated/machineTypes?maxResults=200&pageToken={token}"
        page = east.ok("GET", path)
        for scope, inside in page["items"].items():
            seen += [(scope, item["name"]) for item in inside["machineTypes"]]
        token, pages = page.get("nextPageToken", ""), pages + 1
    assert pages > 2
    assert seen == sorted(seen)
    whole = [
        (f"zones/{zone}", name)
        for zone in ("us-central1-f", "us-east5-a", "us-east5-b")
        for name in _names(east.ok("GET", f"{ROOT}/zones/{zone}/machineTypes?maxResults=500"))
    ]
    assert sorted(whole) == seen


def test_accelerator_and_disk_types(east: Yard) -> None:
    here = f"{ROOT}/zones/us-east5-a"
    kinds = east.ok("GET", f"{here}/acceleratorTypes")["items"]
    shown = {kind["name"]: kind["maximumCardsPerInstance"] for kind in kinds}
    assert shown["ct6e"] == 8
    assert east.ok("GET", f"{here}/acceleratorTypes/ct6e") in kinds
    assert "items" not in east.ok("GET", f"{ROOT}/zones/us-central1-f/acceleratorTypes")
    everywhere = east.ok("GET", f"{ROOT}/aggregated/acceleratorTypes")["items"]
    assert sorted(everywhere) == ["zones/us-east5-a", "zones/us-east5-b"]
    disks = _names(east.ok("GET", f"{here}/diskTypes"))
    assert disks == ["pd-balanced", "pd-ssd", "pd-standard"]
    assert east.ok("GET", f"{here}/diskTypes/pd-ssd")["defaultDiskSizeGb"] == "100"


@pytest.mark.parametrize(
    ("project", "family"),
    [
        ("ubuntu-os-accelerator-images", "ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"),
        ("debian-cloud", "debian-12"),
        ("ubuntu-os-cloud", "ubuntu-2204-lts"),
        ("cos-cloud", "cos-stable"),
        ("cloud-tpu-images", "v2-alpha-tpuv6e"),
    ],
)
def test_images_of_google_s_projects_are_everybody_s(yard: Yard, project: str, family: str) -> None:
    root = f"/compute/v1/projects/{project}/global/images"
    image = yard.ok("GET", f"{root}/family/{family}")
    assert (image["family"], image["status"]) == (family, "READY")
    assert yard.ok("GET", f"{root}/{image['name']}") == image
    assert image["name"] in _names(yard.ok("GET", root))
    yard.refused(404, "NOT_FOUND", "GET", f"{root}/family/nothing")
    # Nothing else of such a project is there.
    yard.refused(404, "NOT_FOUND", "GET", f"/compute/v1/projects/{project}/zones/{ZONE}/disks")


def test_a_project_says_its_quotas(yard: Yard) -> None:
    assert "items" not in yard.ok("GET", f"{ROOT}/global/images")
    yard.ok("POST", f"{ROOT}/zones/{ZONE}/disks", {"name": "d"})
    project = yard.ok("GET", ROOT)
    uses = {quota["metric"]: quota["usage"] for quota in project["quotas"]}
    assert uses == {
        "NETWORKS": 1.0,
        "SUBNETWORKS": 0.0,
        "FIREWALLS": 4.0,
        "STATIC_ADDRESSES": 0.0,
        "DISKS": 1.0,
    }
    assert all(quota["usage"] <= quota["limit"] for quota in project["quotas"])
