"""Timers on platform time. The loop fires them in order (due, id), each in a unit at its due time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, select

from podyard.base.clock import PlatformTime
from podyard.db.tables import timers
from podyard.db.unit_of_work import UnitOfWork


def put(uow: UnitOfWork, kind: str, resource_key: str, version: int, due: PlatformTime) -> None:
    uow.insert(timers, {"kind": kind, "resource_key": resource_key, "version": version, "due": due})


def count_due(uow: UnitOfWork, until: PlatformTime, most: int) -> int:
    """How many are due at `until`; no more than `most` are counted."""
    return len(uow.execute(_DUE, {"until": until, "most": most}).all())


def first_due(uow: UnitOfWork, until: PlatformTime) -> Mapping[str, Any] | None:
    """The first timer that is due at `until`, which stays; None when there is none."""
    return uow.first(_FIRST, {"until": until, "most": 1})


def take_next(uow: UnitOfWork, until: PlatformTime) -> Mapping[str, Any] | None:
    """The first timer that is due at `until`, taken out; None when there is none."""
    row = first_due(uow, until)
    if row is not None:
        uow.execute(_TAKE, {"taken": row["timer_id"]})
    return row


def is_set(uow: UnitOfWork, kind: str, resource_key: str) -> bool:
    """Whether the resource has a timer of this kind."""
    return uow.first(_SET, {"key": resource_key, "kind": kind}) is not None


_SET = select(timers.c.timer_id).where(timers.c.resource_key == bindparam("key"), timers.c.kind == bindparam("kind"))
_UNTIL = timers.c.due <= bindparam("until", type_=timers.c.due.type)
_DUE = select(timers.c.timer_id).where(_UNTIL).limit(bindparam("most"))
_FIRST = select(timers).where(_UNTIL).order_by(timers.c.due, timers.c.timer_id).limit(bindparam("most"))
_DROP = delete(timers).where(timers.c.resource_key == bindparam("key"))
_DROP_KIND = _DROP.where(timers.c.kind == bindparam("kind"))
_TAKE = delete(timers).where(timers.c.timer_id == bindparam("taken"))


def drop(uow: UnitOfWork, resource_key: str) -> None:
    uow.execute(_DROP, {"key": resource_key})


def drop_kind(uow: UnitOfWork, kind: str, resource_key: str) -> None:
    """The resource's timers of one kind."""
    uow.execute(_DROP_KIND, {"key": resource_key, "kind": kind})
