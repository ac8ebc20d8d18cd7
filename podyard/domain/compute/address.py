"""Addresses that are reserved, of a region or of the whole project."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable

from podyard.domain.compute.network import SubnetworkSpec
from podyard.domain.compute.place import WHOLE_PROJECT, ComputePlace
from podyard.domain.compute.refusal import ComputeRefusal, Reason, invalid_value
from podyard.domain.compute.resource import ComputeResource

TYPE_FIELD, EXTERNAL, INTERNAL = "addressType", "EXTERNAL", "INTERNAL"
ADDRESSES_MAX = 100  # of a project: those in use are read together
# Reserved for documentation (RFC 5737): they lead nowhere, and no host has one of them.
EXTERNAL_RANGES = tuple(
    ipaddress.IPv4Network(text) for text in ("203.0.113.0/24", "198.51.100.0/24", "192.0.2.0/24")
)
_TAKEN_FIRST, _TAKEN_LAST = 2, 2  # of a subnetwork: network and gateway, Google's and broadcast


@dataclasses.dataclass(frozen=True, slots=True)
class AddressSpec:
    """`subnetwork`: the name of that which an internal address is in."""

    address: str
    address_type: str = EXTERNAL
    description: str = ""
    network_tier: str = "PREMIUM"
    purpose: str = ""
    subnetwork: str = ""
    labels: dict[str, str] = dataclasses.field(default_factory=dict)


def permission(place: ComputePlace, verb: str) -> str:
    """Return what a change of an address of a place asks for."""
    collection = "globalAddresses" if place == WHOLE_PROJECT else "addresses"
    return f"compute.{collection}.{verb}"


def address_spec(resource: ComputeResource) -> AddressSpec:
    return AddressSpec(**resource.spec)


def free_external(taken: Iterable[str]) -> str:
    """The first external address that nobody has; raises `quotaExceeded` where all are taken."""
    others = set(taken)
    for network in EXTERNAL_RANGES:
        for host in network.hosts():
            if str(host) not in others:
                return str(host)
    ranges = ", ".join(map(str, EXTERNAL_RANGES))
    raise ComputeRefusal(
        Reason.QUOTA_EXCEEDED, f"All addresses of {ranges} are reserved: release one"
    )


def internal_in(subnetwork: SubnetworkSpec, wanted: str, taken: Iterable[str]) -> str:
    """The address `wanted` of a subnetwork, or without one the last that nobody has: hosts get
    theirs from the front."""
    network = ipaddress.IPv4Network(subnetwork.ip_range)
    others = set(taken)
    if wanted:
        _check_inside(network, wanted)
        if wanted in others:
            text = f"IP '{wanted}' is already being used by another resource."
            raise ComputeRefusal(Reason.IN_USE, text)
        return wanted
    for at in range(network.num_addresses - _TAKEN_LAST - 1, _TAKEN_FIRST - 1, -1):
        if str(network[at]) not in others:
            return str(network[at])
    raise ComputeRefusal(
        Reason.QUOTA_EXCEEDED, f"IP space of '{subnetwork.ip_range}' is exhausted."
    )


def _check_inside(network: ipaddress.IPv4Network, text: str) -> None:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise invalid_value("address", text, "Must be an IPv4 address") from None
    at = int(address) - int(network.network_address)
    if not _TAKEN_FIRST <= at < network.num_addresses - _TAKEN_LAST:
        raise invalid_value("address", text, f"Must be an address of {network} that hosts may have")
