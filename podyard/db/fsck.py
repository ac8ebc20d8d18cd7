"""Everything that the invariants are checked against, read in one snapshot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, Table, bindparam, func, or_, select

from podyard.base.clock import PlatformTime
from podyard.db import faults as fault_rows
from podyard.db import nodes as node_rows
from podyard.db import operations as operation_rows
from podyard.db import slices, tables, tables_access, tables_billing, tables_compute, tables_jobs, tables_queue
from podyard.db.attempts import to_attempt
from podyard.db.jobs import to_job
from podyard.db.replicas import to_replica
from podyard.db.types import RealTimeColumn
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.attempt import Attempt
from podyard.domain.job import ACTIVE_JOB_STATES, Job
from podyard.domain.node import NodeRecord
from podyard.domain.operation import Operation
from podyard.domain.replica import Replica
from podyard.domain.slice import PlacedSlice

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Records:
    """Rows by table. Of what has a history, those that changed after the event `after_seq`, and all that live."""

    now: PlatformTime
    after_seq: int
    last_seq: int
    changes: Sequence[Row]  # of the resources that changed, from their beginning, in order
    usage: Sequence[Row]
    nodes: Mapping[str, NodeRecord]
    slices: Sequence[PlacedSlice]
    hosts: Sequence[Row]
    operations: Mapping[str, Operation]
    counts: Sequence[Row]
    timers: Sequence[Row]
    queued: Mapping[str, Row]
    reservations: Mapping[str, Row]
    jobs: Mapping[str, Job]
    attempts: Mapping[str, Attempt]
    replicas: Sequence[Replica]
    steps: Mapping[tuple[str, int], Sequence[int]]  # by job and attempt: those that were reported
    requests: Sequence[Row]
    broken: Mapping[str, int]  # bit set of chips by pod


def load(uow: UnitOfWork, after_seq: int = 0) -> Records:
    """`after_seq` 0: everything there is."""
    queries, after = _queries(after_seq == 0), {"after": after_seq} if after_seq else None

    def read(name: str) -> list[Row]:
        return uow.all(queries[name], after if name in _WITH_HISTORY else None)

    jobs = {row["job_key"]: to_job(row) for row in read("jobs")}
    of_jobs = {"jobs": sorted(jobs)} if after_seq else {}

    def of_job(name: str) -> list[Row]:
        return uow.all(queries[name], of_jobs or None)

    steps: dict[tuple[str, int], list[int]] = {}
    for row in of_job("metrics"):
        steps.setdefault((row["job_key"], row["attempt"]), []).append(row["step"])
    return Records(
        now=uow.now,
        after_seq=after_seq,
        last_seq=int(uow.execute(_LAST_SEQ).scalar() or 0),
        changes=read("changes"),
        usage=read("usage"),
        nodes={row["node_key"]: node_rows.to_record(row) for row in read("nodes")},
        slices=slices.all_of_them(uow),
        hosts=read("hosts"),
        operations={row["operation_id"]: operation_rows.to_operation(row) for row in read("operations")},
        counts=read("counts"),
        timers=read("timers"),
        queued={row["queued_resource_key"]: row for row in read("queued")},
        reservations={row["reservation_key"]: row for row in read("reservations")},
        jobs=jobs,
        attempts={row["attempt_id"]: to_attempt(row) for row in of_job("attempts")},
        replicas=[to_replica(row) for row in of_job("replicas")],
        steps=steps,
        requests=read("requests"),
        broken=fault_rows.broken(uow),
    )


_LAST_SEQ = select(func.max(tables.state_changes.c.seq))
_WITH_HISTORY = frozenset({"jobs", "changes", "usage", "nodes", "operations", "queued"})


@cache
def _queries(everything: bool) -> Mapping[str, Select[Any]]:
    """By name. Unless for `everything`, those of `_WITH_HISTORY` take `after`, and those of jobs take `jobs`."""
    t, c, j, q = tables, tables_compute, tables_jobs, tables_queue
    newer = select(t.state_changes.c.resource_key).where(t.state_changes.c.seq > bindparam("after")).distinct()

    def touched(table: Table, key: Any, *live: Any) -> Select[Any]:
        """All rows; or those that changed, and those that live."""
        return _plain(table) if everything else _plain(table).where(or_(key.in_(newer), *live))

    def of_job(table: Table) -> Select[Any]:
        some = table.c.job_key.in_(bindparam("jobs", expanding=True))
        return select(table) if everything else select(table).where(some)

    def ordered(query: Select[Any], *columns: Any) -> Select[Any]:
        return query.order_by(*columns)

    changes, usage = t.state_changes.c, tables_billing.usage_events.c
    queued, reservations = q.queued_resources.c, q.reservations.c
    requests, counts = tables_access.request_ids, c.node_counts
    return {
        "changes": ordered(touched(t.state_changes, changes.resource_key), changes.resource_key, changes.seq),
        "usage": ordered(touched(tables_billing.usage_events, usage.resource_key), usage.seq),
        "nodes": ordered(touched(c.nodes, c.nodes.c.node_key, c.nodes.c.live_name.is_not(None)), c.nodes.c.node_key),
        "hosts": ordered(_plain(c.hosts), c.hosts.c.host_id),
        "operations": ordered(
            touched(c.operations, c.operations.c.operation_id, c.operations.c.state == "RUNNING"),
            c.operations.c.operation_id,
        ),
        "counts": ordered(_plain(counts), *counts.primary_key.columns),
        "timers": ordered(_plain(t.timers), t.timers.c.timer_id),
        "queued": ordered(
            touched(q.queued_resources, queued.queued_resource_key, queued.live_name.is_not(None)),
            queued.queued_resource_key,
        ),
        "reservations": ordered(_plain(q.reservations), reservations.reservation_key),
        "jobs": ordered(touched(j.jobs, j.jobs.c.job_key, j.jobs.c.state.in_(ACTIVE_JOB_STATES)), j.jobs.c.job_key),
        "attempts": ordered(of_job(j.attempts), j.attempts.c.job_key, j.attempts.c.attempt),
        "replicas": ordered(of_job(j.replicas), j.replicas.c.attempt_id, j.replicas.c.rank),
        "metrics": ordered(of_job(j.job_metrics), *j.job_metrics.primary_key.columns),
        "requests": ordered(_plain(requests), *requests.primary_key.columns),
    }


def _plain(table: Table) -> Select[Any]:
    """All columns but those of real time, which say nothing of what has happened."""
    return select(*(column for column in table.columns if not isinstance(column.type, RealTimeColumn)))
