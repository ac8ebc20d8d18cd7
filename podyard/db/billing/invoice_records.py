"""The rated records of issued invoices, in chunks. They are written with the invoice, or once for
an older one, and never changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import and_, bindparam, select

from podyard.base.errors import Code, PodyardError
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import invoice_records, invoices

_R = invoice_records.c
_CHUNKS = (
    select(_R.data, _R.sha256)
    .where(_R.project == bindparam("project"), _R.month == bindparam("month"))
    .order_by(_R.position)
)
_WITHOUT = (
    select(invoices.c.project, invoices.c.month)
    .outerjoin(
        invoice_records, and_(_R.project == invoices.c.project, _R.month == invoices.c.month)
    )
    .where(_R.month.is_(None))
    .order_by(invoices.c.project, invoices.c.month)
    .limit(bindparam("most"))
)


def add(uow: UnitOfWork, project: str, month: str, chunks: Sequence[bytes]) -> None:
    rows = [
        {
            "project": project,
            "month": month,
            "position": position,
            "data": data,
            "sha256": _digest(data),
        }
        for position, data in enumerate(chunks)
    ]
    uow.insert_all(invoice_records, rows)


def chunks_of(uow: UnitOfWork, project: str, month: str) -> list[bytes]:
    """Empty where none are kept. Raises DATA_LOSS for a chunk that is not what it was."""
    found = []
    for place, row in enumerate(uow.execute(_CHUNKS, {"project": project, "month": month})):
        if _digest(row.data) != row.sha256:
            text = (
                f"part {place} of the records of invoice {project}-{month} is not "
                "the one whose "
                "digest was kept"
            )
            raise PodyardError(Code.DATA_LOSS, text)
        found.append(row.data)
    return found


def without_records(uow: UnitOfWork, most: int) -> list[tuple[str, str]]:
    """(project, month) of invoices of which no records are kept."""
    return [(row.project, row.month) for row in uow.execute(_WITHOUT, {"most": most})]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
