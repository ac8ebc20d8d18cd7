"""xpk: src/xpk/core, whose part of Compute Engine is what gcloud asks for resource policies,
networks, reservations, zones and quotas."""

from __future__ import annotations

from tests.contract.launchers.replay import (
    ABSENT,
    LINK,
    REGION,
    ZONE,
    C,
    Call,
    G,
    R,
    Z,
    absent,
    change,
    some,
)

POLICY = "tpu7x-16-2x2x2-placement-policy"
BETA = R.replace("/v1/", "/beta/")
CALLS = [
    absent(f"{BETA}/resourcePolicies/{POLICY}"),
    *change(
        "POST",
        f"{BETA}/resourcePolicies",
        {
            "name": POLICY,
            "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"},
        },
    ),
    Call(
        "GET",
        f"{BETA}/resourcePolicies/{POLICY}",
        reads={
            "name": POLICY,
            "status": "READY",
            "workloadPolicy.acceleratorTopology": "2x2x2",
            "selfLink": f"{LINK}/regions/{REGION}/resourcePolicies/{POLICY}",
        },
    ),
    Call("GET", f"{C}/zones", query={"filter": f"name={ZONE}"}, reads={"items.0.region": some}),
    Call("GET", f"{R}", reads={"quotas.0.limit": some, "status": "UP"}),
    Call("GET", f"{Z}/acceleratorTypes", reads={"items.0.maximumCardsPerInstance": some}),
    Call("GET", f"{Z}/machineTypes/ct6e-standard-4t", reads={"accelerators.0": some}),
    *change(
        "POST", f"{G}/networks", {"name": "c-net-1", "autoCreateSubnetworks": False, "mtu": 8244}
    ),
    *change(
        "POST",
        f"{R}/subnetworks",
        {
            "name": "c-sub-1",
            "network": f"{LINK}/global/networks/c-net-1",
            "ipCidrRange": "192.168.0.0/24",
        },
    ),
    *change(
        "POST",
        f"{G}/firewalls",
        {
            "name": "c-internal-1",
            "network": f"{LINK}/global/networks/c-net-1",
            "direction": "INGRESS",
            "allowed": [
                {"IPProtocol": "tcp", "ports": ["0-65535"]},
                {"IPProtocol": "udp", "ports": ["0-65535"]},
                {"IPProtocol": "icmp"},
            ],
            "sourceRanges": ["192.168.0.0/16"],
        },
    ),
    *change("DELETE", f"{G}/firewalls/c-internal-1"),
    *change("DELETE", f"{R}/subnetworks/c-sub-1"),
    *change("DELETE", f"{G}/networks/c-net-1"),
    absent(f"{Z}/reservations/none"),
    Call("GET", f"{Z}/reservations", reads={"items": ABSENT}),
    *change("DELETE", f"{BETA}/resourcePolicies/{POLICY}"),
]
