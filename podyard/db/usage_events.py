"""What metering reads: the usage events of billable resources."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from podyard.base.clock import PlatformTime
from podyard.db.tables_billing import usage_events
from podyard.db.unit_of_work import UnitOfWork

_FIRST_USE = select(func.min(usage_events.c.at)).where(usage_events.c.project == bindparam("project"))


def first_use(uow: UnitOfWork, project: str) -> PlatformTime | None:
    """When the first event of the project was."""
    found: PlatformTime | None = uow.execute(_FIRST_USE, {"project": project}).scalar()
    return found
