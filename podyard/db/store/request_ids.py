"""Request ids that clients have sent, as records."""

from __future__ import annotations

import dataclasses

from sqlalchemy import delete, select, tuple_

from podyard.base.clock import PlatformTime
from podyard.db.engines.driver import insert_with_conflict
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import request_ids

Key = tuple[str, str, str]  # project, method, request id

_KEY = tuple(request_ids.primary_key.columns)


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """`operation_id` is None only inside the unit that makes the operation."""

    project: str
    method: str
    request_id: str
    body_sha256: str
    operation_id: str | None
    created: PlatformTime


def find(uow: UnitOfWork, key: Key) -> Request | None:
    row = uow.first(select(request_ids).filter_by(**_names(key)))
    return None if row is None else Request(**row)


def list_all(uow: UnitOfWork) -> list[Request]:
    return [Request(**row) for row in uow.all(select(request_ids).order_by(*_KEY))]


def claim(uow: UnitOfWork, key: Key, body_sha256: str) -> bool:
    """Return whether the request is ours: no other unit has it, nor is making it."""
    values = {**_names(key), "body_sha256": body_sha256, "operation_id": None, "created": uow.now}
    made = insert_with_conflict(request_ids, uow.connection.dialect).values(**values)
    return uow.execute(made.on_conflict_do_nothing()).rowcount == 1


def set_operation(uow: UnitOfWork, key: Key, operation_id: str) -> None:
    uow.update(request_ids, _names(key), {"operation_id": operation_id})


def forget(uow: UnitOfWork, key: Key, before: PlatformTime) -> None:
    """Deletes the request if it was made then or before."""
    uow.execute(delete(request_ids).filter_by(**_names(key)).where(request_ids.c.created <= before))


def sweep(uow: UnitOfWork, before: PlatformTime, most: int) -> None:
    """Deletes the oldest requests. Rows that another unit is sweeping are left to it."""
    old = (
        select(*_KEY)
        .where(request_ids.c.created <= before)
        .order_by(request_ids.c.created)
        .limit(most)
    )
    found = uow.execute(old.with_for_update(skip_locked=True)).all()
    if found:
        uow.execute(delete(request_ids).where(tuple_(*_KEY).in_([tuple(row) for row in found])))


def _names(key: Key) -> dict[str, str]:
    return {column.name: value for column, value in zip(_KEY, key, strict=True)}
