"""The one writer of state.

`born` and `move` take records; `born_row` and `move_row` take the rows of the tables that have no records yet.
`move` asks the machine's table, updates the row if its version is still the one that was read, and writes the event
(for a node also the usage event) in the same unit. Metering, audit, operations and the console read those rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Column, Table, bindparam, func, select, update

from podyard.base.clock import PlatformTime
from podyard.base.ids import row_id
from podyard.db import tables, tables_billing, tables_compute, tables_jobs, tables_queue
from podyard.db.records import changed_columns, columns
from podyard.db.unit_of_work import Stale, UnitOfWork
from podyard.domain.attempt import ATTEMPT, Attempt, AttemptState
from podyard.domain.host_record import HOST, HostRecord, HostState
from podyard.domain.job import JOB, Job, JobState
from podyard.domain.machine import Machine
from podyard.domain.node import BILLABLE_NODE_STATES, NODE, node_name
from podyard.domain.operation import OPERATION, Operation, OperationState
from podyard.domain.queued_resource import QUEUED_RESOURCE, QueuedResourceRecord, QueuedResourceState
from podyard.domain.replica import REPLICA, Replica, ReplicaState
from podyard.domain.reservation import RESERVATION, Reservation, ReservationState


@dataclasses.dataclass(frozen=True, slots=True)
class Stated:
    """A kind of row that has a state: its table, key column and machine."""

    machine: Machine
    table: Table
    key: Column[str]
    naming: tuple[str, ...]


NODES = Stated(NODE, tables_compute.nodes, tables_compute.nodes.c.node_key, ("project", "zone", "node_id"))
OPERATIONS = Stated(
    OPERATION, tables_compute.operations, tables_compute.operations.c.operation_id, ("project", "zone", "operation_id")
)
HOSTS = Stated(HOST, tables_compute.hosts, tables_compute.hosts.c.host_id, ("host_id",))
JOBS = Stated(JOB, tables_jobs.jobs, tables_jobs.jobs.c.job_key, ("project", "zone", "job_id"))
ATTEMPTS = Stated(ATTEMPT, tables_jobs.attempts, tables_jobs.attempts.c.attempt_id, ("job_key", "attempt"))
QUEUED_RESOURCES = Stated(
    QUEUED_RESOURCE,
    tables_queue.queued_resources,
    tables_queue.queued_resources.c.queued_resource_key,
    ("project", "zone", "queued_resource_id"),
)
RESERVATIONS = Stated(
    RESERVATION,
    tables_queue.reservations,
    tables_queue.reservations.c.reservation_key,
    ("project", "zone", "reservation_id"),
)
REPLICAS = Stated(REPLICA, tables_jobs.replicas, tables_jobs.replicas.c.replica_id, ("replica_id",))
# The kind and the states of each type of record.
_KINDS: Mapping[type[Any], tuple[Stated, type[StrEnum]]] = {
    Attempt: (ATTEMPTS, AttemptState),
    HostRecord: (HOSTS, HostState),
    Job: (JOBS, JobState),
    Operation: (OPERATIONS, OperationState),
    QueuedResourceRecord: (QUEUED_RESOURCES, QueuedResourceState),
    Replica: (REPLICAS, ReplicaState),
    Reservation: (RESERVATIONS, ReservationState),
}


class Recorded(Protocol):
    """A frozen dataclass whose fields are the columns of its table."""

    @property
    def state(self) -> StrEnum: ...
    @property
    def version(self) -> int: ...


Record = TypeVar("Record", bound=Recorded)


def born(uow: UnitOfWork, record: Record, *, reason: str) -> None:
    """Inserts a new record, in the first state of its machine, with its first event."""
    kind, _ = _KINDS[type(record)]
    assert (record.state, record.version) == (kind.machine.initial, 1), record
    row = columns(record)
    uow.insert(kind.table, row, by_transition=True)
    _record(uow, kind, row, "create", "", kind.machine.initial, uow.now, reason)


def move(
    uow: UnitOfWork,
    record: Record,
    event: str,
    *,
    reason: str,
    changed: Record | None = None,
) -> Record:
    """Moves a record (as read) by `event` and returns it as it stands now.

    `changed` is the record with its other changes. Raises FAILED_PRECONDITION when the table has no such edge, `Stale`
    when the record has changed since it was read.
    """
    kind, states = _KINDS[type(record)]
    target = states(kind.machine.next_state(record.state, event))
    moved: Record = dataclasses.replace(cast(Any, changed or record), state=target, version=record.version + 1)
    key = str(getattr(record, kind.key.name))
    values = changed_columns(record, moved)
    if not uow.update(kind.table, {kind.key.name: key, "version": record.version}, values, by_transition=True):
        raise Stale(kind.machine.name, key)
    _record(uow, kind, _identity(kind, moved), event, record.state, target, _moment(uow, key, None), reason)
    return moved


def _identity(kind: Stated, record: Any) -> dict[str, Any]:
    """The columns that an event is written with."""
    return {name: getattr(record, name, "") for name in ("project", "version", kind.key.name, *kind.naming)}


def store(uow: UnitOfWork, record: Record, changed: Record) -> None:
    """Writes the changes of a record that keeps its state."""
    kind, _ = _KINDS[type(record)]
    values = changed_columns(record, changed)
    if values:
        uow.update(kind.table, {kind.key.name: getattr(record, kind.key.name)}, values)


def born_row(uow: UnitOfWork, kind: Stated, values: Mapping[str, Any], *, reason: str) -> Mapping[str, Any]:
    """Inserts a row in its machine's first state, with its first event, and returns it."""
    row = {**values, "state": kind.machine.initial, "version": 1}
    uow.insert(kind.table, row, by_transition=True)
    if kind is NODES:
        _count(uow, row, 1)
    _record(uow, kind, row, "create", "", kind.machine.initial, uow.now, reason)
    return row


