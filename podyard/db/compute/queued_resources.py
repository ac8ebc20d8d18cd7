"""Queued resources, as records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select, update

from podyard.base.clock import PlatformTime
from podyard.db.compute import nodes as node_rows
from podyard.db.store.records import QUEUED_SPEC_TIMES, from_queued_spec
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.queue import queued_resources
from podyard.domain.lists.pages import RowQuery
from podyard.domain.node import UsageClass
from podyard.domain.queued_resource import (
    NodeRequest,
    QueuedResource,
    QueuedResourceRecord,
    QueuedResourceSpec,
    QueuedResourceState,
    queued_resource_name,
)

_BY_NAME = select(queued_resources).where(queued_resources.c.live_name == bindparam("name"))
_BY_KEY = select(queued_resources).where(queued_resources.c.queued_resource_key == bindparam("key"))
_BY_NAME_LOCKED, _BY_KEY_LOCKED = _BY_NAME.with_for_update(), _BY_KEY.with_for_update()

_COLUMNS = RowColumns(
    name=queued_resources.c.live_name,
    place=queued_resources.c.zone,
    created=queued_resources.c.created,
    key=queued_resources.c.queued_resource_key,
    fields={},
)


def find(
    uow: UnitOfWork, project: str, zone: str, queued_resource_id: str
) -> QueuedResourceRecord | None:
    """The live one of that name, locked until the unit ends, where the unit may write."""
    name = queued_resource_name(project, zone, queued_resource_id)
    row = uow.first(_BY_NAME_LOCKED if uow.writable else _BY_NAME, {"name": name})
    return None if row is None else to_record(row)


def find_by_key(uow: UnitOfWork, queued_resource_key: str) -> QueuedResourceRecord | None:
    """Locked as by `find`."""
    row = uow.first(_BY_KEY_LOCKED if uow.writable else _BY_KEY, {"key": queued_resource_key})
    return None if row is None else to_record(row)


def of_project(uow: UnitOfWork, project: str, zone: str | None) -> list[QueuedResourceRecord]:
    """The live ones of a project, in one zone or (None) in all, by zone and id."""
    query = select(queued_resources).where(
        queued_resources.c.project == project, queued_resources.c.live_name.is_not(None)
    )
    if zone is not None:
        query = query.where(queued_resources.c.zone == zone)
    found = uow.all(query.order_by(queued_resources.c.zone, queued_resources.c.queued_resource_id))
    return [to_record(row) for row in found]


def page(
    uow: UnitOfWork, project: str, zone: str | None, query: RowQuery
) -> list[QueuedResourceRecord]:
    """The live ones of one zone, or (None) of all."""
    rows = select(queued_resources).where(
        queued_resources.c.project == project, queued_resources.c.live_name.is_not(None)
    )
    if zone is not None:
        rows = rows.where(queued_resources.c.zone == zone)
    return [to_record(row) for row in uow.all(select_page(rows, _COLUMNS, query))]


def names(uow: UnitOfWork, project: str) -> dict[str, str]:
    """The name of each of the project, by key; also of those that are gone."""
    columns = (
        queued_resources.c.queued_resource_key,
        queued_resources.c.zone,
        queued_resources.c.queued_resource_id,
    )
    found = uow.all(select(*columns).where(queued_resources.c.project == project))
    return {
        row["queued_resource_key"]: queued_resource_name(
            project, row["zone"], row["queued_resource_id"]
        )
        for row in found
    }


def not_in(
    uow: UnitOfWork, states: Sequence[QueuedResourceState], project: str | None
) -> list[QueuedResourceRecord]:
    """The live ones that are in none of the states, of a project or (None) of all."""
    query = select(queued_resources).where(
        queued_resources.c.live_name.is_not(None), queued_resources.c.state.not_in(states)
    )
    if project is not None:
        query = query.where(queued_resources.c.project == project)
    return [to_record(row) for row in uow.all(query)]


def let_in_again(uow: UnitOfWork, project: str, reasons_like: str) -> None:
    """Those that wait, and say why in words like these, wait no longer until a moment."""
    mine = update(queued_resources).where(
        queued_resources.c.project == project,
        queued_resources.c.state == QueuedResourceState.WAITING_FOR_RESOURCES,
        queued_resources.c.wait_reason.like(reasons_like),
    )
    uow.execute(mine.values(late_until=None, wait_reason=""))


def to_record(row: Mapping[str, Any]) -> QueuedResourceRecord:
    parsed = {
        "state": QueuedResourceState(row["state"]),
        "usage_class": UsageClass(row["usage_class"]),
        "spec": to_spec(row["spec"]),
    }
    return QueuedResourceRecord(**{**row, **parsed})


def to_queued_resource(uow: UnitOfWork, record: QueuedResourceRecord) -> QueuedResource:
    found = node_rows.of_queued_resource(uow, record.queued_resource_key)
    return QueuedResource(
        queued_resource_key=record.queued_resource_key,
        project=record.project,
        zone=record.zone,
        queued_resource_id=record.queued_resource_id,
        state=record.state,
        version=record.version,
        spec=record.spec,
        created=record.created,
        state_initiator=record.state_initiator,
        error_code=record.error_code,
        error_message=record.error_message,
        error_details=tuple(record.error_details),
        nodes=tuple(node.name for node in found),
        wait_reason=record.wait_reason,
    )


def freeze(uow: UnitOfWork, record: QueuedResourceRecord) -> dict[str, Any]:
    """The queued resource as JSON, for an operation's response."""
    shown = to_queued_resource(uow, record)
    return {
        **dataclasses.asdict(shown),
        "created": shown.created.nanos,
        "spec": from_queued_spec(shown.spec),
    }


def thaw(data: Mapping[str, Any]) -> QueuedResource:
    """The record that `freeze` made `data` of."""
    return QueuedResource(
        **{
            **data,
            "spec": to_spec(data["spec"]),
            "created": PlatformTime(data["created"]),
            "state": QueuedResourceState(data["state"]),
            "error_details": tuple(data["error_details"]),
            "nodes": tuple(data["nodes"]),
        }
    )


def to_spec(data: Mapping[str, Any]) -> QueuedResourceSpec:
    times = {
        name: None if data[name] is None else PlatformTime(data[name]) for name in QUEUED_SPEC_TIMES
    }
    made = tuple(
        NodeRequest(**{**node, "spec": node_rows.to_spec(node["spec"])}) for node in data["nodes"]
    )
    return QueuedResourceSpec(
        **{**data, **times, "nodes": made, "usage_class": UsageClass(data["usage_class"])}
    )
