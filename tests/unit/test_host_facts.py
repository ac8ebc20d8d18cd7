"""What a host is told of itself: environment, `tpu-env`, and who may log in."""

from __future__ import annotations

import dataclasses
from ipaddress import ip_address, ip_network
from typing import Any

import asyncssh
import pytest

from podyard.base.clock import RealTime
from podyard.domain.host import (
    ADDRESSES,
    HAS_HOST_ADDRESSES,
    Multislice,
    NodeFacts,
    attribute_items,
    authorized_keys,
    external_address,
    facts_of_json,
    guest_attributes_allowed,
    host_address,
    login_keys,
    nowhere,
    tpu_env,
    with_ssh_key,
    worker_environment,
    worker_network_endpoints,
)
from podyard.domain.host_key import hkdf, key_seed, private_openssh, public_key

NOW = RealTime.from_rfc3339("2026-03-01T00:00:00Z")


def _facts(kind: str, topology: str, hosts: int, **changes: Any) -> NodeFacts:
    values: dict[str, Any] = {
        "node_key": "n", "project": "demo", "project_number": 12, "zone": "us-central2-b",
        "node_id": "pod",
        "number": 42, "state": "READY", "runtime_version": "tpu-vm-v4-base",
        "usage_class": "on-demand",
        "description": "", "tags": (), "metadata": {}, "service_account": "a@b", "scopes": (),
        "network": "default",
        "internal_ips": tuple(f"10.128.0.{index + 2}" for index in range(hosts)),
        "external_ips": (),
    }  # fmt: skip
    return NodeFacts(accelerator_type=kind, topology=topology, **(values | changes))


def test_the_tpu_env_of_a_v4_256_is_that_of_the_recording() -> None:
    found = tpu_env(_facts("v4-256", "4x4x8", 32), 0)
    recorded = {
        "ACCELERATOR_TYPE": "v4-256", "CHIPS_PER_HOST_BOUNDS": "2,2,1", "HOST_BOUNDS": "2,2,8",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1", "TPU_PROCESS_BOUNDS": "2,2,8", "TOPOLOGY": "4x4x8",
        "TYPE": "V4",
        "WRAP": "true,true,true", "TPU_TOPOLOGY_WRAP": "true,true,true", "ALT": "false",
        "TPU_TOPOLOGY_ALT": "false",
        "WORKER_ID": "0", "PREEMPTIBLE": "false",
        "TPU_RUNTIME_METRICS_PORTS": "8431,8432,8433,8434",
        "SERVICE_NAME": "tpu.googleapis.com",
    }  # fmt: skip
    assert {name: found[name] for name in recorded} == recorded
    names = {
        "CONSUMER_PROJECT_ID",
        "CONSUMER_PROJECT_NUMBER",
        "NODE_ID",
        "UID",
        "ZONE",
        "RUNTIME_VERSION",
    }
    assert names | {"ENABLE_ICI_RESILIENCY", "INFERENCE_MODE", "INTERNAL", "SOURCE"} | set(
        recorded
    ) == set(found)


@pytest.mark.parametrize(
    ("kind", "topology", "hosts", "bounds", "chips", "visible"),
    [
        ("v2-8", "2x2", 1, "1,1,1", "2,2,1", "0,1,2,3"),
        ("v3-32", "4x4", 4, "2,2,1", "2,2,1", "0,1,2,3"),
        ("v5litepod-1", "1x1", 1, "1,1,1", "1,1,1", "0"),
        ("v5litepod-8", "2x4", 1, "1,1,1", "2,4,1", "0,1,2,3,4,5,6,7"),
        ("v6e-16", "4x4", 4, "2,2,1", "2,2,1", "0,1,2,3"),
        ("v5p-16", "2x2x2", 2, "1,1,2", "2,2,1", "0,1,2,3"),
    ],
)
def test_the_environment_describes_the_slice(
    kind: str, topology: str, hosts: int, bounds: str, chips: str, visible: str
) -> None:
    env = worker_environment(_facts(kind, topology, hosts), hosts - 1)
    assert (env["TPU_HOST_BOUNDS"], env["TPU_PROCESS_BOUNDS"]) == (bounds, bounds)
    assert (env["TPU_CHIPS_PER_HOST_BOUNDS"], env["TPU_CHIPS_PER_PROCESS_BOUNDS"]) == (chips, chips)
    assert env["TPU_VISIBLE_CHIPS"] == visible
    assert (env["TPU_WORKER_ID"], env["CLOUD_TPU_TASK_ID"]) == (str(hosts - 1), str(hosts - 1))
    assert len(env["TPU_WORKER_HOSTNAMES"].split(",")) == hosts
    assert env["COLAB_TPU_ADDR"] == f"10.128.0.{hosts + 1}:8470"
    assert (env["TPU_SKIP_MDS_QUERY"], env["PODYARD_TPU"], env["TPU_TOPOLOGY"]) == (
        "1",
        kind,
        topology,
    )
    assert len(env["TPU_TOPOLOGY_WRAP"].split(",")) == 3
    assert not any(name.startswith(("MEGASCALE", "GCE")) for name in env)


