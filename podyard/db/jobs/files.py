"""The contents that jobs have pinned: they are kept for as long as there is the job."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.jobs import job_files

_ONE = select(job_files.c.digest).where(
    job_files.c.job_key == bindparam("key"), job_files.c.digest == bindparam("digest")
)


def add(uow: UnitOfWork, job_key: str, digests: Sequence[str]) -> None:
    for digest in digests:
        uow.insert(job_files, {"job_key": job_key, "digest": digest})


def has(uow: UnitOfWork, job_key: str, digest: str) -> bool:
    return uow.execute(_ONE, {"key": job_key, "digest": digest}).first() is not None
