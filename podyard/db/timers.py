"""Timers on platform time. The loop fires them in order (due, id), each in a unit at its due time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, func, insert, select

from podyard.base.clock import PlatformTime
from podyard.db.tables import timers
from podyard.db.unit_of_work import UnitOfWork


def put(uow: UnitOfWork, kind: str, resource_key: str, version: int, due: PlatformTime) -> None:
    uow.execute(insert(timers).values(kind=kind, resource_key=resource_key, version=version, due=due))


def next_due(uow: UnitOfWork) -> PlatformTime | None:
    found: PlatformTime | None = uow.execute(select(func.min(timers.c.due))).scalar()
    return found


def take_next(uow: UnitOfWork, until: PlatformTime) -> Mapping[str, Any] | None:
    """The first timer that is due at `until`, taken out; None when there is none."""
    query = select(timers).where(timers.c.due <= until).order_by(timers.c.due, timers.c.timer_id).limit(1)
    row = uow.first(query)
    if row is not None:
        uow.execute(delete(timers).where(timers.c.timer_id == row["timer_id"]))
    return row


def drop(uow: UnitOfWork, resource_key: str) -> None:
    uow.execute(delete(timers).where(timers.c.resource_key == resource_key))
