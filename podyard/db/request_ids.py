"""Request ids that clients have sent, as records."""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from podyard.base.clock import PlatformTime
from podyard.db.tables_access import request_ids
from podyard.db.unit_of_work import UnitOfWork

_KEY = tuple(request_ids.primary_key.columns)


@dataclasses.dataclass(frozen=True, slots=True)
class RequestKey:
    project: str
    method: str
    request_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """`operation_id` is None only inside the unit that makes the operation."""

    key: RequestKey
    body_sha256: str
    operation_id: str | None
    created: PlatformTime


def find(uow: UnitOfWork, key: RequestKey) -> Request | None:
    row = uow.execute(select(request_ids).where(_is(key))).first()
    return None if row is None else _record(tuple(row))


def list_all(uow: UnitOfWork) -> list[Request]:
    return [_record(tuple(row)) for row in uow.execute(select(request_ids).order_by(*_KEY))]


def claim(uow: UnitOfWork, key: RequestKey, body_sha256: str) -> bool:
    """Whether the request is ours: no other unit has it, nor is making it."""
    dialect = postgresql if uow.connection.dialect.name == "postgresql" else sqlite
    values = {**dataclasses.asdict(key), "body_sha256": body_sha256, "operation_id": None, "created": uow.now}
    return uow.execute(dialect.insert(request_ids).values(**values).on_conflict_do_nothing()).rowcount == 1


def set_operation(uow: UnitOfWork, key: RequestKey, operation_id: str) -> None:
    uow.update(request_ids, dataclasses.asdict(key), {"operation_id": operation_id})


def forget(uow: UnitOfWork, key: RequestKey, before: PlatformTime) -> None:
    """Deletes the request if it was made then or before."""
    uow.execute(delete(request_ids).where(_is(key), request_ids.c.created <= before))


def sweep(uow: UnitOfWork, before: PlatformTime, most: int) -> None:
    """Deletes the oldest requests. Rows that another unit is sweeping are left to it."""
    old = select(*_KEY).where(request_ids.c.created <= before).order_by(request_ids.c.created).limit(most)
    found = uow.execute(old.with_for_update(skip_locked=True)).all()
    if found:
        uow.execute(delete(request_ids).where(tuple_(*_KEY).in_([tuple(row) for row in found])))


def _is(key: RequestKey) -> ColumnElement[bool]:
    c = request_ids.c
    return and_(c.project == key.project, c.method == key.method, c.request_id == key.request_id)


def _record(row: tuple[Any, ...]) -> Request:
    project, method, request_id, body_sha256, operation_id, created = row
    return Request(RequestKey(project, method, request_id), body_sha256, operation_id, created)
