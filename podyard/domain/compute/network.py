"""Networks of Compute Engine, and their subnetworks: what they may be, and what follows from them
(cloud.google.com/vpc/docs/vpc, /subnets)."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.domain.compute.place import GLOBAL, path_of
from podyard.domain.compute.refusal import ComputeRefusal, Reason, invalid_value
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.machine import ResourceKind

DEFAULT_NETWORK = "default"
MTU_DEFAULT, MTU_MIN, MTU_MAX = 1460, 1300, 8896
# Lists and checks of a project read all of them; a new project of Google's may have fewer.
NETWORKS_MAX, SUBNETWORKS_MAX = 50, 500
PREFIX_LENGTH_MIN, PREFIX_LENGTH_MAX = 8, 29  # of a subnetwork's range
AUTO_RANGE = ipaddress.IPv4Network("10.128.0.0/9")  # of the subnetworks of auto mode
_AUTO_PREFIX = 20
# The second byte of a region's range in auto mode networks
# (cloud.google.com/vpc/docs/subnets#ip-ranges).
_AUTO_BYTES: Mapping[str, int] = {
    "us-central1": 128, "europe-west1": 132, "us-west1": 138, "asia-east1": 140, "us-east1": 142,
    "asia-northeast1": 146, "asia-southeast1": 148, "us-east4": 150, "australia-southeast1": 152,
    "europe-west2": 154, "europe-west3": 156, "southamerica-east1": 158, "asia-south1": 160,
    "northamerica-northeast1": 162, "europe-west4": 164, "europe-north1": 166, "us-west2": 168,
    "asia-east2": 170, "europe-west6": 172, "asia-northeast2": 174, "asia-northeast3": 178,
    "us-west3": 180, "us-west4": 182, "asia-southeast2": 184, "europe-central2": 186,
    "northamerica-northeast2": 188, "asia-south2": 190, "australia-southeast2": 192,
    "southamerica-west1": 194, "europe-west8": 198, "europe-west9": 200, "us-east5": 202,
    "europe-southwest1": 204, "us-south1": 206, "me-west1": 208, "europe-west12": 210,
    "me-central1": 212, "europe-west10": 214, "me-central2": 216, "africa-south1": 218,
}  # fmt: skip
_FIRST_FREE_BYTE = 226  # of regions that the table has not: in the order of their names
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
NAME_RULE = f"Must be a match of regex '(?:{_NAME.pattern})'"


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkSpec:
    """`auto_subnetworks`: it has a subnetwork in each region. `extras`: fields that nothing follows
    from, as the API has them."""

    auto_subnetworks: bool
    description: str = ""
    mtu: int = MTU_DEFAULT
    routing_mode: str = "REGIONAL"
    extras: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class SubnetworkSpec:
    """`network`: its name. `ip_range`: as `10.0.0.0/24`."""

    network: str
    ip_range: str
    description: str = ""
    private_google_access: bool = False
    purpose: str = "PRIVATE"
    stack_type: str = "IPV4_ONLY"
    extras: Mapping[str, object] = dataclasses.field(default_factory=dict)


def check_name(name: str) -> str:
    """Return `name`; raises `invalid` for what cannot be one."""
    if _NAME.fullmatch(name) is None:
        raise invalid_value("name", name, NAME_RULE)
    return name


def name_in(url: str, field: str, collection: str) -> str:
    """The name at the end of a URL of `collection`, of its path, or alone."""
    path = path_of(url)
    if "/" in path and path.rpartition("/")[0].rpartition("/")[2] != collection:
        raise invalid_value(field, url, f"The URL is malformed: it names none of {collection}")
    return path.rpartition("/")[2]


def check_mtu(mtu: int) -> int:
    if not MTU_MIN <= mtu <= MTU_MAX:
        raise invalid_value("mtu", mtu, f"Must be from {MTU_MIN} to {MTU_MAX}")
    return mtu


def range_of(text: str, field: str) -> ipaddress.IPv4Network:
    """The range of a subnetwork; raises `invalid` for what cannot be one."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise invalid_value(
            field, text, f"Must be an IPv4 range in CIDR notation: {error}"
        ) from None
    if not PREFIX_LENGTH_MIN <= network.prefixlen <= PREFIX_LENGTH_MAX:
        raise invalid_value(
            field, text, f"Must have from {PREFIX_LENGTH_MIN} to {PREFIX_LENGTH_MAX} leading bits"
        )
    if (
        network.is_multicast
        or network.is_loopback
        or network.is_link_local
        or not int(network.network_address)
    ):
        raise invalid_value(field, text, "Must be a range that hosts may have")
    return network


