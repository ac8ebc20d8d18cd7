"""The one writer of state.

`move` asks the machine's table, updates the row if its version is still the one that was read, and
writes the event (for a node also the usage event) in the same unit. Metering, audit, operations and
the console read those rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Column, Table, bindparam, func, select, update

from podyard.base.clock import PlatformTime
from podyard.base.ids import row_id
from podyard.db.store.records import changed_columns, columns
from podyard.db.store.unit_of_work import Stale, UnitOfWork
from podyard.db.tables import base as tables
from podyard.db.tables import billing as tables_billing
from podyard.db.tables import compute as tables_compute
from podyard.db.tables import jobs as tables_jobs
from podyard.db.tables import queue as tables_queue
from podyard.domain.agent import AGENT, AgentRecord, AgentState
from podyard.domain.attempt import ATTEMPT, Attempt, AttemptState
from podyard.domain.host_record import HOST, HostRecord, HostState
from podyard.domain.job import JOB, Job, JobState
from podyard.domain.machine import Machine
from podyard.domain.node import (
    BILLABLE_NODE_STATES,
    NODE,
    SAY_LABELS,
    TPU_NODE_VERSIONS,
    NodeRecord,
    NodeState,
    UsageClass,
)
from podyard.domain.operation import OPERATION, Operation, OperationState
from podyard.domain.queued_resource import (
    QUEUED_RESOURCE,
    QueuedResourceRecord,
    QueuedResourceState,
)
from podyard.domain.replica import REPLICA, Replica, ReplicaState
from podyard.domain.reservation import RESERVATION, Reservation, ReservationState
from podyard.domain.usage import DELETED, DONE, EXISTS, StorageResource


@dataclasses.dataclass(frozen=True, slots=True)
class Stated:
    """A kind of row that has a state: its table, key column and machine."""

    machine: Machine
    table: Table
    key: Column[str]
    naming: tuple[str, ...]


NODES = Stated(
    NODE, tables_compute.nodes, tables_compute.nodes.c.node_key, ("project", "zone", "node_id")
)
OPERATIONS = Stated(
    OPERATION,
    tables_compute.operations,
    tables_compute.operations.c.operation_id,
    ("project", "zone", "operation_id"),
)
HOSTS = Stated(HOST, tables_compute.hosts, tables_compute.hosts.c.host_id, ("host_id",))
JOBS = Stated(JOB, tables_jobs.jobs, tables_jobs.jobs.c.job_key, ("project", "zone", "job_id"))
ATTEMPTS = Stated(
    ATTEMPT, tables_jobs.attempts, tables_jobs.attempts.c.attempt_id, ("job_key", "attempt")
)
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
AGENTS = Stated(AGENT, tables_compute.agents, tables_compute.agents.c.agent_id, ("agent_id",))
# The kind and the states of each type of record.
_KINDS: Mapping[type[Any], tuple[Stated, type[StrEnum]]] = {
    AgentRecord: (AGENTS, AgentState),
    Attempt: (ATTEMPTS, AttemptState),
    HostRecord: (HOSTS, HostState),
    Job: (JOBS, JobState),
    NodeRecord: (NODES, NodeState),
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


def create_record(uow: UnitOfWork, record: Record, *, reason: str) -> None:
    """Inserts a new record, in the first state of its machine, with its first event."""
    kind, _ = _KINDS[type(record)]
    assert (record.state, record.version) == (kind.machine.initial, 1), record
    given = {name: value for name, value in columns(record).items() if value is not None}
    uow.insert(kind.table, given, by_transition=True)
    if isinstance(record, NodeRecord):
        _count(uow, record, 1)
    _record_event(uow, kind, record, "create", "", uow.now, reason)


def move(
    uow: UnitOfWork,
    record: Record,
    event: str,
    *,
    reason: str,
    changed: Record | None = None,
) -> Record:
    """Moves a record (as read) by `event` and returns it as it stands now.

    `changed` is the record with its other changes. Raises FAILED_PRECONDITION when the table has no
    such edge, `Stale` when the record has changed since it was read.
    """
    kind, states = _KINDS[type(record)]
    target = states(kind.machine.next_state(record.state, event))
    moved: Record = dataclasses.replace(
        cast(Any, changed or record), state=target, version=record.version + 1
    )
    key = str(getattr(record, kind.key.name))
    values = changed_columns(record, moved)
    if not uow.update(
        kind.table, {kind.key.name: key, "version": record.version}, values, by_transition=True
    ):
        raise Stale(kind.machine.name, key)
    if isinstance(moved, NodeRecord):
        _recount(uow, cast(Any, record), moved)
    _record_event(uow, kind, moved, event, record.state, _moment(uow, key), reason)
    return moved


def _recount(uow: UnitOfWork, before: NodeRecord, after: NodeRecord) -> None:
    """A node that is gone, or of another type."""
    if before.live_name is not None and after.live_name is None:
        _count(uow, after, -1)
    elif before.accelerator_type != after.accelerator_type:
        _count(uow, before, -1)
        _count(uow, after, 1)


def _record_event(
    uow: UnitOfWork,
    kind: Stated,
    record: Recorded,
    event: str,
    from_state: str,
    at: PlatformTime,
    reason: str,
) -> None:
    """`record`: as it stands after the event."""
    event_id = row_id(uow.streams.stream("events"), "event")
    uow.insert(
        tables.state_changes,
        {
            "event_id": event_id,
            "machine": kind.machine.name,
            "resource_key": getattr(record, kind.key.name),
            "resource_name": _resource_name(kind, record),
            "project": getattr(record, "project", ""),
            "version": record.version,
            "event": event,
            "from_state": from_state,
            "to_state": record.state.value,
            "at": at,
            "reason": reason,
            "actor": uow.actor,
        },
    )
    if isinstance(record, NodeRecord):
        more: dict[str, Any] = {"labels": record.spec.labels} if event in SAY_LABELS else {}
        if event == "create":
            more["created_by"] = record.created_by or None
            more["bills_hosts"] = record.spec.api_version in TPU_NODE_VERSIONS
        _meter(uow, record, event_id, at, more)


def _meter(
    uow: UnitOfWork, node: NodeRecord, event_id: str, at: PlatformTime, more: Mapping[str, Any]
) -> None:
    uow.insert(
        tables_billing.usage_events,
        {
            **more,
            "event_id": event_id,
            "project": node.project,
            "resource_key": node.node_key,
            "resource_name": node.name,
            "resource_seq": node.version,
            "zone": node.zone,
            "accelerator_type": node.accelerator_type,
            "usage_class": node.usage_class.value,
            "state": node.state.value,
            "billable": node.state in BILLABLE_NODE_STATES,
            "at": at,
        },
    )


def meter_size(
    uow: UnitOfWork, of: StorageResource, *, exists: bool = True, says_labels: bool = False
) -> None:
    """An event of a disk or bucket, in the unit that changes it. `says_labels`: they are others
    than before."""
    event_id = row_id(uow.streams.stream("events"), "event")
    _meter_storage(uow, of, event_id, EXISTS if exists else DELETED, says_labels)


def meter_operations(
    uow: UnitOfWork, of: StorageResource, event_id: str, *, says_labels: bool = False
) -> None:
    """An event of operations on a bucket since the one before. `says_labels`: the bucket has others
    from now on."""
    _meter_storage(uow, of, event_id, DONE, says_labels)


def _meter_storage(
    uow: UnitOfWork, of: StorageResource, event_id: str, state: str, says_labels: bool
) -> None:
    is_first = of.version == 1
    uow.insert(
        tables_billing.usage_events,
        {
            "event_id": event_id,
            "project": of.name.split("/", 2)[1],
            "resource_key": of.key,
            "resource_name": of.name,
            "resource_seq": of.version,
            "zone": of.place,
            "accelerator_type": of.type,
            "usage_class": UsageClass.ON_DEMAND.value,
            "state": state,
            "billable": state != DELETED,
            "at": uow.now,
            "labels": of.labels if is_first or says_labels else None,
            "created_by": (of.created_by or None) if is_first else None,
            "kind": of.kind.value,
            "bytes": of.bytes,
            "operations": of.operations,
        },
    )


def store(uow: UnitOfWork, record: Record, changed: Record) -> None:
    """Writes the changes of a record that keeps its state."""
    kind, _ = _KINDS[type(record)]
    uow.update(
        kind.table,
        {kind.key.name: getattr(record, kind.key.name)},
        changed_columns(record, changed),
    )


def _moment(uow: UnitOfWork, key: str) -> PlatformTime:
    """When an event is said to have happened: never before the resource's last one."""
    return max(uow.now, _last_event_at(uow, key) or uow.now)


