"""Lines of jobs' logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, bindparam, func, insert, select

from podyard.base.clock import PlatformTime
from podyard.db.tables_jobs import job_logs, replicas
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.job_history import LogLine
from podyard.domain.replica import Replica

_NEWEST = (
    select(job_logs.c.seq, job_logs.c.at)
    .where(job_logs.c.replica_id == bindparam("replica"))
    .order_by(job_logs.c.seq.desc())
    .limit(1)
)
_RANKS = select(replicas.c.rank).where(replicas.c.job_key == bindparam("job_key")).distinct().order_by(replicas.c.rank)


def newest(uow: UnitOfWork, replica_id: str) -> tuple[int, PlatformTime] | None:
    """Number and time of a replica's newest line."""
    row = uow.first(_NEWEST, {"replica": replica_id})
    return None if row is None else (row["seq"], row["at"])


def add(uow: UnitOfWork, replica: Replica, lines: Sequence[tuple[int, PlatformTime, str]]) -> None:
    """`lines`: number, time, text."""
    owner = {"replica_id": replica.replica_id, "job_key": replica.job_key}
    rows = [{**owner, "seq": seq, "at": at, "line": line} for seq, at, line in lines]
    if rows:
        uow.execute(insert(job_logs), rows)


def lines_of(uow: UnitOfWork, job_key: str, rank: int | None, after: int, limit: int) -> list[LogLine]:
    """In the order of their time, `after` many left out, of one rank or (None) of all."""
    columns = (job_logs.c.at, replicas.c.rank, replicas.c.fence.label("attempt"), job_logs.c.seq, job_logs.c.line)
    query = _of_job(select(*columns), job_key, rank).order_by(job_logs.c.at, replicas.c.rank, job_logs.c.seq)
    return [LogLine(**row) for row in uow.all(query.offset(after).limit(limit))]


def line_count(uow: UnitOfWork, job_key: str, rank: int | None) -> int:
    return int(uow.execute(_of_job(select(func.count()), job_key, rank)).scalar() or 0)


def ranks_of(uow: UnitOfWork, job_key: str) -> list[int]:
    """The ranks that replicas of the job had."""
    return [row["rank"] for row in uow.all(_RANKS, {"job_key": job_key})]


def _of_job(query: Select[Any], job_key: str, rank: int | None) -> Select[Any]:
    joined = query.select_from(job_logs.join(replicas, replicas.c.replica_id == job_logs.c.replica_id))
    joined = joined.where(job_logs.c.job_key == job_key)
    return joined if rank is None else joined.where(replicas.c.rank == rank)
