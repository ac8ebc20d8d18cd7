"""Compute Engine's disks: made, listed, resized, labelled and deleted, and attached to nodes."""

from __future__ import annotations

from typing import Any

from tests.yard import ZONE, Yard

HERE = f"/compute/v1/projects/demo/zones/{ZONE}"
DISKS = f"{HERE}/disks"


def _make(yard: Yard, name: str = "d", **fields: Any) -> dict[str, Any]:
    kind = f"https://www.googleapis.com/compute/v1/projects/demo/zones/{ZONE}/diskTypes/pd-ssd"
    done = yard.ok("POST", DISKS, {"name": name, "sizeGb": "100", "type": kind, **fields})
    assert done["status"] == "DONE"
    assert done["targetLink"].endswith(f"/zones/{ZONE}/disks/{name}")
    return done


def test_a_disk_lives_its_life(yard: Yard) -> None:
    done = _make(yard, labels={"team": "a"}, description="weights")
    for verb, path in (("GET", ""), ("POST", "/wait")):
        assert yard.ok(verb, f"{HERE}/operations/{done['name']}{path}") == done
    disk = yard.ok("GET", f"{DISKS}/d")
    said = {
        name: disk[name]
        for name in ("kind", "name", "sizeGb", "status", "labels", "description", "users")
    }
    assert said == {
        "kind": "compute#disk",
        "name": "d",
        "sizeGb": "100",
        "status": "READY",
        "labels": {"team": "a"},
        "description": "weights",
        "users": [],
    }
    assert disk["type"].endswith(f"/zones/{ZONE}/diskTypes/pd-ssd")
    assert yard.ok("GET", DISKS)["items"] == [disk]
    everywhere = yard.ok("GET", "/compute/v1/projects/demo/aggregated/disks")
    assert everywhere["items"] == {f"zones/{ZONE}": {"disks": [disk]}}
    yard.ok("POST", f"{DISKS}/d/resize", {"sizeGb": "200"})
    labels = {"labels": {"team": "b"}, "labelFingerprint": disk["labelFingerprint"]}
    yard.ok("POST", f"{DISKS}/d/setLabels", labels)
    yard.refused(412, "ABORTED", "POST", f"{DISKS}/d/setLabels", labels)
    changed = yard.ok("GET", f"{DISKS}/d")
    assert (changed["sizeGb"], changed["labels"], changed["id"]) == (
        "200",
        {"team": "b"},
        disk["id"],
    )
    yard.ok("DELETE", f"{DISKS}/d")
    yard.refused(404, "NOT_FOUND", "GET", f"{DISKS}/d")
    assert "items" not in yard.ok("GET", DISKS)


def test_a_disk_has_the_size_of_its_type(yard: Yard) -> None:
    yard.ok("POST", DISKS, {"name": "d"})
    disk = yard.ok("GET", f"{DISKS}/d")
    assert (disk["sizeGb"], disk["type"].rpartition("/")[2]) == ("500", "pd-standard")


def test_what_a_disk_cannot_be_is_refused(yard: Yard) -> None:
    _make(yard)
    text = yard.refused(409, "ALREADY_EXISTS", "POST", DISKS, {"name": "d"})
    assert text == f"The resource 'projects/demo/zones/{ZONE}/disks/d' already exists"
    for body, told in (
        ({"name": "Big"}, "name 'Big' is not a valid id"),
        ({"name": "e", "sizeGb": "9"}, "sizeGb is 9: it must be from 10 to 65536"),
        ({"name": "e", "sizeGb": "ten"}, "Invalid value at 'size_gb' (TYPE_INT64)"),
        (
            {"name": "e", "type": "local-ssd"},
            "disk type 'local-ssd' does not exist: use pd-standard, pd-bal",
        ),
        ({"name": "e", "sourceSnapshot": "s"}, "sourceSnapshot: Podyard makes disks blank or of"),
        ({"name": "e", "labels": {"A": "b"}}, "label 'A'='b'"),
    ):
        assert told in yard.refused(400, "INVALID_ARGUMENT", "POST", DISKS, body)
    yard.refused(404, "NOT_FOUND", "POST", DISKS, {"name": "e", "sourceImage": "debian"})
    nowhere = "/compute/v1/projects/demo/zones/x-y1-z/disks"
    text = yard.refused(404, "NOT_FOUND", "POST", nowhere, {"name": "d"})
    assert text == "The resource 'projects/demo/zones/x-y1-z' was not found"
    shrunk = yard.refused(400, "INVALID_ARGUMENT", "POST", f"{DISKS}/d/resize", {"sizeGb": 50})
    assert shrunk == (
        f"sizeGb is 50: a disk can only grow, and 'projects/demo/zones/{ZONE}/disks/d' has 100 GB"
    )


def test_a_disk_of_a_node_cannot_be_deleted(yard: Yard) -> None:
    _make(yard)
    source = f"projects/demo/zones/{ZONE}/disks/d"
    yard.create(
        "n",
        dataDisks=[
            {"sourceDisk": source},
            {"sourceDisk": source.replace("disks/d", "disks/unknown")},
        ],
    )
    node = f"projects/demo/locations/{ZONE}/nodes/n"
    assert yard.ok("GET", f"{DISKS}/d")["users"] == [node]
    answer = yard.call("DELETE", f"{DISKS}/d")
    error = answer.json()["error"]
    assert (answer.status_code, error["errors"][0]["reason"]) == (
        400,
        "resourceInUseByAnotherResource",
    )
    assert error["message"].startswith(
        f"The disk resource '{source}' is already being used by '{node}'"
    )
    # what nobody made is in no list
    assert [item["name"] for item in yard.ok("GET", DISKS)["items"]] == ["d"]
    yard.ok("DELETE", f"/v2/{node}")
    yard.step(60)
    yard.ok("DELETE", f"{DISKS}/d")
