"""Slices whose hosts live on several agents: whom each agent has to connect its hosts with, and by
which key."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from podyard.db.compute import hosts
from podyard.db.compute import nodes as node_rows
from podyard.db.store import yard
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import LOOPBACK, TUNNEL
from podyard.domain.host_key import hkdf
from podyard.domain.host_record import HostRecord


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkPeer:
    """Another agent with live hosts of a slice, and where it takes cables. `port` 0: it has not
    said so yet."""

    agent_id: str
    address: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class SliceNetwork:
    """`node_key`: one node that the network is for; `key`: what all its agents have, and nobody
    else."""

    node_key: str
    key: bytes
    peers: tuple[NetworkPeer, ...]


def of_agent(uow: UnitOfWork, agent_id: str, node_keys: Collection[str]) -> list[SliceNetwork]:
    """The networks of slices, and of multislices, that have live hosts on other agents.
    `node_keys`: of the nodes that have live hosts on this one."""
    others = hosts.live_elsewhere(uow, agent_id) if node_keys else []
    found: dict[str, SliceNetwork] = {}
    secret = yard.read(uow).secret.encode() if others else b""
    for node_key in sorted(node_keys) if others else ():
        name, members = _members(uow, node_key)
        peers = _peers([host for host in others if host.node_key in members])
        if peers:
            found.setdefault(
                name,
                SliceNetwork(
                    node_key, hkdf(secret, f"podyard slice network {name}".encode()), peers
                ),
            )
    return list(found.values())


def _members(uow: UnitOfWork, node_key: str) -> tuple[str, set[str]]:
    """(key of what the network is for, keys of its nodes)."""
    node = node_rows.get_by_key(uow, node_key)
    if node.slice_count <= 1:
        return node_key, {node_key}
    if node.queued_resource_key is not None:
        slices = node_rows.of_queued_resource(uow, node.queued_resource_key)
        return node.queued_resource_key, {one.node_key for one in slices}
    assert node.job_key is not None, "several slices are of a queued resource or of a job"
    return node.job_key, {one.node_key for one in node_rows.of_job(uow, node.job_key)}


def _peers(there: list[HostRecord]) -> tuple[NetworkPeer, ...]:
    """One for each agent: as one of its hosts says, where any has said it."""
    found: dict[str, NetworkPeer] = {}
    for host in there:
        if host.agent_id is not None and (
            host.agent_id not in found or not found[host.agent_id].port
        ):
            # A host that only its own machine reaches has an address of its own there; its agent's
            # cables do not.
            address = host.bind_address or ""
            address = LOOPBACK if address.startswith("127.") else address
            found[host.agent_id] = NetworkPeer(host.agent_id, address, host.port_map.get(TUNNEL, 0))
    return tuple(found[agent] for agent in sorted(found))
