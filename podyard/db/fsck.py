"""Everything that the invariants are checked against, read in one snapshot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, Table, func, or_, select

from podyard.base.clock import PlatformTime
from podyard.db import faults as fault_rows
from podyard.db import tables, tables_access, tables_billing, tables_compute, tables_jobs, tables_queue
from podyard.db.jobs import ACTIVE_JOB_STATES
from podyard.db.types import RealTimeColumn
from podyard.db.unit_of_work import UnitOfWork

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Records:
    """Rows by table. Of what has a history, those that changed after the event `after_seq`, and all that live."""

    now: PlatformTime
    after_seq: int
    last_seq: int
    changes: Sequence[Row]  # of the resources that changed, from their beginning, in order
    usage: Sequence[Row]
    nodes: Mapping[str, Row]
    slices: Sequence[Row]
    hosts: Sequence[Row]
    operations: Mapping[str, Row]
    counts: Sequence[Row]
    timers: Sequence[Row]
    queued: Mapping[str, Row]
    reservations: Mapping[str, Row]
    jobs: Mapping[str, Row]
    attempts: Mapping[str, Row]
    replicas: Sequence[Row]
    metrics: Sequence[Row]
    requests: Sequence[Row]
    broken: Mapping[str, int]  # bit set of chips by pod


def load(uow: UnitOfWork, after_seq: int = 0) -> Records:
    """`after_seq` 0: everything there is."""
    t, c, j, q = tables, tables_compute, tables_jobs, tables_queue
    newer = select(t.state_changes.c.resource_key).where(t.state_changes.c.seq > after_seq).distinct()

    def touched(table: Table, key: Any, *live: Any) -> Select[Any]:
        """All rows; or those that changed, and those that live."""
        return _plain(table) if after_seq == 0 else _plain(table).where(or_(key.in_(newer), *live))

    def by(key: str, query: Select[Any]) -> dict[str, Row]:
        return {row[key]: row for row in uow.all(query)}

    jobs = by(
        "job_key", touched(j.jobs, j.jobs.c.job_key, j.jobs.c.state.in_(ACTIVE_JOB_STATES)).order_by(j.jobs.c.job_key)
    )
    of_jobs = () if after_seq == 0 else sorted(jobs)

    def of_job(table: Table) -> Select[Any]:
        return _plain(table) if after_seq == 0 else _plain(table).where(table.c.job_key.in_(of_jobs))

    nodes = touched(c.nodes, c.nodes.c.node_key, c.nodes.c.live_name.is_not(None))
    changes = touched(t.state_changes, t.state_changes.c.resource_key)
    usage = touched(tables_billing.usage_events, tables_billing.usage_events.c.resource_key)
    operations = touched(c.operations, c.operations.c.operation_id, c.operations.c.state == "RUNNING")
    queued = touched(
        q.queued_resources, q.queued_resources.c.queued_resource_key, q.queued_resources.c.live_name.is_not(None)
    )
    return Records(
        now=uow.now,
        after_seq=after_seq,
        last_seq=int(uow.execute(select(func.max(t.state_changes.c.seq))).scalar() or 0),
        changes=uow.all(changes.order_by(t.state_changes.c.resource_key, t.state_changes.c.seq)),
        usage=uow.all(usage.order_by(tables_billing.usage_events.c.seq)),
        nodes=by("node_key", nodes.order_by(c.nodes.c.node_key)),
        slices=uow.all(_plain(c.slices).order_by(c.slices.c.slice_id)),
        hosts=uow.all(_plain(c.hosts).order_by(c.hosts.c.host_id)),
        operations=by("operation_id", operations.order_by(c.operations.c.operation_id)),
        counts=uow.all(_plain(c.node_counts).order_by(*c.node_counts.primary_key.columns)),
        timers=uow.all(_plain(t.timers).order_by(t.timers.c.timer_id)),
        queued=by("queued_resource_key", queued.order_by(q.queued_resources.c.queued_resource_key)),
        reservations=by("reservation_key", _plain(q.reservations).order_by(q.reservations.c.reservation_key)),
        jobs=jobs,
        attempts=by("attempt_id", of_job(j.attempts).order_by(j.attempts.c.job_key, j.attempts.c.attempt)),
        replicas=uow.all(of_job(j.replicas).order_by(j.replicas.c.attempt_id, j.replicas.c.rank)),
        metrics=uow.all(of_job(j.job_metrics).order_by(*j.job_metrics.primary_key.columns)),
        requests=uow.all(_plain(tables_access.request_ids).order_by(*tables_access.request_ids.primary_key.columns)),
        broken=fault_rows.broken(uow),
    )


def _plain(table: Table) -> Select[Any]:
    """All columns but those of real time, which say nothing of what has happened."""
    return select(*(column for column in table.columns if not isinstance(column.type, RealTimeColumn)))