def move_row(
    uow: UnitOfWork,
    kind: Stated,
    row: Mapping[str, Any],
    event: str,
    *,
    at: PlatformTime | None = None,
    reason: str,
    **values: Any,
) -> Mapping[str, Any]:
    """Moves `row` (as read: with its key, state and version) by `event` and returns it as it stands now.

    `values` are further columns to set. `at` is never before the resource's last event: an earlier one is set to it.
    Raises FAILED_PRECONDITION when the table has no such edge, `Stale` when the row has changed since it was read.
    """
    target = kind.machine.next_state(row["state"], event)
    key = row[kind.key.name]
    version = row["version"]
    changed = {**values, "state": target, "version": version + 1}
    if not uow.update(kind.table, {kind.key.name: key, "version": version}, changed, by_transition=True):
        raise Stale(kind.machine.name, key)
    moved = {**row, **changed}
    if kind is NODES and row["live_name"] is not None and moved["live_name"] is None:
        _count(uow, row, -1)
    _record(uow, kind, moved, event, row["state"], target, _moment(uow, key, at), reason)
    return moved


def _moment(uow: UnitOfWork, key: str, at: PlatformTime | None) -> PlatformTime:
    """When an event is said to have happened."""
    moment = uow.now if at is None else at
    return max(moment, _last_event_at(uow, key) or moment)


_COUNTED = ("project", "usage_class", "zone", "accelerator_type", "topology")
_COUNT = update(tables_compute.node_counts).values(nodes=tables_compute.node_counts.c.nodes + bindparam("more"))
for _name in _COUNTED:
    _COUNT = _COUNT.where(tables_compute.node_counts.c[_name] == bindparam(f"of_{_name}"))


def _count(uow: UnitOfWork, row: Mapping[str, Any], more: int) -> None:
    """One live node more or less of its kind; those of queued resources are counted by these. Who makes a node holds
    the project's row, so that no two make the same first one."""
    if row.get("queued_resource_key") is not None:
        return
    done = uow.execute(_COUNT, {"more": more, **{f"of_{name}": row[name] for name in _COUNTED}})
    if done.rowcount == 0:
        uow.insert(tables_compute.node_counts, {**{name: row[name] for name in _COUNTED}, "nodes": more})


def _last_event_at(uow: UnitOfWork, key: str) -> PlatformTime | None:
    found: PlatformTime | None = uow.execute(_LAST_EVENT, {"key": key}).scalar()
    return found


_LAST_EVENT = select(func.max(tables.state_changes.c.at)).where(tables.state_changes.c.resource_key == bindparam("key"))


def _record(
    uow: UnitOfWork,
    kind: Stated,
    row: Mapping[str, Any],
    event: str,
    from_state: str,
    to_state: str,
    at: PlatformTime,
    reason: str,
) -> None:
    event_id = row_id(uow.streams.stream("events"), "event")
    key = row[kind.key.name]
    name = _resource_name(kind, row)
    uow.insert(
        tables.state_changes,
        {
            "event_id": event_id,
            "machine": kind.machine.name,
            "resource_key": key,
            "resource_name": name,
            "project": row.get("project", ""),
            "version": row["version"],
            "event": event,
            "from_state": from_state,
            "to_state": to_state,
            "at": at,
            "reason": reason,
            "actor": uow.actor,
        },
    )
    if kind is NODES:
        uow.insert(
            tables_billing.usage_events,
            {
                "event_id": event_id,
                "project": row["project"],
                "resource_key": key,
                "resource_name": name,
                "resource_seq": row["version"],
                "zone": row["zone"],
                "accelerator_type": row["accelerator_type"],
                "usage_class": row["usage_class"],
                "state": to_state,
                "billable": to_state in BILLABLE_NODE_STATES,
                "at": at,
            },
        )


def _resource_name(kind: Stated, row: Mapping[str, Any]) -> str:
    if kind is NODES:
        return node_name(row["project"], row["zone"], row["node_id"])
    if len(kind.naming) == 3:
        project, zone, short = (row[column] for column in kind.naming)
        return f"projects/{project}/locations/{zone}/{kind.machine.name}s/{short}"
    return "/".join(str(row[column]) for column in kind.naming)