def check_apart(subnetwork: SubnetworkSpec, others: Iterable[ComputeResource]) -> None:
    """Raise `invalid` where a subnetwork has addresses of another one of its network."""
    network = ipaddress.IPv4Network(subnetwork.ip_range)
    for other in others:
        spec = subnetwork_spec(other)
        if network.overlaps(ipaddress.IPv4Network(spec.ip_range)):
            raise ComputeRefusal(
                Reason.INVALID,
                f"Invalid IPCidrRange: {network} conflicts with existing subnetwork "
                f"'{other.name}' in region '{other.place}'.",
            )


def check_larger(before: str, after: str) -> None:
    """Raise `invalid` unless a range has all addresses of the one before, and more."""
    old, new = ipaddress.IPv4Network(before), ipaddress.IPv4Network(after)
    if old == new or not old.subnet_of(new):
        text = f"Must contain the range {before} and be larger"
        raise invalid_value("ipCidrRange", after, text)


def network_spec(resource: ComputeResource) -> NetworkSpec:
    return NetworkSpec(**resource.spec)


def subnetwork_spec(resource: ComputeResource) -> SubnetworkSpec:
    return SubnetworkSpec(**resource.spec)


def auto_subnetworks(network: ComputeResource, regions: Sequence[str]) -> list[ComputeResource]:
    """The subnetworks of a network of auto mode: one of its name in each region. They are nowhere
    stored: a fleet may get other regions."""
    if not network_spec(network).auto_subnetworks:
        return []
    unknown = sorted(set(regions) - _AUTO_BYTES.keys())
    return [
        derive(
            network.project,
            ResourceKind.SUBNETWORK,
            region,
            network.name,
            dataclasses.asdict(SubnetworkSpec(network.name, _auto_range(region, unknown))),
            network.created,
            network.created_by,
        )
        for region in sorted(set(regions))
    ]


def _auto_range(region: str, unknown: Sequence[str]) -> str:
    second = _AUTO_BYTES.get(region)
    if second is None:
        at = unknown.index(region)  # sixteen ranges lie in each second byte
        return f"10.{_FIRST_FREE_BYTE + at // 16}.{at % 16 * 16}.0/{_AUTO_PREFIX}"
    return f"10.{second}.0.0/{_AUTO_PREFIX}"


def derive(
    project: str,
    kind: ResourceKind,
    place: str,
    name: str,
    spec: Mapping[str, object],
    created: PlatformTime,
    created_by: str,
) -> ComputeResource:
    """A resource whose key and number follow from its name: one that nobody has asked for."""
    digest = hashlib.sha256(f"{project}/{kind}/{place}/{name}".encode()).hexdigest()
    number = int(digest[:15], 16) + 1
    key = f"{kind}-{digest[:24]}"
    return ComputeResource(key, project, kind, place, name, number, spec, created, created_by)


def default_network(project: str, created: PlatformTime, created_by: str) -> ComputeResource:
    """The network that each project has from the start."""
    spec = dataclasses.asdict(
        NetworkSpec(auto_subnetworks=True, description="Default network for the project")
    )
    return derive(project, ResourceKind.NETWORK, GLOBAL, DEFAULT_NETWORK, spec, created, created_by)
