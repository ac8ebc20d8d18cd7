"""Rows of queued resources to records, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, select

from podyard.base.clock import PlatformTime
from podyard.db import nodes as node_rows
from podyard.db.tables_queue import queued_resources
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import UsageClass, node_name
from podyard.domain.queued_resource import NodeRequest, QueuedResource, QueuedResourceSpec, queued_resource_name

_TIMES = ("valid_after", "valid_until", "termination_time")


def row_of(uow: UnitOfWork, project: str, zone: str, queued_resource_id: str) -> Mapping[str, Any] | None:
    """The live row of that name, locked until the unit ends, where the unit may write."""
    name = queued_resource_name(project, zone, queued_resource_id)
    return _first(uow, queued_resources.c.live_name == name)


def row_by_key(uow: UnitOfWork, queued_resource_key: str) -> Mapping[str, Any] | None:
    return uow.first(_BY_KEY_LOCKED if uow.writable else _BY_KEY, {"key": queued_resource_key})


_BY_KEY = select(queued_resources).where(queued_resources.c.queued_resource_key == bindparam("key"))
_BY_KEY_LOCKED = _BY_KEY.with_for_update()


def rows(uow: UnitOfWork, project: str, zone: str | None) -> list[Mapping[str, Any]]:
    """The live ones of a project, in one zone or (None) in all, by zone and id."""
    query = select(queued_resources).where(
        queued_resources.c.project == project, queued_resources.c.live_name.is_not(None)
    )
    if zone is not None:
        query = query.where(queued_resources.c.zone == zone)
    return uow.all(query.order_by(queued_resources.c.zone, queued_resources.c.queued_resource_id))


def to_queued_resource(uow: UnitOfWork, row: Mapping[str, Any]) -> QueuedResource:
    found = node_rows.of_queued_resource(uow, row["queued_resource_key"])
    return QueuedResource(
        queued_resource_key=row["queued_resource_key"],
        project=row["project"],
        zone=row["zone"],
        queued_resource_id=row["queued_resource_id"],
        state=row["state"],
        version=row["version"],
        spec=to_spec(row["spec"]),
        created=row["created"],
        state_initiator=row["state_initiator"],
        error_code=row["error_code"],
        error_message=row["error_message"],
        error_details=tuple(row["error_details"]),
        nodes=tuple(node_name(node["project"], node["zone"], node["node_id"]) for node in found),
        wait_reason=row["wait_reason"],
    )


def frozen(uow: UnitOfWork, row: Mapping[str, Any]) -> dict[str, Any]:
    """The queued resource as JSON, for an operation's response."""
    record = to_queued_resource(uow, row)
    return {**dataclasses.asdict(record), "created": record.created.nanos, "spec": from_spec(record.spec)}


def thawed(data: Mapping[str, Any]) -> QueuedResource:
    """The record that `frozen` made `data` of."""
    return QueuedResource(
        **{
            **data,
            "spec": to_spec(data["spec"]),
            "created": PlatformTime(data["created"]),
            "error_details": tuple(data["error_details"]),
            "nodes": tuple(data["nodes"]),
        }
    )


def from_spec(spec: QueuedResourceSpec) -> dict[str, Any]:
    data = dataclasses.asdict(spec)
    for name in _TIMES:
        data[name] = data[name]["nanos"] if data[name] else None
    return data


def to_spec(data: Mapping[str, Any]) -> QueuedResourceSpec:
    times = {name: None if data[name] is None else PlatformTime(data[name]) for name in _TIMES}
    made = tuple(NodeRequest(**{**node, "spec": node_rows.to_spec(node["spec"])}) for node in data["nodes"])
    return QueuedResourceSpec(**{**data, **times, "nodes": made, "usage_class": UsageClass(data["usage_class"])})


def _first(uow: UnitOfWork, condition: Any) -> Mapping[str, Any] | None:
    query = select(queued_resources).where(condition)
    return uow.first(query.with_for_update() if uow.writable else query)
