"""Firewall rules of networks, and Google's four of the default network
(cloud.google.com/firewall/docs/firewalls)."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.compute.network import AUTO_RANGE, DEFAULT_NETWORK, derive
from podyard.domain.compute.place import GLOBAL
from podyard.domain.compute.refusal import ComputeRefusal, Reason, invalid_value
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.machine import ResourceKind

FIREWALLS_MAX = 500  # of a project: they are read together, as of networks
PRIORITY_DEFAULT, PRIORITY_MAX = 1000, 65535
ENTRIES_MAX = 256  # of each list of one rule
ANYWHERE = "0.0.0.0/0"
INGRESS, EGRESS = "INGRESS", "EGRESS"
_PROTOCOLS = frozenset({"tcp", "udp", "icmp", "esp", "ah", "sctp", "ipip", "all"})
_WITH_PORTS = frozenset({"tcp", "udp", "sctp", "6", "17", "132"})
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_PORT_MAX = 65535


@dataclasses.dataclass(frozen=True, slots=True)
class FirewallEntry:
    """A protocol and its ports; without ports, all."""

    protocol: str
    ports: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FirewallSpec:
    """`network`: its name. One of `allowed` and `denied` has entries."""

    network: str
    description: str = ""
    priority: int = PRIORITY_DEFAULT
    direction: str = INGRESS
    disabled: bool = False
    allowed: tuple[FirewallEntry, ...] = ()
    denied: tuple[FirewallEntry, ...] = ()
    source_ranges: tuple[str, ...] = ()
    destination_ranges: tuple[str, ...] = ()
    source_tags: tuple[str, ...] = ()
    target_tags: tuple[str, ...] = ()
    source_accounts: tuple[str, ...] = ()
    target_accounts: tuple[str, ...] = ()
    logs: bool = False


def firewall_spec(resource: ComputeResource) -> FirewallSpec:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in resource.spec.items()
    }
    for name in ("allowed", "denied"):
        fields[name] = tuple(
            FirewallEntry(entry["protocol"], tuple(entry["ports"]))
            for entry in resource.spec.get(name, ())
        )
    return FirewallSpec(**fields)


def complete(spec: FirewallSpec) -> FirewallSpec:
    """The rule with what Google adds; raises `invalid` for one that cannot be."""
    _check(spec)
    if spec.direction == EGRESS:
        ranges = spec.destination_ranges or (ANYWHERE,)
        return dataclasses.replace(spec, destination_ranges=ranges)
    if spec.source_ranges or spec.source_tags or spec.source_accounts:
        return spec
    return dataclasses.replace(spec, source_ranges=(ANYWHERE,))


def _check(spec: FirewallSpec) -> None:
    if bool(spec.allowed) == bool(spec.denied):
        text = "Firewall must have either allowed or denied entries, and not both"
        raise ComputeRefusal(Reason.INVALID, text)
    if not 0 <= spec.priority <= PRIORITY_MAX:
        raise invalid_value("priority", spec.priority, f"Must be from 0 to {PRIORITY_MAX}")
    if spec.direction == EGRESS and (spec.source_ranges or spec.source_tags):
        text = "Source ranges and tags are of INGRESS rules only"
        raise invalid_value("direction", spec.direction, text)
    if spec.direction == INGRESS and spec.destination_ranges and spec.source_tags:
        text = "Destination ranges and source tags cannot be combined"
        raise invalid_value("destinationRanges", spec.destination_ranges[0], text)
    if (spec.source_tags or spec.target_tags) and (spec.source_accounts or spec.target_accounts):
        text = "Tags and service accounts cannot be combined in one rule"
        raise ComputeRefusal(Reason.INVALID, text)
    for field, values in (
        ("sourceRanges", spec.source_ranges),
        ("destinationRanges", spec.destination_ranges),
    ):
        _check_ranges(field, values)
    for field, entries in (("allowed", spec.allowed), ("denied", spec.denied)):
        _check_entries(field, entries)


def _check_ranges(field: str, ranges: Sequence[str]) -> None:
    if len(ranges) > ENTRIES_MAX:
        raise invalid_value(field, len(ranges), f"At most {ENTRIES_MAX} are allowed")
    for at, text in enumerate(ranges):
        try:
            ipaddress.ip_network(text)
        except ValueError:
            where = f"{field}[{at}]"
            raise invalid_value(where, text, "Must be a CIDR address range.") from None


def _check_entries(field: str, entries: Sequence[FirewallEntry]) -> None:
    if len(entries) > ENTRIES_MAX:
        raise invalid_value(field, len(entries), f"At most {ENTRIES_MAX} are allowed")
    for at, entry in enumerate(entries):
        where = f"{field}[{at}]"
        known = entry.protocol in _PROTOCOLS or (
            entry.protocol.isdecimal() and int(entry.protocol) <= 255
        )
        if not known:
            text = f"Must be one of {', '.join(sorted(_PROTOCOLS))}, or a number up to 255"
            raise invalid_value(f"{where}.IPProtocol", entry.protocol, text)
        if entry.ports and entry.protocol not in _WITH_PORTS:
            text = f"Protocol {entry.protocol} has no ports"
            raise invalid_value(f"{where}.ports", entry.ports[0], text)
        for port in entry.ports:
            _check_port(f"{where}.ports", port)


def _check_port(field: str, text: str) -> None:
    match = _PORTS.fullmatch(text)
    ends = () if match is None else tuple(int(part) for part in match.groups() if part)
    if not ends or max(ends) > _PORT_MAX or list(ends) != sorted(ends):
        raise invalid_value(field, text, "Must be a port, or a range such as 80-90")


def default_rules(project: str, created: PlatformTime, created_by: str) -> list[ComputeResource]:
    """Google's four rules of the default network
    (cloud.google.com/firewall/docs/firewalls#more_rules_default_vpc)."""
    inside = (str(AUTO_RANGE),)
    every = ("0-65535",)
    internal = (FirewallEntry("tcp", every), FirewallEntry("udp", every), FirewallEntry("icmp"))
    rules: Mapping[str, tuple[str, tuple[str, ...], tuple[FirewallEntry, ...]]] = {
        "internal": ("Allow internal traffic on the default network", inside, internal),
        "ssh": ("Allow SSH from anywhere", (ANYWHERE,), (FirewallEntry("tcp", ("22",)),)),
        "rdp": ("Allow RDP from anywhere", (ANYWHERE,), (FirewallEntry("tcp", ("3389",)),)),
        "icmp": ("Allow ICMP from anywhere", (ANYWHERE,), (FirewallEntry("icmp"),)),
    }
    return [
        derive(
            project,
            ResourceKind.FIREWALL,
            GLOBAL,
            f"default-allow-{name}",
            dataclasses.asdict(
                FirewallSpec(
                    DEFAULT_NETWORK,
                    description=text,
                    priority=PRIORITY_MAX - 1,
                    source_ranges=ranges,
                    allowed=entries,
                )
            ),
            created,
            created_by,
        )
        for name, (text, ranges, entries) in rules.items()
    ]
