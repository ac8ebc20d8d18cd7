"""Conditions that a copy of a database must share with its source, beyond its rows: the bills."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.control.billing import accounts, invoices
from podyard.control.billing.invoice_document import canonical
from podyard.db.access import projects
from podyard.db.billing import invoices as invoice_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.pricing.sku import RateCard


@dataclasses.dataclass(frozen=True, slots=True)
class Bills:
    """`issued`: documents by their number, as they were issued. `drafts`: by project, the invoice
    that its open month would have now, or why it has none."""

    issued: dict[str, bytes]
    drafts: dict[str, bytes]


def read(uow: UnitOfWork, card: RateCard, moment: PlatformTime) -> Bills:
    """All bills of the database, at this moment of platform time."""
    uow.at(moment)
    issued = {invoice.number: invoice.document for invoice in invoice_rows.of_all(uow)}
    return Bills(
        issued,
        {project.project: _draft(uow, card, project.project) for project in projects.list_all(uow)},
    )


def _draft(uow: UnitOfWork, card: RateCard, project: str) -> bytes:
    account = accounts.of(uow, project)
    try:
        found = invoices.compute(
            uow, card, account, account.month_of(uow.now), uow.now, None, issued=False
        )
    # a month without a rate of exchange has no invoice in either database
    except PodyardError as error:
        return error.message.encode()
    return b"" if found.document is None else canonical(found.document)
