"""Log entries that programs have written, as records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, false, func, insert, or_, select, true

from podyard.base.clock import RealTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import log_entries
from podyard.domain.observed.log_entry import EntryOrder, LogEntry

_COLUMNS = [log_entries.c[field.name] for field in dataclasses.fields(LogEntry)]


def add(uow: UnitOfWork, entries: Sequence[LogEntry]) -> None:
    names = [field.name for field in dataclasses.fields(LogEntry) if field.name != "seq"]
    rows = [{name: getattr(entry, name) for name in names} for entry in entries]
    uow.execute(insert(log_entries), rows)


def prune(uow: UnitOfWork, project: str, most: int) -> None:
    """Removes the oldest entries of a project beyond so many."""
    count = int(
        uow.execute(select(func.count()).where(log_entries.c.project == project)).scalar() or 0
    )
    if count > most:
        oldest = (
            select(log_entries.c.seq)
            .where(log_entries.c.project == project)
            .order_by(log_entries.c.at, log_entries.c.seq)
            .limit(count - most)
        )
        uow.execute(delete(log_entries).where(log_entries.c.seq.in_(oldest)))


def of_project(
    uow: UnitOfWork,
    project: str,
    span: tuple[RealTime | None, RealTime | None],
    after: EntryOrder | None,
    most: int,
    *,
    newest_first: bool,
) -> list[LogEntry]:
    """Entries of a time, both ends included, in the order of their times, behind a place."""
    table = log_entries.c
    since, until = span
    query: Any = select(*_COLUMNS).where(table.project == project)
    if since is not None:
        query = query.where(table.at >= since)
    if until is not None:
        query = query.where(table.at <= until)
    if after is not None:
        query = query.where(_behind(after, newest_first=newest_first))
    order = [table.at, table.seq]
    query = query.order_by(*(column.desc() for column in order) if newest_first else order)
    return [LogEntry(**row) for row in uow.all(query.limit(most))]


def _behind(after: EntryOrder, *, newest_first: bool) -> ColumnElement[bool]:
    """Of the moment of `after`, what was written comes before everything else."""
    table, at, seq = log_entries.c, RealTime(after.nanos), after.seq
    if newest_first:
        rest = true() if seq is None else table.seq < seq
        return or_(table.at < at, and_(table.at == at, rest))
    rest = false() if seq is None else table.seq > seq
    return or_(table.at > at, and_(table.at == at, rest))


def log_ids(uow: UnitOfWork, project: str) -> list[str]:
    query = select(log_entries.c.log_id).where(log_entries.c.project == project).distinct()
    return sorted(row["log_id"] for row in uow.all(query))


def stored_ids(uow: UnitOfWork, project: str, insert_ids: Sequence[str]) -> set[tuple[int, str]]:
    """Those of some insert ids that are there, with their times."""
    table = log_entries.c
    query = select(table.at, table.insert_id).where(
        table.project == project, table.insert_id.in_(insert_ids)
    )
    return {(row["at"].nanos, row["insert_id"]) for row in uow.all(query)}
