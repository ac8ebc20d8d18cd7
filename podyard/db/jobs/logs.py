"""The index of jobs' logs: which chunk of lines is where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, select

from podyard.base.clock import PlatformTime
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.jobs import log_chunks, replicas
from podyard.domain.log import LogChunk

_c = log_chunks.c
_NEWEST = (
    select(log_chunks).where(_c.replica_id == bindparam("replica")).order_by(_c.seq.desc()).limit(1)
)
_RANKS = (
    select(replicas.c.rank)
    .where(replicas.c.job_key == bindparam("job_key"))
    .distinct()
    .order_by(replicas.c.rank)
)
_WORKERS = (
    select(_c.attempt, _c.rank)
    .where(_c.job_key == bindparam("job_key"))
    .distinct()
    .order_by(_c.attempt, _c.rank)
)
_OF_WORKER = select(log_chunks).where(
    _c.job_key == bindparam("job_key"),
    _c.attempt == bindparam("attempt"),
    _c.rank == bindparam("rank"),
)
_FROM = (
    _OF_WORKER.where(_c.seq + _c.lines > bindparam("first"))
    .order_by(_c.seq)
    .limit(bindparam("most"))
)
_BEFORE = (
    _OF_WORKER.where(_c.seq < bindparam("before")).order_by(_c.seq.desc()).limit(bindparam("most"))
)
_AT = (
    _OF_WORKER.where(_c.last_at >= bindparam("at", type_=_c.last_at.type)).order_by(_c.seq).limit(1)
)
_SAID = select(log_chunks).where(
    _c.job_key == bindparam("job_key"), _c.attempt == bindparam("attempt"), _c.text.is_not(None)
)


def newest(uow: UnitOfWork, replica_id: str) -> LogChunk | None:
    """A replica's newest chunk."""
    row = uow.first(_NEWEST, {"replica": replica_id})
    return None if row is None else LogChunk(**row)


def add(uow: UnitOfWork, chunk: LogChunk) -> None:
    uow.insert(log_chunks, columns(chunk))


def remove_until(uow: UnitOfWork, replica_id: str, segment: int) -> Sequence[LogChunk]:
    """Removes a replica's chunks of this segment and of those before it; returns them."""
    old = (_c.replica_id == replica_id, _c.segment <= segment)
    found = [LogChunk(**row) for row in uow.all(select(log_chunks).where(*old).order_by(_c.seq))]
    uow.execute(delete(log_chunks).where(*old))
    return found


def chunks_from(
    uow: UnitOfWork, job_key: str, attempt: int, rank: int, first: int, most: int
) -> list[LogChunk]:
    """Those of a worker that have lines from number `first` on, in order."""
    values = {"job_key": job_key, "attempt": attempt, "rank": rank, "first": first, "most": most}
    return [LogChunk(**row) for row in uow.all(_FROM, values)]


def chunks_before(
    uow: UnitOfWork, job_key: str, attempt: int, rank: int, before: int, most: int
) -> list[LogChunk]:
    """Those of a worker that begin before a line, the newest first."""
    values = {"job_key": job_key, "attempt": attempt, "rank": rank, "before": before, "most": most}
    return [LogChunk(**row) for row in uow.all(_BEFORE, values)]


def chunk_at(
    uow: UnitOfWork, job_key: str, attempt: int, rank: int, at: PlatformTime
) -> LogChunk | None:
    """The first one of a worker that has not ended before a time."""
    row = uow.first(_AT, {"job_key": job_key, "attempt": attempt, "rank": rank, "at": at})
    return None if row is None else LogChunk(**row)


def said_by_platform(uow: UnitOfWork, job_key: str, attempt: int) -> list[LogChunk]:
    """Return what Podyard has added to the logs of an attempt."""
    return [LogChunk(**row) for row in uow.all(_SAID, {"job_key": job_key, "attempt": attempt})]


def workers_of(uow: UnitOfWork, job_key: str) -> dict[int, list[int]]:
    """By attempt: the ranks that have written anything."""
    found: dict[int, list[int]] = {}
    for row in uow.all(_WORKERS, {"job_key": job_key}):
        found.setdefault(row["attempt"], []).append(row["rank"])
    return found


def line_count(uow: UnitOfWork, job_key: str, rank: int | None) -> int:
    query: Select[Any] = select(func.sum(_c.lines)).where(_c.job_key == job_key)
    return int(uow.execute(query if rank is None else query.where(_c.rank == rank)).scalar() or 0)


def ranks_of(uow: UnitOfWork, job_key: str) -> list[int]:
    """The ranks that replicas of the job had."""
    return [row["rank"] for row in uow.all(_RANKS, {"job_key": job_key})]
