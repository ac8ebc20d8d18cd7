"""Networks, subnetworks, firewall rules, addresses and routes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.yard import ZONE, Yard

ROOT = "/compute/v1/projects/demo"
REGION = ZONE.rpartition("-")[0]
NETWORKS = f"{ROOT}/global/networks"
FIREWALLS = f"{ROOT}/global/firewalls"
HERE = f"{ROOT}/regions/{REGION}"
SUBNETWORKS = f"{HERE}/subnetworks"
ADDRESSES = f"{HERE}/addresses"


def _reason(yard: Yard, status: int, verb: str, path: str, body: Any = None) -> tuple[str, str]:
    response = yard.call(verb, path, body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, status), response.text
    return error["errors"][0]["reason"], error["message"]


def _names(answer: dict[str, Any]) -> list[str]:
    return [item["name"] for item in answer.get("items", ())]


def _network(yard: Yard, name: str = "own", auto: bool = False, **fields: Any) -> None:
    yard.ok("POST", NETWORKS, {"name": name, "autoCreateSubnetworks": auto, **fields})


def test_each_project_has_google_s_default_network(yard: Yard) -> None:
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "second"})
    for project in ("demo", "second"):
        root = f"/compute/v1/projects/{project}"
        (network,) = yard.ok("GET", f"{root}/global/networks")["items"]
        assert (network["name"], network["autoCreateSubnetworks"]) == ("default", True)
        link = f"{root.removeprefix('/compute/v1/')}/regions/{REGION}/subnetworks/default"
        assert any(one.endswith(link) for one in network["subnetworks"])
        rules = yard.ok("GET", f"{root}/global/networks/default/getEffectiveFirewalls")["firewalls"]
        shown = {
            rule["name"]: (rule["priority"], rule["direction"], rule["sourceRanges"])
            for rule in rules
        }
        assert shown == {
            "default-allow-icmp": (65534, "INGRESS", ["0.0.0.0/0"]),
            "default-allow-internal": (65534, "INGRESS", ["10.128.0.0/9"]),
            "default-allow-rdp": (65534, "INGRESS", ["0.0.0.0/0"]),
            "default-allow-ssh": (65534, "INGRESS", ["0.0.0.0/0"]),
        }
        ssh = next(rule for rule in rules if rule["name"] == "default-allow-ssh")
        assert ssh["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    subnetwork = yard.ok("GET", f"{SUBNETWORKS}/default")
    assert (subnetwork["ipCidrRange"], subnetwork["gatewayAddress"]) == (
        "10.128.0.0/20",
        "10.128.0.1",
    )
    everywhere = yard.ok("GET", f"{ROOT}/aggregated/subnetworks")["items"]
    assert _names(yard.ok("GET", SUBNETWORKS)) == ["default"]
    assert f"regions/{REGION}" in everywhere


def test_a_network_of_one_s_own_lives_its_life(yard: Yard) -> None:
    _network(yard, mtu=1500, description="for training")
    network = yard.ok("GET", f"{NETWORKS}/own")
    assert (network["mtu"], network["description"], network["autoCreateSubnetworks"]) == (
        1500,
        "for training",
        False,
    )
    yard.ok("PATCH", f"{NETWORKS}/own", {"routingConfig": {"routingMode": "GLOBAL"}})
    yard.ok(
        "POST",
        SUBNETWORKS,
        {"name": "small", "network": network["selfLink"], "ipCidrRange": "10.0.0.0/24"},
    )
    small = yard.ok("GET", f"{SUBNETWORKS}/small")
    assert small["network"] == network["selfLink"]
    shown = yard.ok("GET", f"{NETWORKS}/own")
    assert shown["subnetworks"] == [small["selfLink"]]
    assert (shown["routingConfig"], shown["mtu"]) == ({"routingMode": "GLOBAL"}, 1500)
    routes = yard.ok("GET", f"{ROOT}/global/routes?filter=network%3D%22{network['selfLink']}%22")
    assert {route["destRange"] for route in routes["items"]} == {"0.0.0.0/0", "10.0.0.0/24"}
    route = routes["items"][0]
    assert yard.ok("GET", f"{ROOT}/global/routes/{route['name']}") == route
    assert "items" not in yard.ok("GET", f"{HERE}/routers")
    patch = {"fingerprint": small["fingerprint"], "privateIpGoogleAccess": True}
    yard.ok("PATCH", f"{SUBNETWORKS}/small", patch)
    assert yard.ok("GET", f"{SUBNETWORKS}/small")["privateIpGoogleAccess"] is True
    assert _reason(yard, 412, "PATCH", f"{SUBNETWORKS}/small", patch)[0] == "conditionNotMet"
    reason, message = _reason(yard, 400, "DELETE", f"{NETWORKS}/own")
    assert reason == "resourceInUseByAnotherResource"
    assert message == (
        "The network resource 'projects/demo/global/networks/own' is already being used by "
        f"'projects/demo/regions/{REGION}/subnetworks/small'"
    )
    yard.ok("DELETE", f"{SUBNETWORKS}/small")
    yard.ok("DELETE", f"{NETWORKS}/own")
    assert _reason(yard, 404, "GET", f"{NETWORKS}/own")[0] == "notFound"
    assert _names(yard.ok("GET", NETWORKS)) == ["default"]


def test_a_rule_lives_its_life(yard: Yard) -> None:
    body = {"name": "web", "allowed": [{"IPProtocol": "TCP", "ports": ["80", "8000-8080"]}]}
    yard.ok("POST", FIREWALLS, body)
    rule = yard.ok("GET", f"{FIREWALLS}/web")
    assert (rule["priority"], rule["direction"], rule["sourceRanges"], rule["disabled"]) == (
        1000,
        "INGRESS",
        ["0.0.0.0/0"],
        False,
    )
    assert rule["allowed"] == [{"IPProtocol": "tcp", "ports": ["80", "8000-8080"]}]
    yard.ok("PATCH", f"{FIREWALLS}/web", {"targetTags": ["a"], "disabled": True})
    changed = yard.ok("GET", f"{FIREWALLS}/web")
    assert changed == {**rule, "targetTags": ["a"], "disabled": True}
    yard.ok("PUT", f"{FIREWALLS}/web", {"name": "web", "denied": [{"IPProtocol": "all"}]})
    replaced = yard.ok("GET", f"{FIREWALLS}/web")
    assert (replaced["denied"], replaced.get("allowed"), replaced.get("targetTags")) == (
        [{"IPProtocol": "all"}],
        None,
        None,
    )
    assert _names(yard.ok("GET", f"{FIREWALLS}?filter=name%3Dweb")) == ["web"]
    yard.ok("DELETE", f"{FIREWALLS}/web")
    assert len(_names(yard.ok("GET", FIREWALLS))) == 4


def test_an_address_lives_its_life(yard: Yard) -> None:
    for name, fields in (("out", {}), ("in", {"addressType": "INTERNAL"}), ("out-2", {})):
        yard.ok("POST", ADDRESSES, {"name": name, **fields})
    shown = {item["name"]: item for item in yard.ok("GET", ADDRESSES)["items"]}
    assert shown["in"]["address"].startswith("10.128.")
    assert shown["in"]["subnetwork"].endswith(f"/regions/{REGION}/subnetworks/default")
    assert shown["out"]["address"] != shown["out-2"]["address"]
    assert (shown["out"]["addressType"], shown["out"]["status"]) == ("EXTERNAL", "RESERVED")
    taken = {"name": "more", "addressType": "INTERNAL", "address": shown["in"]["address"]}
    assert _reason(yard, 400, "POST", ADDRESSES, taken)[0] == "resourceInUseByAnotherResource"
    everywhere = yard.ok("GET", f"{ROOT}/aggregated/addresses?maxResults=2")
    (scope,) = everywhere["items"].values()
    assert [item["name"] for item in scope["addresses"]] == ["in", "out"]
    yard.ok("DELETE", f"{ADDRESSES}/out")
    assert _reason(yard, 404, "GET", f"{ADDRESSES}/out")[0] == "notFound"


TCP = [{"IPProtocol": "tcp"}]


@pytest.mark.parametrize(
    ("status", "reason", "path", "body"),
    [
        (400, "invalid", NETWORKS, {"name": "Own", "autoCreateSubnetworks": False}),
        (400, "invalid", NETWORKS, {"name": "own"}),
        (400, "required", NETWORKS, {"autoCreateSubnetworks": False}),
        (400, "invalid", NETWORKS, {"name": "own", "autoCreateSubnetworks": False, "mtu": 1}),
        (409, "alreadyExists", NETWORKS, {"name": "default", "autoCreateSubnetworks": True}),
        (404, "notFound", SUBNETWORKS, {"network": "none", "ipCidrRange": "10.0.0.0/24"}),
        (400, "required", SUBNETWORKS, {"ipCidrRange": "10.0.0.0/24"}),
        (400, "required", SUBNETWORKS, {"network": "default"}),
        (400, "invalid", SUBNETWORKS, {"network": "default", "ipCidrRange": "10.0.0.1/24"}),
        (400, "invalid", SUBNETWORKS, {"network": "default", "ipCidrRange": "10.0.0.0/30"}),
        (400, "invalid", SUBNETWORKS, {"network": "default", "ipCidrRange": "127.0.0.0/24"}),
        (400, "invalid", SUBNETWORKS, {"network": "default", "ipCidrRange": "10.128.0.0/24"}),
        (404, "notFound", f"{ROOT}/regions/x-y1/subnetworks", {"network": "default"}),
        (404, "notFound", FIREWALLS, {"network": "none", "allowed": TCP}),
        (400, "invalid", FIREWALLS, {}),
        (400, "invalid", FIREWALLS, {"allowed": TCP, "denied": TCP}),
        (400, "required", FIREWALLS, {"allowed": [{}]}),
        (400, "invalid", FIREWALLS, {"allowed": [{"IPProtocol": "http"}]}),
        (400, "invalid", FIREWALLS, {"allowed": [{"IPProtocol": "tcp", "ports": ["9-1"]}]}),
        (400, "invalid", FIREWALLS, {"allowed": [{"IPProtocol": "icmp", "ports": ["1"]}]}),
        (400, "invalid", FIREWALLS, {"allowed": TCP, "sourceRanges": ["10.0.0.1/8"]}),
        (400, "invalid", FIREWALLS, {"allowed": TCP, "priority": 70000}),
        (400, "invalid", FIREWALLS, {"allowed": TCP, "network": "projects/p/zones/z"}),
        (404, "notFound", ADDRESSES, {"subnetwork": "none"}),
        (400, "invalid", ADDRESSES, {"subnetwork": "default", "address": "10.0.0.1"}),
        (400, "invalid", ADDRESSES, {"address": "8.8.8.8"}),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    yard: Yard, status: int, reason: str, path: str, body: dict[str, Any]
) -> None:
    named = body if path == NETWORKS else {"name": "new", **body}
    assert _reason(yard, status, "POST", path, named)[0] == reason
    assert _names(yard.ok("GET", NETWORKS)) == ["default"]
    assert len(_names(yard.ok("GET", FIREWALLS))) == 4
    assert _names(yard.ok("GET", SUBNETWORKS)) == ["default"]
    assert yard.ok("GET", f"{ROOT}/aggregated/addresses")["items"] == {}


def test_the_subnetworks_of_auto_mode_stay(yard: Yard) -> None:
    reason, message = _reason(yard, 400, "DELETE", f"{SUBNETWORKS}/default")
    assert (reason, message) == (
        "invalid",
        "Cannot delete auto subnetwork from an auto subnet mode network.",
    )


def test_two_subnetworks_of_one_network_share_no_address(yard: Yard) -> None:
    _network(yard)
    body = {"name": "a", "network": "global/networks/own", "ipCidrRange": "10.0.0.0/16"}
    yard.ok("POST", SUBNETWORKS, body)
    reason, message = _reason(
        yard, 400, "POST", SUBNETWORKS, {**body, "name": "b", "ipCidrRange": "10.0.128.0/24"}
    )
    assert reason == "invalid"
    assert message == (
        "Invalid IPCidrRange: 10.0.128.0/24 conflicts with existing subnetwork 'a' in region "
        f"'{REGION}'."
    )
    _network(yard, "other")
    yard.ok("POST", SUBNETWORKS, {**body, "name": "b", "network": "other"})


@pytest.mark.parametrize("field", ["networkConfig", "networkConfigs"])
def test_nodes_are_in_networks_that_are_there(yard: Yard, field: str) -> None:
    def create(node: str, **network: Any) -> Any:
        body = {
            "acceleratorType": "v2-8",
            "runtimeVersion": "tpu-vm-base",
            field: network if field == "networkConfig" else [network],
        }
        return yard.call("POST", f"{yard.nodes()}?nodeId={node}", body)

    refused = create("a", network="own")
    assert (refused.status_code, refused.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert "projects/demo/global/networks/own" in refused.json()["error"]["message"]
    assert yard.ok("GET", yard.nodes()).get("nodes", []) == []
    _network(yard)
    assert create("a", network="own").status_code == 200
    refused = create("b", network="own", subnetwork="none")
    assert refused.status_code == 400
    whole = f"https://www.googleapis.com{NETWORKS}/default"
    here = f"projects/demo/regions/{REGION}/subnetworks/default"
    assert create("b", network=whole, subnetwork=here).status_code == 200
    assert create("c").status_code == 200
    yard.step()
    if field == "networkConfig":
        moved = {"networkConfig": {"network": "none"}}
        patched = yard.call("PATCH", f"{yard.nodes()}/c?updateMask=networkConfig", moved)
        assert patched.status_code == 400
    reason, _ = _reason(yard, 400, "DELETE", f"{NETWORKS}/own")
    assert reason == "resourceInUseByAnotherResource"
