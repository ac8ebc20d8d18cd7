"""Calls to Google's APIs that are not served, as records."""

from __future__ import annotations

import dataclasses

from sqlalchemy import delete, func, select

from podyard.base.clock import RealTime
from podyard.db.engines.driver import insert_with_conflict
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import unserved_calls

# different ones that are remembered; the one that was called longest ago goes first
CALLS_MAX = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class CountedCall:
    """`calls`: how often it was made; `last`: when it was made the last time."""

    host: str
    method: str
    path: str
    calls: int
    last: RealTime


def add(uow: UnitOfWork, host: str, method: str, path: str) -> None:
    """Counts a call."""
    made = insert_with_conflict(unserved_calls, uow.connection.dialect).values(
        host=host, method=method, path=path, calls=1, last=uow.real_now
    )
    again = {"calls": unserved_calls.c.calls + 1, "last": uow.real_now}
    key = [unserved_calls.c.host, unserved_calls.c.method, unserved_calls.c.path]
    uow.execute(made.on_conflict_do_update(index_elements=key, set_=again))
    if int(uow.execute(select(func.count()).select_from(unserved_calls)).scalar() or 0) > CALLS_MAX:
        oldest = (
            select(unserved_calls.c.last).order_by(unserved_calls.c.last).limit(1).scalar_subquery()
        )
        uow.execute(delete(unserved_calls).where(unserved_calls.c.last == oldest))


def list_all(uow: UnitOfWork) -> list[CountedCall]:
    """The newest first."""
    order = (
        unserved_calls.c.last.desc(),
        unserved_calls.c.host,
        unserved_calls.c.path,
        unserved_calls.c.method,
    )
    return [CountedCall(**row) for row in uow.all(select(unserved_calls).order_by(*order))]
