"""Issued invoices, as records, and the corrections that were booked in them. Neither is ever
changed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select

from podyard.base.clock import PlatformTime
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import adjustments, invoices
from podyard.domain.invoice import Adjustment, IssuedInvoice

_I, _A = invoices.c, adjustments.c
_ALL = select(invoices).order_by(_I.project, _I.month)
_OF_PROJECT = _ALL.where(_I.project == bindparam("project"))
_ONE = _OF_PROJECT.where(_I.month == bindparam("month"))
_ANY = select(_I.month).limit(1)
_ANY_OF = _ANY.where(_I.project == bindparam("project"))
_LAST_MOMENT = select(func.max(_I.as_of))
_BEFORE = select(_I.month, _I.re_rated).where(
    _I.project == bindparam("project"), _I.month < bindparam("month")
)
_CORRECTED = (
    select(_A.corrects_month, func.sum(_A.minor).label("minor"))
    .where(_A.project == bindparam("project"), _A.booked_month < bindparam("month"))
    .group_by(_A.corrects_month)
    .order_by(_A.corrects_month)
)

_CORRECTING = _OF_PROJECT.where(
    _I.month.in_(
        select(_A.booked_month).where(
            _A.project == bindparam("project"),
            _A.corrects_month == bindparam("corrected"),
            _A.booked_month < bindparam("before"),
        )
    )
)


def find(uow: UnitOfWork, project: str, month: str) -> IssuedInvoice | None:
    row = uow.first(_ONE, {"project": project, "month": month})
    return None if row is None else IssuedInvoice(**row)


def of_project(uow: UnitOfWork, project: str) -> list[IssuedInvoice]:
    """By month."""
    return [IssuedInvoice(**row) for row in uow.all(_OF_PROJECT, {"project": project})]


def of_all(uow: UnitOfWork) -> list[IssuedInvoice]:
    """By project and month."""
    return [IssuedInvoice(**row) for row in uow.all(_ALL)]


def any_issued(uow: UnitOfWork, project: str | None = None) -> bool:
    """Return whether a project, or (None) anybody, has an invoice."""
    return (
        uow.first(_ANY) if project is None else uow.first(_ANY_OF, {"project": project})
    ) is not None


def last_moment(uow: UnitOfWork) -> PlatformTime | None:
    """Until when issued invoices have looked at usage."""
    found: PlatformTime | None = uow.execute(_LAST_MOMENT).scalar()
    return found


def totals_before(uow: UnitOfWork, project: str, month: str) -> dict[str, int]:
    """Return what was issued for each month before this one, without corrections of others, in
    minor units."""
    return {
        row.month: row.re_rated
        for row in uow.execute(_BEFORE, {"project": project, "month": month})
    }


def corrections_before(uow: UnitOfWork, project: str, month: str) -> dict[str, int]:
    """Return what was corrected of each month before this one was invoiced, in minor units."""
    rows = uow.execute(_CORRECTED, {"project": project, "month": month})
    return {row.corrects_month: int(row.minor) for row in rows}


def correcting(uow: UnitOfWork, project: str, month: str, before: str) -> list[IssuedInvoice]:
    """The invoices of months before `before` that have booked corrections of a month, by month."""
    rows = uow.all(_CORRECTING, {"project": project, "corrected": month, "before": before})
    return [IssuedInvoice(**row) for row in rows]


def add(uow: UnitOfWork, invoice: IssuedInvoice, corrections: Sequence[Adjustment]) -> None:
    """`corrections`: what it books of other months."""
    for one in corrections:
        row = {
            "corrects_month": one.corrects_month,
            "booked_month": one.booked_in_month,
            "minor": one.minor,
        }
        uow.insert(adjustments, {"project": invoice.project, **row})
    uow.insert(invoices, columns(invoice))
