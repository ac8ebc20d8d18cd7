"""Rows of calls to Google's APIs that are not served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from podyard.db.tables_access import unserved_calls
from podyard.db.unit_of_work import UnitOfWork

CALLS_MAX = 1000  # different ones that are remembered; the one that was called longest ago goes first


def add(uow: UnitOfWork, host: str, method: str, path: str) -> None:
    """Counts a call."""
    dialect = postgresql if uow.connection.dialect.name == "postgresql" else sqlite
    made = dialect.insert(unserved_calls).values(host=host, method=method, path=path, calls=1, last=uow.real_now)
    again = {"calls": unserved_calls.c.calls + 1, "last": uow.real_now}
    key = [unserved_calls.c.host, unserved_calls.c.method, unserved_calls.c.path]
    uow.execute(made.on_conflict_do_update(index_elements=key, set_=again))
    if int(uow.execute(select(func.count()).select_from(unserved_calls)).scalar() or 0) > CALLS_MAX:
        oldest = select(unserved_calls.c.last).order_by(unserved_calls.c.last).limit(1).scalar_subquery()
        uow.execute(delete(unserved_calls).where(unserved_calls.c.last == oldest))


def rows(uow: UnitOfWork) -> list[Mapping[str, Any]]:
    """The newest first."""
    order = (unserved_calls.c.last.desc(), unserved_calls.c.host, unserved_calls.c.path, unserved_calls.c.method)
    return uow.all(select(unserved_calls).order_by(*order))
