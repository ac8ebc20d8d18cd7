"""The audit log, as records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sqlalchemy import delete, insert, or_, select

from podyard.base.clock import RealTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import audit_log
from podyard.domain.audit import AuditLine

PRUNED_MAX = 10_000  # lines that one unit removes: more would hold the write lock for too long

_COLUMNS = [audit_log.c[field.name] for field in dataclasses.fields(AuditLine)]


def add(uow: UnitOfWork, lines: Sequence[AuditLine]) -> None:
    rows = [
        {name: value for name, value in dataclasses.asdict(line).items() if name != "seq"}
        for line in lines
    ]
    for row, line in zip(rows, lines, strict=True):
        row["at"] = line.at  # asdict takes apart what it finds
    uow.execute(insert(audit_log), rows)


def newest(
    uow: UnitOfWork, *, actor: str | None, refused: bool, before: int | None, most: int
) -> list[AuditLine]:
    """The newest first. `before`: only those with a smaller number. `refused`: only refusals."""
    found = select(*_COLUMNS).order_by(audit_log.c.seq.desc()).limit(most)
    if actor is not None:
        found = found.where(audit_log.c.actor == actor)
    if refused:
        found = found.where(audit_log.c.status.in_((401, 403, 429)))
    if before is not None:
        found = found.where(audit_log.c.seq < before)
    return [AuditLine(**row) for row in uow.all(found)]


def of_project(
    uow: UnitOfWork,
    project: str,
    since: RealTime | None,
    until: RealTime | None,
    most: int,
    *,
    newest_first: bool,
) -> list[AuditLine]:
    """Lines whose paths name the project, in the order of their times, both ends included."""
    path = audit_log.c.path
    name = f"/projects/{project}"
    named = or_(
        path.contains(f"{name}/", autoescape=True),
        path.contains(f"{name}:", autoescape=True),
        path.endswith(name, autoescape=True),
    )
    query = select(*_COLUMNS).where(named)
    if since is not None:
        query = query.where(audit_log.c.at >= since)
    if until is not None:
        query = query.where(audit_log.c.at <= until)
    order = (audit_log.c.at, audit_log.c.seq)
    query = query.order_by(*(column.desc() for column in order) if newest_first else order)
    return [AuditLine(**row) for row in uow.all(query.limit(most))]


def prune(uow: UnitOfWork, until: RealTime) -> int:
    """Removes lines of before `until`, at most `PRUNED_MAX`; returns how many."""
    old = (
        select(audit_log.c.seq)
        .where(audit_log.c.at < until)
        .order_by(audit_log.c.seq)
        .limit(PRUNED_MAX)
    )
    return int(uow.execute(delete(audit_log).where(audit_log.c.seq.in_(old))).rowcount)
