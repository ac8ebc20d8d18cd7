"""Issued invoices and their adjustments."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from podyard.db.tables_billing import invoices
from podyard.db.unit_of_work import UnitOfWork

_ISSUED = select(invoices.c.month).where(invoices.c.project == bindparam("project")).limit(1)


def any_issued(uow: UnitOfWork, project: str) -> bool:
    """Whether the project has an invoice."""
    return uow.first(_ISSUED, {"project": project}) is not None
