"""Exports, as records."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from podyard.db.store.claims import Claims
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.exports import exports
from podyard.domain.export import Export

_BY_KEY = select(exports).where(exports.c.export_id == bindparam("id"))
_ONE = _BY_KEY.where(exports.c.project == bindparam("project"))
_OF_PROJECT = (
    select(exports)
    .where(exports.c.project == bindparam("project"))
    .order_by(exports.c.created.desc(), exports.c.export_id)
)
_LEFT = select(exports.c.export_id).where(exports.c.next_try.is_not(None)).limit(1)
_REMOVE = delete(exports).where(exports.c.export_id == bindparam("id"))


def claims(task: str, seconds: float) -> Claims[Export]:
    return Claims(exports, Export, task, seconds)


def is_any_left(uow: UnitOfWork) -> bool:
    """Return whether one is still to be made."""
    return uow.first(_LEFT) is not None


def find(uow: UnitOfWork, project: str, export_id: str) -> Export | None:
    row = uow.first(_ONE, {"project": project, "id": export_id})
    return None if row is None else Export(**row)


def of_project(uow: UnitOfWork, project: str) -> list[Export]:
    """The newest first."""
    return [Export(**row) for row in uow.all(_OF_PROJECT, {"project": project})]


def remove(uow: UnitOfWork, export_id: str) -> None:
    uow.execute(_REMOVE, {"id": export_id})
