"""What each surface says of one month's money, to be compared: a difference between two of them is a fault."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from podyard.control.billing import bill_lines, exports, invoices
from podyard.control.billing.exports import ExportRequest
from podyard.control.billing.invoice_document import InvoiceDocument, from_json
from podyard.control.checks import fsck
from podyard.db import accounts as account_rows
from podyard.db import invoices as invoice_rows
from podyard.db.unit_of_work import Database, UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.principal import PLATFORM
from podyard.pricing.sku import RateCard


def check_month(database: Database, card: RateCard, project: str, month: str) -> InvoiceDocument | None:
    """Fails unless the documents of all formats, explanations and lines of the month agree; its invoice, or None when
    there is nothing to invoice."""
    document = database.read(lambda uow: _document(uow, card, project, month))
    if document is None:
        return None
    total = Fraction(document.total)
    for name, amounts in _exported(database, card, project, month):
        assert sum(amounts) == total, name
    for line in document.lines:
        asked = {"principal": PLATFORM, "project": project, "month": month, "line": line.id}
        found = database.read(partial(bill_lines.explain, card=card, **asked))
        assert found.amount.parts == int(line.parts), line.id
        assert sum(part.seconds for part in found.parts) == line.seconds, line.id
        assert sum(part.unit_seconds for part in found.parts) == line.unit_seconds, line.id
        per_unit = 2_628_000 if line.unit.endswith("month") else 3600
        # What a pocket calculator gives: quantity times unit price.
        exact = Fraction(line.unit_seconds, per_unit) * Fraction(line.unit_price)
        assert exact == Fraction(int(line.parts), 2_628_000 * 10**9), line.id
        assert abs(Fraction(line.quantity) - Fraction(line.unit_seconds, per_unit)) < Fraction(1, 10**11)
    return document


def check_books(database: Database, fleet: Fleet, card: RateCard) -> None:
    """Fails unless fsck finds nothing."""
    assert database.read(lambda uow: fsck.check(uow, fleet, card)) == []


def _document(uow: UnitOfWork, card: RateCard, project: str, month: str) -> InvoiceDocument | None:
    account = account_rows.find(uow, project)
    assert account is not None
    if month < account.next_month:
        issued = invoice_rows.find(uow, project, month)
        return None if issued is None else from_json(issued.document)
    return invoices.preview(uow, card, PLATFORM, project, month).document


def _exported(database: Database, card: RateCard, project: str, month: str) -> Iterator[tuple[str, list[Fraction]]]:
    for name in ("csv", "json", "focus", "bigquery"):
        for granularity in ("day", "hour") if name == "csv" else ("day",):
            request = ExportRequest(name, month, month, granularity)
            source = database.read(
                partial(exports.one_month, card=card, principal=PLATFORM, project=project, request=request)
            )
            yield f"{name} by {granularity}", list(_amounts(name, exports.small_file(source, request)))


def _amounts(name: str, data: bytes) -> Iterator[Fraction]:
    if name in ("csv", "focus"):
        column = "amount" if name == "csv" else "BilledCost"
        yield from (
            Fraction(row[column]) for row in csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)
        )
    elif name == "json":
        for month in json.loads(data)["months"]:
            yield from (Fraction(row["amount"]) for row in month["rows"])
    else:
        for text in data.decode().splitlines():
            row = json.loads(text, parse_float=Fraction)
            yield Fraction(row["cost"])
            yield from (Fraction(credit["amount"]) for credit in row["credits"])
