"""Commitments, as they were bought."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.db.billing import credit_notes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import commitments
from podyard.domain.invoice import Commitment, Purchase
from podyard.domain.usage import PriceUnit, PriceVersion

_OF_PROJECT = (
    select(commitments)
    .where(commitments.c.project == bindparam("project"))
    .order_by(commitments.c.start_second, commitments.c.commitment_id)
)


def of_project(uow: UnitOfWork, project: str) -> list[Purchase]:
    """By start, then id; those that have ended included."""
    found, ends = [], credit_notes.ends_of_commitments(uow, project)
    for row in uow.execute(_OF_PROJECT, {"project": project}):
        start = PlatformTime(row.start_second * NANOS_PER_SECOND)
        bought = Commitment(
            commitment_id=row.commitment_id,
            sku_id=row.sku_id,
            unit=PriceUnit(row.unit),
            quantity=row.quantity,
            price=PriceVersion(row.version_id, start, row.nanos, row.source, row.verified),
            start_second=row.start_second,
            end_second=row.end_second,
            ended_second=ends.get(row.commitment_id),
        )
        found.append(Purchase(bought, row.project, row.years, row.upfront, row.created, row.stated))
    return found


def add(uow: UnitOfWork, purchase: Purchase) -> None:
    bought = purchase.commitment
    uow.insert(
        commitments,
        {
            "commitment_id": bought.commitment_id,
            "project": purchase.project,
            "sku_id": bought.sku_id,
            "unit": bought.unit.value,
            "quantity": bought.quantity,
            "years": purchase.years,
            "nanos": bought.price.nanos,
            "version_id": bought.price.version_id,
            "source": bought.price.source,
            "verified": bought.price.verified,
            "upfront": purchase.upfront,
            "stated": purchase.stated,
            "start_second": bought.start_second,
            "end_second": bought.end_second,
            "created": purchase.created,
        },
    )
