"""Routes: they follow from networks, and nobody makes any."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.domain.compute.network import subnetwork_spec
from podyard.domain.compute.resource import ComputeResource

ANYWHERE = "0.0.0.0/0"
INTERNET_PRIORITY = 1000  # of the way out; those inside of a network have 0


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkRoute:
    """`network`: the name of its network. `leads_out`: it is the way to the internet."""

    project: str
    network: str
    destination: str
    created: PlatformTime
    leads_out: bool = False

    @property
    def number(self) -> int:
        text = f"{self.project}/{self.network}/{self.destination}"
        return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16) + 1

    @property
    def name(self) -> str:
        return f"default-route-{self.number:015x}"

    @property
    def path(self) -> str:
        return f"projects/{self.project}/global/routes/{self.name}"


def routes_of(
    network: ComputeResource, subnetworks: Sequence[ComputeResource]
) -> list[NetworkRoute]:
    """The way out, and one to each subnetwork."""
    project, name, created = network.project, network.name, network.created
    inside = [
        NetworkRoute(project, name, subnetwork_spec(one).ip_range, created) for one in subnetworks
    ]
    return [NetworkRoute(project, name, ANYWHERE, created, leads_out=True), *inside]
