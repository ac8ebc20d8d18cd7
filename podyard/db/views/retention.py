"""Rows that nobody needs after a while: finished operations with their history, and lines of jobs
that have ended.

What bills are made of is never removed: events of nodes, usage, ledger and invoices.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select

from podyard.base.clock import PlatformTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.db.tables.compute import operations, past_slices
from podyard.db.tables.jobs import jobs, log_chunks

# operations or jobs of one unit: it holds SQLite's only writer for some milliseconds
BATCH_MAX = 200


def remove_operations(uow: UnitOfWork, before: PlatformTime) -> int:
    """Removes the oldest operations that ended before a moment, with their history; returns how
    many."""
    old = (
        select(operations.c.operation_id)
        .where(operations.c.ended < before)
        .order_by(operations.c.created)
    )
    keys = list(uow.execute(old.limit(BATCH_MAX).with_for_update(skip_locked=True)).scalars())
    if keys:
        uow.execute(delete(state_changes).where(state_changes.c.resource_key.in_(keys)))
        uow.execute(delete(operations).where(operations.c.operation_id.in_(keys)))
    return len(keys)


def remove_past_slices(uow: UnitOfWork, before: PlatformTime) -> int:
    """Removes slices that were given back before a moment; returns how many."""
    old = (
        select(past_slices.c.slice_id)
        .where(past_slices.c.released < before)
        .order_by(past_slices.c.released)
    )
    keys = list(uow.execute(old.limit(BATCH_MAX)).scalars())
    if keys:
        uow.execute(delete(past_slices).where(past_slices.c.slice_id.in_(keys)))
    return len(keys)


def remove_logs(uow: UnitOfWork, before: PlatformTime) -> Sequence[str]:
    """Removes the lines of jobs that ended before a moment; returns the keys of these jobs, whose
    files may go."""
    has_lines = select(log_chunks.c.job_key).where(log_chunks.c.job_key == jobs.c.job_key).exists()
    old = (
        select(jobs.c.job_key)
        .where(jobs.c.ended < before, has_lines)
        .order_by(jobs.c.ended)
        .limit(BATCH_MAX)
    )
    keys = list(uow.execute(old).scalars())
    if keys:
        uow.execute(delete(log_chunks).where(log_chunks.c.job_key.in_(keys)))
    return keys
