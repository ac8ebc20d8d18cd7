"""Contents (podyard/base/contents.py) that a row names: the sweep leaves them alone."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.jobs import job_files
from podyard.db.tables.storage import objects

# Each column that names a content. It needs an index.
_NAMED_BY = (objects.c.digest, job_files.c.digest)


def digests_in_use(uow: UnitOfWork, digests: Sequence[str]) -> set[str]:
    """Return which of the digests a row names."""
    return {
        row["digest"]
        for column in _NAMED_BY
        for row in uow.all(select(column.label("digest")).where(column.in_(digests)).distinct())
    }


def all_in_use(uow: UnitOfWork) -> set[str]:
    """Every digest that a row names."""
    return {
        row["digest"]
        for column in _NAMED_BY
        for row in uow.all(select(column.label("digest")).distinct())
    }
