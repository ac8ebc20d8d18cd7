"""Timers on platform time. The loop fires them in order (due, id), each in a unit at its due
time."""

from __future__ import annotations

import dataclasses

from sqlalchemy import bindparam, delete, select

from podyard.base.clock import PlatformTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import timers


@dataclasses.dataclass(frozen=True, slots=True)
class Timer:
    """`kind`: `OWNER.what`, where the owner is whose timer it is. `version`: of the resource when
    the timer was set; 0: whatever has become of it."""

    timer_id: int
    due: PlatformTime
    kind: str
    resource_key: str
    version: int

    @property
    def owner(self) -> str:
        return self.kind.partition(".")[0]


def put(uow: UnitOfWork, kind: str, resource_key: str, version: int, due: PlatformTime) -> None:
    uow.insert(timers, {"kind": kind, "resource_key": resource_key, "version": version, "due": due})


def count_due(uow: UnitOfWork, until: PlatformTime, most: int) -> int:
    """Return how many are due at `until`; no more than `most` are counted."""
    return len(uow.execute(_DUE, {"until": until, "most": most}).all())


def first_due(uow: UnitOfWork, until: PlatformTime) -> Timer | None:
    """The first timer that is due at `until`, which stays; None when there is none."""
    row = uow.first(_FIRST, {"until": until, "most": 1})
    return None if row is None else Timer(**row)


def take_next(uow: UnitOfWork, until: PlatformTime) -> Timer | None:
    """The first timer that is due at `until`, taken out; None when there is none."""
    timer = first_due(uow, until)
    if timer is not None:
        uow.execute(_TAKE, {"taken": timer.timer_id})
    return timer


def list_all(uow: UnitOfWork) -> list[Timer]:
    """In the order in which they were set."""
    return [Timer(**row) for row in uow.all(select(timers).order_by(timers.c.timer_id))]


def is_set(uow: UnitOfWork, kind: str, resource_key: str) -> bool:
    """Return whether the resource has a timer of this kind."""
    return uow.first(_SET, {"key": resource_key, "kind": kind}) is not None


_SET = select(timers.c.timer_id).where(
    timers.c.resource_key == bindparam("key"), timers.c.kind == bindparam("kind")
)
_UNTIL = timers.c.due <= bindparam("until", type_=timers.c.due.type)
_DUE = select(timers.c.timer_id).where(_UNTIL).limit(bindparam("most"))
_FIRST = (
    select(timers).where(_UNTIL).order_by(timers.c.due, timers.c.timer_id).limit(bindparam("most"))
)
_DROP = delete(timers).where(timers.c.resource_key == bindparam("key"))
_DROP_KIND = _DROP.where(timers.c.kind == bindparam("kind"))
_TAKE = delete(timers).where(timers.c.timer_id == bindparam("taken"))


def drop(uow: UnitOfWork, resource_key: str) -> None:
    uow.execute(_DROP, {"key": resource_key})


def drop_kind(uow: UnitOfWork, kind: str, resource_key: str) -> None:
    """The resource's timers of one kind."""
    uow.execute(_DROP_KIND, {"key": resource_key, "kind": kind})
