"""Rows of nodes, hosts and slices to records, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select

from podyard.base.clock import PlatformTime
from podyard.db import yard
from podyard.db.tables_compute import hosts, nodes, slices
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.host import external_address
from podyard.domain.host_record import HostState
from podyard.domain.node import Node, NodeHost, NodeSpec, UsageClass, node_name

# Addresses that the wire shows inside: 10.128.0.2 upwards (Google's usual range).
_INTERNAL_BASE = (10 << 24) + (128 << 16) + 2
_TIMES = ("created", "ready_since", "termination")


_BY_NAME = select(nodes).where(nodes.c.live_name == bindparam("name"))
_BY_KEY = select(nodes).where(nodes.c.node_key == bindparam("key"))
_LAST_ADDRESS = (
    select(nodes.c.first_address, nodes.c.host_count)
    .where(nodes.c.first_address > 0)  # 0: it has none yet
    .order_by(nodes.c.first_address.desc())
    .limit(1)
)
_HOSTS = select(hosts).where(hosts.c.node_key == bindparam("key")).order_by(hosts.c.host_index)
_REMOVE_HOSTS = delete(hosts).where(hosts.c.node_key == bindparam("key"))
_RELEASE = delete(slices).where(slices.c.node_key == bindparam("key"))
_SLICE = select(slices.c.slice_id).where(slices.c.node_key == bindparam("key"))


def row_of(uow: UnitOfWork, project: str, zone: str, node_id: str) -> Mapping[str, Any] | None:
    return uow.first(_BY_NAME, {"name": node_name(project, zone, node_id)})


def find(uow: UnitOfWork, node_key: str) -> Mapping[str, Any] | None:
    return uow.first(_BY_KEY, {"key": node_key})


def row_by_key(uow: UnitOfWork, node_key: str) -> Mapping[str, Any]:
    row = find(uow, node_key)
    assert row is not None, node_key
    return row


def rows(uow: UnitOfWork, project: str, zone: str | None) -> list[Mapping[str, Any]]:
    """The live nodes of a project, in one zone or (None) in all, by zone and id."""
    query = select(nodes).where(nodes.c.project == project, nodes.c.live_name.is_not(None))
    if zone is not None:
        query = query.where(nodes.c.zone == zone)
    return uow.all(query.order_by(nodes.c.zone, nodes.c.node_id))


def to_node(uow: UnitOfWork, row: Mapping[str, Any]) -> Node:
    key = {"key": row["node_key"]}
    return _node(row, uow.all(_HOSTS, key), uow.execute(_SLICE, key).scalar())


def to_nodes(uow: UnitOfWork, found: Sequence[Mapping[str, Any]]) -> list[Node]:
    keys = [row["node_key"] for row in found]
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    for host in uow.all(select(hosts).where(hosts.c.node_key.in_(keys)).order_by(hosts.c.host_index)):
        by_node.setdefault(host["node_key"], []).append(host)
    placed = uow.all(select(slices.c.node_key, slices.c.slice_id).where(slices.c.node_key.in_(keys)))
    slice_ids = {row["node_key"]: row["slice_id"] for row in placed}
    return [_node(row, by_node.get(row["node_key"], []), slice_ids.get(row["node_key"])) for row in found]


def frozen(uow: UnitOfWork, row: Mapping[str, Any]) -> dict[str, Any]:
    """The node as JSON, for an operation's response: it must not change with the node afterwards."""
    node = dataclasses.asdict(to_node(uow, row))
    for name in _TIMES:
        node[name] = node[name]["nanos"] if node[name] else None
    return node


def thawed(data: Mapping[str, Any]) -> Node:
    """The node that `frozen` made `data` of; what an older Podyard did not store has its default."""
    times = {name: data.get(name) for name in _TIMES}
    return Node(
        **{
            **data,
            **{name: None if nanos is None else PlatformTime(nanos) for name, nanos in times.items()},
            "spec": to_spec(data["spec"]),
            "hosts": tuple(_host(host) for host in data["hosts"]),
            "symptoms": tuple(data.get("symptoms", ())),
            "maintenance_workers": tuple(data.get("maintenance_workers", ())),
        }
    )


def from_spec(spec: NodeSpec) -> dict[str, Any]:
    # Not `asdict`, which copies each label and script: what the spec holds is JSON already, and nobody changes it.
    return {name: getattr(spec, name) for name in NodeSpec.__dataclass_fields__}


def to_spec(data: Mapping[str, Any]) -> NodeSpec:
    return NodeSpec(**{**data, "usage_class": UsageClass(data["usage_class"]), "tags": tuple(data["tags"])})


def add_hosts(uow: UnitOfWork, node_key: str, first_address: int, host_count: int) -> None:
    base = yard.ensure(uow).address_base
    for index in range(host_count):
        host = {
            "host_id": f"{node_key}-w-{index}",
            "node_key": node_key,
            "host_index": index,
            "internal_ip": _dotted(_INTERNAL_BASE + first_address + index),
            "external_ip": external_address(base, first_address + index),
            "port_map": {},
        }
        uow.insert(hosts, host)


def next_address(uow: UnitOfWork) -> int:
    """The first address number that no node ever had. The ranges of nodes do not overlap, so the one that begins last
    also ends last."""
    last = uow.first(_LAST_ADDRESS)
    return 1 if last is None else int(last["first_address"] + last["host_count"])


def of_queued_resource(uow: UnitOfWork, queued_resource_key: str) -> list[Mapping[str, Any]]:
    """The live nodes of a queued resource, in the order of its slices."""
    return uow.all(_OF_QUEUED_RESOURCE, {"key": queued_resource_key})


_OF_QUEUED_RESOURCE = (
    select(nodes)
    .where(nodes.c.queued_resource_key == bindparam("key"), nodes.c.live_name.is_not(None))
    .order_by(nodes.c.slice_index, nodes.c.node_id)
)


def with_slice(uow: UnitOfWork, node_keys: Sequence[str]) -> frozenset[str]:
    """Those of the nodes that hold chips."""
    query = select(slices.c.node_key).where(slices.c.node_key.in_(node_keys))
    return frozenset(row["node_key"] for row in uow.all(query))


def remove_hosts(uow: UnitOfWork, node_key: str) -> None:
    uow.execute(_REMOVE_HOSTS, {"key": node_key})


def release_slice(uow: UnitOfWork, node_key: str) -> None:
    uow.execute(_RELEASE, {"key": node_key})


def _node(row: Mapping[str, Any], host_rows: Sequence[Mapping[str, Any]], slice_id: str | None) -> Node:
    return Node(
        node_key=row["node_key"],
        number=row["number"],
        project=row["project"],
        zone=row["zone"],
        node_id=row["node_id"],
        state=row["state"],
        version=row["version"],
        spec=to_spec(row["spec"]),
        created=row["created"],
        ready_since=row["ready_since"],
        state_reason=row["state_reason"] or row["wait_reason"],
        job_id=row["job_key"],
        slice_id=slice_id,
        hosts=tuple(_host(host) for host in host_rows),
        queued_resource=row["queued_resource"],
        slice_index=row["slice_index"],
        slice_count=row["slice_count"],
        health=row["health"],
        health_description=row["health_description"],
        symptoms=tuple(row["symptoms"] or ()),
        upcoming_maintenance=row["upcoming_maintenance"],
        maintenance_workers=tuple(row["maintenance_workers"] or ()),
        termination=row["termination"],
    )


def _host(row: Mapping[str, Any]) -> NodeHost:
    return NodeHost(row["host_index"], row["internal_ip"], row["external_ip"], HostState(row["state"]))


def _dotted(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