_COUNTED = ("project", "usage_class", "zone", "accelerator_type", "topology")
_COUNT = update(tables_compute.node_counts).values(
    nodes=tables_compute.node_counts.c.nodes + bindparam("more")
)
for _name in _COUNTED:
    _COUNT = _COUNT.where(tables_compute.node_counts.c[_name] == bindparam(f"of_{_name}"))


def _count(uow: UnitOfWork, node: NodeRecord, more: int) -> None:
    """One live node more or less of its kind; those of queued resources are counted by these. Who
    makes a node holds
    the project's row, so that no two make the same first one."""
    if node.queued_resource_key is not None:
        return
    of = {**{name: getattr(node, name) for name in _COUNTED}, "usage_class": node.usage_class.value}
    done = uow.execute(
        _COUNT, {"more": more, **{f"of_{name}": value for name, value in of.items()}}
    )
    if done.rowcount == 0:
        uow.insert(tables_compute.node_counts, {**of, "nodes": more})


def _last_event_at(uow: UnitOfWork, key: str) -> PlatformTime | None:
    found: PlatformTime | None = uow.execute(_LAST_EVENT, {"key": key}).scalar()
    return found


_LAST_EVENT = select(func.max(tables.state_changes.c.at)).where(
    tables.state_changes.c.resource_key == bindparam("key")
)


def _resource_name(kind: Stated, record: Recorded) -> str:
    if isinstance(record, NodeRecord):
        return record.name  # by the road that it was asked for by
    names = [str(getattr(record, column)) for column in kind.naming]
    if len(names) == 3:
        project, zone, short = names
        return f"projects/{project}/locations/{zone}/{kind.machine.name}s/{short}"
    return "/".join(names)
