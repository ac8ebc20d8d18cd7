"""Decides whether the rules of a network let traffic in
(cloud.google.com/firewall/docs/firewalls#rule_evaluation)."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Sequence

from podyard.domain.compute.firewall import INGRESS, FirewallEntry, FirewallSpec

_NUMBERS = {"icmp": "1", "tcp": "6", "udp": "17", "esp": "50", "ah": "51", "sctp": "132"}


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """A new connection to an instance. `source`: the addresses that it may come from. `tags` and
    `account` are the instance's, `source_tags` and `source_account` those of the instance that it
    comes from; none, where it comes from outside."""

    source: ipaddress.IPv4Network
    protocol: str
    port: int
    tags: tuple[str, ...] = ()
    account: str = ""
    source_tags: tuple[str, ...] = ()
    source_account: str = ""


def is_allowed(rules: Iterable[FirewallSpec], flow: Flow) -> bool:
    """Of the rules that apply, the one of the lowest number decides, and among equals one that
    denies; without any, the network's implied rule denies."""
    applying = [rule for rule in rules if _applies(rule, flow)]
    if not applying:
        return False
    return bool(min(applying, key=lambda rule: (rule.priority, not rule.denied)).allowed)


def _applies(rule: FirewallSpec, flow: Flow) -> bool:
    return (
        rule.direction == INGRESS
        and not rule.disabled
        and _is_target(rule, flow)
        and _is_source(rule, flow)
        and any(_covers(entry, flow) for entry in (*rule.allowed, *rule.denied))
    )


def _is_target(rule: FirewallSpec, flow: Flow) -> bool:
    if rule.target_tags:
        return not set(rule.target_tags).isdisjoint(flow.tags)
    return not rule.target_accounts or flow.account in rule.target_accounts


def _is_source(rule: FirewallSpec, flow: Flow) -> bool:
    """One of ranges, tags and accounts has to match: they are combined with "or"."""
    return (
        _is_within(rule.source_ranges, flow.source)
        or not set(rule.source_tags).isdisjoint(flow.source_tags)
        or flow.source_account in (account for account in rule.source_accounts if account)
    )


def _is_within(ranges: Sequence[str], source: ipaddress.IPv4Network) -> bool:
    networks = map(ipaddress.ip_network, ranges)
    return any(
        isinstance(network, ipaddress.IPv4Network) and source.subnet_of(network)
        for network in networks
    )


def _covers(entry: FirewallEntry, flow: Flow) -> bool:
    if entry.protocol not in ("all", flow.protocol, _NUMBERS.get(flow.protocol)):
        return False
    return not entry.ports or any(_holds(ports, flow.port) for ports in entry.ports)


def _holds(ports: str, port: int) -> bool:
    first, _, last = ports.partition("-")
    return int(first) <= port <= int(last or first)