@pytest.mark.parametrize(
    ("kind", "topology", "hosts", "devices"),
    [
        ("v3-32", "4x4", 4, 8),
        ("v2-8", "2x2", 1, 8),
        ("v4-16", "2x2x2", 2, 4),
        ("v5litepod-8", "2x4", 1, 8),
    ],
)
def test_jax_finds_its_devices_and_hosts_that_lead_somewhere(
    kind: str, topology: str, hosts: int, devices: int
) -> None:
    addresses = tuple(f"127.128.0.{index + 7}" for index in range(hosts))
    facts = _facts(kind, topology, hosts, host_addresses=addresses)
    env = worker_environment(facts, hosts - 1, url="http://127.0.0.1:8700")
    assert env["PODYARD_TPU"] == kind
    assert (env["JAX_NUM_CPU_DEVICES"], env["NPROC"]) == (str(devices), str(2 * devices))
    assert env["TPU_WORKER_HOSTNAMES"] == ",".join(addresses)
    assert worker_network_endpoints(facts) == ",".join(
        f"unknown:unknown:{address}" for address in addresses
    )
    assert env.get("PODYARD_ADDRESS") == (addresses[-1] if HAS_HOST_ADDRESSES else None)
    assert (
        env["TPU_API_DISCOVERY_URL"] == "http://127.0.0.1:8700/$discovery/rest?version={apiVersion}"
    )


def test_the_hosts_of_a_slice_agree_on_a_port_that_other_slices_do_not_have() -> None:
    def port(index: int, **changes: Any) -> int:
        return int(
            worker_environment(_facts("v3-32", "4x4", 4, **changes), index)["JAX_COORDINATOR_PORT"]
        )

    assert len({port(index) for index in range(4)}) == 1
    assert port(0) != port(0, number=43)
    slices = [
        port(0, number=number, multislice=Multislice(number, 2, "127.128.0.7"))
        for number in range(2)
    ]
    assert slices[0] == slices[1]


def test_slices_of_one_request_know_each_other() -> None:
    facts = _facts("v4-16", "2x2x2", 2, multislice=Multislice(1, 3, "10.128.0.9"))
    expected = {
        "MEGASCALE_COORDINATOR_ADDRESS": "10.128.0.9:8081", "MEGASCALE_NUM_SLICES": "3",
        "MEGASCALE_SLICE_ID": "1",
        "MEGASCALE_PORT": "8081",
    }  # fmt: skip
    for found in (tpu_env(facts, 0), worker_environment(facts, 0)):
        assert {
            name: value for name, value in found.items() if name.startswith("MEGASCALE")
        } == expected
    assert facts_of_json(facts.to_json()) == facts


def test_the_digest_tells_one_state_from_another() -> None:
    facts = _facts("v2-8", "2x2", 1)
    assert facts.digest() == _facts("v2-8", "2x2", 1).digest()
    assert facts.digest() != dataclasses.replace(facts, metadata={"a": "b"}).digest()


def test_keys_are_read_line_by_line() -> None:
    text = "\n".join(
        (
            "ann:ssh-ed25519 AAA ann@home",
            "bad line",
            ("ann:ecdsa-sha2-nistp256 BBB google-ssh "
            "{\"userName\":\"ann\",\"expireOn\":\"2026-03-01T00:00:01+0000\"}"),
            ("ann:ssh-rsa OLD google-ssh "
            "{\"userName\":\"ann\",\"expireOn\":\"2026-02-28T23:59:59+0000\"}"),
            "ann:ssh-rsa TORN google-ssh {\"userName\"",
            "bob:ssh-ed25519",
            ":ssh-ed25519 CCC",
            "two words:ssh-ed25519 DDD",
            "",
            "bob:ssh-rsa EEE",
        )
    )  # fmt: skip
    assert authorized_keys(text, NOW) == {
        "ann": ("ssh-ed25519 AAA", "ecdsa-sha2-nistp256 BBB"),
        "bob": ("ssh-rsa EEE",),
    }
    assert authorized_keys("", NOW) == {}


