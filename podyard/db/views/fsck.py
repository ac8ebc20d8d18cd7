"""Everything that the invariants are checked against, read in one snapshot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, Table, bindparam, or_, select

from podyard.base.clock import PlatformTime
from podyard.db.billing.usage_events import AS_EVENT
from podyard.db.compute import hosts, quotas, reservations, slices
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import operations as operation_rows
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.compute.quotas import NodeKind
from podyard.db.jobs import slices as job_slices
from podyard.db.jobs.attempts import to_attempt
from podyard.db.jobs.jobs import to_job
from podyard.db.jobs.replicas import to_replica
from podyard.db.platform import faults as fault_rows
from podyard.db.platform import state_changes
from podyard.db.store import request_ids, timers
from podyard.db.store.request_ids import Request
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables import base as tables
from podyard.db.tables import billing as tables_billing
from podyard.db.tables import compute as tables_compute
from podyard.db.tables import jobs as tables_jobs
from podyard.db.tables import queue as tables_queue
from podyard.domain.attempt import Attempt
from podyard.domain.host_record import HostRecord
from podyard.domain.job import ACTIVE_JOB_STATES, Job
from podyard.domain.node import NodeRecord
from podyard.domain.operation import Operation, OperationState
from podyard.domain.queued_resource import QueuedResourceRecord
from podyard.domain.replica import Replica
from podyard.domain.slice import PlacedSlice
from podyard.domain.state_change import StateChange
from podyard.domain.usage import UsageEvent


@dataclasses.dataclass(frozen=True, slots=True)
class Records:
    """Records by table. Of what has a history, those that changed after the event `after_seq`, and
    all that live."""

    now: PlatformTime
    after_seq: int
    last_seq: int
    changes: Sequence[StateChange]  # of the resources that changed, from their beginning, in order
    usage: Sequence[UsageEvent]
    # the projects of the disks, buckets and operations that events are of, by key
    stored: Mapping[str, str]
    nodes: Mapping[str, NodeRecord]
    slices: Sequence[PlacedSlice]
    hosts: Sequence[HostRecord]
    operations: Mapping[str, Operation]
    counts: Mapping[NodeKind, int]
    timers: Sequence[Timer]
    queued: Mapping[str, QueuedResourceRecord]
    reservations: frozenset[str]  # the keys of all
    jobs: Mapping[str, Job]
    attempts: Mapping[str, Attempt]
    replicas: Sequence[Replica]
    steps: Mapping[tuple[str, int], Sequence[int]]  # by job and attempt: those that were reported
    requests: Sequence[Request]
    broken: Mapping[str, int]  # bit set of chips by pod
    further: Mapping[str, Sequence[str]]  # by job, the node keys of its slices after the first

    def node_keys_of(self, job: Job) -> list[str]:
        return [job.node_key, *self.further.get(job.job_key, ())]


def load(uow: UnitOfWork, after_seq: int = 0) -> Records:
    """`after_seq` 0: everything there is."""
    queries, after = _queries(after_seq == 0), {"after": after_seq} if after_seq else None

    def read(name: str) -> list[Mapping[str, Any]]:
        return uow.all(queries[name], after if name in _WITH_HISTORY else None)

    jobs = {row["job_key"]: to_job(row) for row in read("jobs")}
    of_jobs = {"jobs": sorted(jobs)} if after_seq else {}

    def of_job(name: str) -> list[Mapping[str, Any]]:
        return uow.all(queries[name], of_jobs or None)

    steps: dict[tuple[str, int], list[int]] = {}
    for row in of_job("metrics"):
        steps.setdefault((row["job_key"], row["attempt"]), []).append(row["step"])
    return Records(
        now=uow.now,
        after_seq=after_seq,
        last_seq=state_changes.last_seq(uow),
        changes=[StateChange(**row) for row in read("changes")],
        usage=[UsageEvent(*row.values()) for row in read("usage")],
        stored={row["resource_key"]: row["project"] for row in read("stored")},
        nodes={row["node_key"]: node_rows.to_record(row) for row in read("nodes")},
        slices=slices.list_all(uow),
        hosts=hosts.list_all(uow),
        operations={
            row["operation_id"]: operation_rows.to_operation(row) for row in read("operations")
        },
        counts=quotas.node_counts_kept(uow),
        timers=timers.list_all(uow),
        queued={row["queued_resource_key"]: queue_rows.to_record(row) for row in read("queued")},
        reservations=reservations.keys(uow),
        jobs=jobs,
        attempts={row["attempt_id"]: to_attempt(row) for row in of_job("attempts")},
        replicas=[to_replica(row) for row in of_job("replicas")],
        steps=steps,
        requests=request_ids.list_all(uow),
        broken=fault_rows.broken_chips_by_pod(uow),
        further=job_slices.keys_after_first(uow),
    )


_WITH_HISTORY = frozenset({"jobs", "changes", "usage", "stored", "nodes", "operations", "queued"})


@cache
def _queries(everything: bool) -> Mapping[str, Select[Any]]:
    """By name. Unless for `everything`, those of `_WITH_HISTORY` take `after`, and those of jobs
    take `jobs`."""
    c, j, q = tables_compute, tables_jobs, tables_queue
    changes, usage, queued = tables.state_changes, tables_billing.usage_events.c, q.queued_resources
    newer = select(changes.c.resource_key).where(changes.c.seq > bindparam("after")).distinct()

    def with_changes(query: Select[Any], key: Any, *live: Any) -> Select[Any]:
        """All rows; or those that changed, and those that live."""
        return query if everything else query.where(or_(key.in_(newer), *live))

    def of_job(table: Table, *order: Any) -> Select[Any]:
        some = table.c.job_key.in_(bindparam("jobs", expanding=True))
        return (select(table) if everything else select(table).where(some)).order_by(*order)

    events = select(*AS_EVENT)
    stored = select(usage.resource_key, usage.project).where(usage.kind.is_not(None)).distinct()
    return {
        "stored": with_changes(stored, usage.resource_key),
        "changes": with_changes(select(changes), changes.c.resource_key).order_by(
            changes.c.resource_key, changes.c.seq
        ),
        "usage": with_changes(events, usage.resource_key).order_by(usage.seq),
        "nodes": with_changes(
            select(c.nodes), c.nodes.c.node_key, c.nodes.c.live_name.is_not(None)
        ).order_by(c.nodes.c.node_key),
        "operations": with_changes(
            select(c.operations),
            c.operations.c.operation_id,
            c.operations.c.state == OperationState.RUNNING,
        ).order_by(c.operations.c.operation_id),
        "queued": with_changes(
            select(queued), queued.c.queued_resource_key, queued.c.live_name.is_not(None)
        ).order_by(queued.c.queued_resource_key),
        "jobs": with_changes(
            select(j.jobs), j.jobs.c.job_key, j.jobs.c.state.in_(ACTIVE_JOB_STATES)
        ).order_by(j.jobs.c.job_key),
        "attempts": of_job(j.attempts, j.attempts.c.job_key, j.attempts.c.attempt),
        "replicas": of_job(j.replicas, j.replicas.c.attempt_id, j.replicas.c.rank),
        "metrics": of_job(j.job_metrics, *j.job_metrics.primary_key.columns),
    }
