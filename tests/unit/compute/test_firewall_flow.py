"""Firewall rules decide which connections come in."""

from __future__ import annotations

import dataclasses
import ipaddress

import pytest

from podyard.domain.compute.firewall import FirewallEntry, FirewallSpec, complete
from podyard.domain.compute.firewall_flow import Flow, is_allowed

IAP = ipaddress.IPv4Network("35.235.240.0/20")
SSH = (FirewallEntry("tcp", ("22",)),)
FLOW = Flow(IAP, "tcp", 22, tags=("web",), account="a@example.com")


def _rule(**fields: object) -> FirewallSpec:
    return complete(FirewallSpec("default", **{"allowed": SSH, **fields}))  # type: ignore[arg-type]


def test_without_a_rule_nothing_comes_in() -> None:
    assert not is_allowed((), FLOW)


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, True),
        ({"source_ranges": ("35.235.240.0/20",)}, True),
        ({"source_ranges": ("35.0.0.0/8", "10.0.0.0/8")}, True),
        ({"source_ranges": ("35.235.240.0/24",)}, False),
        ({"source_ranges": ("::/0",)}, False),
        ({"source_tags": ("proxy",)}, False),
        ({"disabled": True}, False),
        ({"direction": "EGRESS"}, False),
        ({"target_tags": ("web", "other")}, True),
        ({"target_tags": ("other",)}, False),
        ({"target_accounts": ("a@example.com",)}, True),
        ({"target_accounts": ("b@example.com",)}, False),
        ({"allowed": (FirewallEntry("tcp", ("20-25", "80")),)}, True),
        ({"allowed": (FirewallEntry("tcp", ("80",)),)}, False),
        ({"allowed": (FirewallEntry("tcp"),)}, True),
        ({"allowed": (FirewallEntry("6", ("22",)),)}, True),
        ({"allowed": (FirewallEntry("udp", ("22",)),)}, False),
        ({"allowed": (FirewallEntry("all"),)}, True),
    ],
)
def test_a_rule_applies_by_source_target_and_port(fields: dict[str, object], allowed: bool) -> None:
    assert is_allowed([_rule(**fields)], FLOW) is allowed


def test_the_lowest_number_decides_and_among_equals_the_one_that_denies() -> None:
    allow, deny = _rule(priority=10), _rule(priority=10, allowed=(), denied=SSH)
    assert not is_allowed([allow, deny], FLOW)
    assert is_allowed([dataclasses.replace(allow, priority=9), deny], FLOW)
    assert not is_allowed([allow, dataclasses.replace(deny, priority=9)], FLOW)


def test_a_source_is_known_by_tag_or_account() -> None:
    inside = dataclasses.replace(FLOW, source=ipaddress.IPv4Network("10.128.0.9/32"))
    tagged = dataclasses.replace(inside, source_tags=("proxy",))
    known = dataclasses.replace(inside, source_account="proxy@example.com")
    assert is_allowed([_rule(source_tags=("proxy",))], tagged)
    assert not is_allowed([_rule(source_tags=("proxy",))], inside)
    assert is_allowed([_rule(source_accounts=("proxy@example.com",))], known)
    assert not is_allowed([_rule(source_accounts=("proxy@example.com",))], inside)
