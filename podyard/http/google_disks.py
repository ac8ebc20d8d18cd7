"""Disks as Compute Engine writes them, and the operations that change them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from podyard.control.compute.persistent_disks import ShownDisk
from podyard.http.google import DISK_OPERATION, SELF, region_of


def disk(shown: ShownDisk) -> dict[str, Any]:
    found = shown.disk
    zone = f"{SELF}projects/{found.project}/zones/{found.zone}"
    return {
        "kind": "compute#disk",
        "id": str(found.number),
        "creationTimestamp": found.created.rfc3339(),
        "name": found.name,
        "description": found.description,
        "sizeGb": str(found.size_gb),
        "zone": zone,
        "status": "READY",
        "selfLink": f"{zone}/disks/{found.name}",
        "type": f"{zone}/diskTypes/{found.type}",
        "labels": dict(found.labels),
        "labelFingerprint": found.label_fingerprint,
        "users": list(shown.users),
        "physicalBlockSizeBytes": "4096",
    }


def zone_list(project: str, zone: str, shown: Sequence[ShownDisk]) -> dict[str, Any]:
    name = f"projects/{project}/zones/{zone}/disks"
    items = {"items": [disk(one) for one in shown]} if shown else {}
    return {"kind": "compute#diskList", "id": name, **items, "selfLink": f"{SELF}{name}"}


def aggregated_list(project: str, shown: Sequence[ShownDisk]) -> dict[str, Any]:
    name = f"projects/{project}/aggregated/disks"
    zones = sorted({one.disk.zone for one in shown})
    items = {
        f"zones/{zone}": {"disks": [disk(one) for one in shown if one.disk.zone == zone]}
        for zone in zones
    }
    return {
        "kind": "compute#diskAggregatedList",
        "id": name,
        "items": items,
        "selfLink": f"{SELF}{name}",
    }


def operation(project: str, zone: str, verb: str, name: str, user: str) -> dict[str, Any]:
    """An operation that has changed a disk; it is DONE."""
    here = f"{SELF}projects/{project}/zones/{zone}"
    called = f"{DISK_OPERATION}{verb}-{name}"
    return {
        "kind": "compute#operation",
        "id": str(int.from_bytes(hashlib.sha256(called.encode()).digest()[:7])),
        "name": called,
        "operationType": verb,
        "targetLink": f"{here}/disks/{name}",
        "status": "DONE",
        "progress": 100,
        "user": user,
        "zone": here,
        "region": f"{SELF}projects/{project}/regions/{region_of(zone)}",
        "selfLink": f"{here}/operations/{called}",
    }
