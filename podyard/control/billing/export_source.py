"""The source of an export, read from the database: the invoice's document, its bill, and facts of
nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import accounts, commitments, invoice_records, invoices
from podyard.control.billing.invoice_document import (
    InvoiceDocument,
    adjustments_of,
    from_json,
    minor_of,
    parts_by_line,
)
from podyard.db.billing import commitments as commitment_rows
from podyard.db.billing import cost_dimensions
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.invoice import IssuedInvoice, JobSpan
from podyard.domain.principal import PLATFORM
from podyard.domain.usage import node_key_of
from podyard.pricing import attribution
from podyard.pricing.attribution import Owned
from podyard.pricing.export import Committed, ExportSource, ResourceFacts, Statement
from podyard.pricing.issued_records import IssuedRecords
from podyard.pricing.sku import RateCard


def source(
    uow: UnitOfWork, card: RateCard, project: str, month: str, *, by_job: bool
) -> ExportSource | None:
    """One month to export: as it was issued, or, of an open month, as its invoice is so far. None:
    there is nothing to invoice in it. The caller has asked for permission."""
    account = accounts.of(uow, project)
    if month < account.next_month:
        issued = _find_issued(uow, project, month)
        if issued is None:
            return None
        records = invoice_records.of_issued(uow, card, issued)
        document = from_json(issued.document)
        return _source(
            uow, card, account, document, records, issued.as_of, by_job, issued.issued_at
        )
    found = invoices.preview(uow, card, PLATFORM, project, month)
    if found.document is None:
        return None
    records = invoices.records_of(uow, card, account, found)
    return _source(uow, card, account, found.document, records, found.bill.as_of, by_job, None)


def _find_issued(uow: UnitOfWork, project: str, month: str) -> IssuedInvoice | None:
    try:
        return invoices.get(uow, PLATFORM, project, month)
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return None


def _source(  # noqa: PLR0913
    uow: UnitOfWork,
    card: RateCard,
    account: Account,
    document: InvoiceDocument,
    records: IssuedRecords,
    as_of: PlatformTime,
    by_job: bool,
    issued_at: PlatformTime | None,
) -> ExportSource:
    return ExportSource(
        statement=_statement(account, document, issued_at is not None),
        charges=records.charges,
        commitments=_commitments(uow, card, account.project),
        resources=records.resources,
        owners=_owners(uow, account.names, records.resources, as_of) if by_job else None,
        exported_at=uow.now if issued_at is None else issued_at,
    )


def _statement(account: Account, document: InvoiceDocument, issued: bool) -> Statement:
    decimals = document.decimals
    return Statement(
        number=document.number,
        project=account.project,
        month=document.month,
        seconds=months.seconds_of(document.month, document.time_zone),
        time_zone=document.time_zone,
        currency=document.currency,
        decimals=decimals,
        exchange=Fraction(document.exchange_rate),
        issued=issued,
        as_of=PlatformTime.from_rfc3339(document.as_of),
        lines=parts_by_line(document),
        credits=[(line.credit, int(line.parts)) for line in document.credits],
        tax=minor_of(document.tax, decimals),
        adjustments=adjustments_of(document),
        total=minor_of(document.total, decimals),
    )


def _commitments(uow: UnitOfWork, card: RateCard, project: str) -> dict[str, Committed]:
    found = {}
    for purchase in commitment_rows.of_project(uow, project):
        one = purchase.commitment
        sku = card.skus.get(one.sku_id)
        found[one.commitment_id] = Committed(
            billed=commitments.to_billed(purchase),
            bought_nanos=one.price.nanos,
            upfront=purchase.upfront is not None,
            region="" if sku is None else sku.region,
        )
    return found


def _owners(
    uow: UnitOfWork,
    projects: Sequence[str],
    resources: Mapping[str, ResourceFacts],
    as_of: PlatformTime,
) -> dict[str, Sequence[Owned]]:
    """Whose the seconds of each node and of its hosts were, by the jobs' names."""
    names: dict[str, str] = {}
    spans: dict[str, list[JobSpan]] = {}
    for project in projects:
        names |= cost_dimensions.job_names(uow, project)
        for span in cost_dimensions.job_spans(uow, project):
            if span.start < as_of:
                spans.setdefault(span.resource_id, []).append(span)
    owners = {
        key: list(_with_names(attribution.ownership(found, as_of), names))
        for key, found in spans.items()
    }
    return {key: owners.get(node_key_of(key), ()) for key in resources}


def _with_names(found: Sequence[Owned], names: Mapping[str, str]) -> Iterator[Owned]:
    return (Owned(owned.seconds, names.get(owned.job_id, owned.job_id)) for owned in found)
