"""Resources of Compute Engine that have no life: as their users have described them."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.compute.place import ComputePlace, place_named
from podyard.domain.machine import ResourceKind

COLLECTIONS: Mapping[ResourceKind, str] = {
    ResourceKind.NETWORK: "networks",
    ResourceKind.SUBNETWORK: "subnetworks",
    ResourceKind.FIREWALL: "firewalls",
    ResourceKind.ADDRESS: "addresses",
    ResourceKind.INSTANCE_TEMPLATE: "instanceTemplates",
    ResourceKind.RESOURCE_POLICY: "resourcePolicies",
    ResourceKind.RESIZE_REQUEST: "resizeRequests",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ComputeResource:
    """`place`: `global`, a region or a zone. `spec`: the fields of its message that users set and
    the platform has added, in the canonical form of the API."""

    resource_key: str
    project: str
    kind: ResourceKind
    place: str
    name: str
    number: int
    spec: Mapping[str, Any]
    created: PlatformTime
    created_by: str

    @property
    def collection(self) -> str:
        return COLLECTIONS[self.kind]

    @property
    def where(self) -> ComputePlace:
        return place_named(self.place)

    @property
    def path(self) -> str:
        return f"projects/{self.project}/{self.where.path}/{self.collection}/{self.name}"

    @property
    def fingerprint(self) -> str:
        """Return what a change must name that is not to overwrite another one (base64)."""
        return fingerprint_of(self.spec)


def fingerprint_of(value: object) -> str:
    """The same value has the same."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()