def test_a_key_is_added_once_and_nothing_is_lost() -> None:
    first = with_ssh_key("ann:ssh-rsa AAA ann", "me", "ssh-ed25519 BBB comment")
    assert authorized_keys(first, NOW) == {"ann": ("ssh-rsa AAA",), "me": ("ssh-ed25519 BBB",)}
    assert with_ssh_key(first, "me", "ssh-ed25519 BBB") == first
    assert authorized_keys(with_ssh_key("", "me", "ssh-ed25519 BBB"), NOW) == {
        "me": ("ssh-ed25519 BBB",)
    }


def test_guest_attributes_are_found_by_their_path() -> None:
    values = {"b": {"y": "1"}, "a": {"x": "2", "w": "3"}}
    assert [item["key"] for item in attribute_items(values, "")] == ["w", "x", "y"]
    assert [item["key"] for item in attribute_items(values, "a/")] == ["w", "x"]
    assert attribute_items(values, "a/x") == [{"namespace": "a", "key": "x", "value": "2"}]
    assert attribute_items(values, "a/x/y") == []


@pytest.mark.parametrize(
    ("switch", "allowed"), [("TRUE", True), ("true", True), ("FALSE", False), (None, False)]
)
def test_guest_attributes_have_a_switch(switch: str | None, allowed: bool) -> None:
    facts = _facts(
        "v2-8", "2x2", 1, metadata={} if switch is None else {"enable-guest-attributes": switch}
    )
    assert guest_attributes_allowed(facts, "mine") is allowed
    assert guest_attributes_allowed(facts, "hostkeys")


@pytest.mark.skipif(
    not HAS_HOST_ADDRESSES, reason="only on Linux have hosts addresses of their own"
)
@pytest.mark.parametrize("base", [0, 12345, ADDRESSES - 3])
def test_every_host_of_a_yard_has_a_loopback_address_of_its_own(base: int) -> None:
    found = [ip_address(host_address(base, number)) for number in range(1, 2000)]
    assert len(set(found)) == len(found)
    assert all(address in ip_network("127.128.0.0/9") for address in found)
    assert ip_address("127.255.255.255") not in found  # the broadcast address
    assert [external_address(base, number) for number in (1, 2)] == [
        str(address) for address in found[:2]
    ]


def test_an_address_of_nobody_is_in_the_range_for_benchmarks() -> None:
    assert {nowhere(number) for number in (0, 2**17)} == {"198.18.0.0"}
    assert nowhere(2**17 - 1) == "198.19.255.255"


def test_host_keys_are_derived_and_openssh_reads_them() -> None:
    seed = key_seed("secret", "node-w-0")
    assert len({seed, key_seed("secret", "node-w-1"), key_seed("other", "node-w-0")}) == 3
    key = asyncssh.import_private_key(private_openssh(seed))
    assert key.export_public_key().decode().split()[:2] == ["ssh-ed25519", public_key(seed)]


def test_hkdf_is_that_of_the_standard() -> None:
    # RFC 5869, appendix A.3: no salt, no info; the first 32 of its 42 bytes.
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert hkdf(b"\x0b" * 22, b"").hex() == expected


def test_keys_of_the_project_log_in_too() -> None:
    project = {"ssh-keys": "me:ssh-rsa B\nyou:ssh-rsa C"}
    facts = _facts(
        "v2-8", "2x2", 1, metadata={"ssh-keys": "me:ssh-rsa A me"}, project_metadata=project
    )
    keys = {"me": ("ssh-rsa A", "ssh-rsa B"), "you": ("ssh-rsa C",)}
    assert login_keys(facts, NOW) == keys


@pytest.mark.parametrize("blocked", ["TRUE", "true", "1", "Yes"])
def test_a_node_keeps_the_keys_of_its_project_out(blocked: str) -> None:
    project = {"ssh-keys": "you:ssh-rsa C", "sshKeys": "old:ssh-rsa D"}
    own = {"ssh-keys": "me:ssh-rsa A"}
    blocking = own | {"block-project-ssh-keys": blocked}
    for metadata, expected in (
        (blocking, {"me"}),
        (own | {"block-project-ssh-keys": "FALSE"}, {"me", "you", "old"}),
        (own | {"sshKeys": "she:ssh-rsa E"}, {"me", "she"}),
    ):
        facts = _facts("v2-8", "2x2", 1, metadata=metadata, project_metadata=project)
        assert set(login_keys(facts, NOW)) == expected
