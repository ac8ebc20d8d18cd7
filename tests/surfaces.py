"""What each surface says of one month's money, to be compared: a difference between two of them is
a fault."""

from __future__ import annotations

import calendar
import csv
import dataclasses
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

from podyard.control.billing import (
    bill_lines,
    explorer,
    explorer_invoices,
    exports,
    invoice_records,
    invoices,
    usages,
)
from podyard.control.billing.exports import ExportRequest
from podyard.control.billing.invoice_document import InvoiceDocument, from_json, minor_of
from podyard.control.billing.snapshots import Snapshot, snapshot
from podyard.control.checks import fsck
from podyard.db.access import accounts as account_rows
from podyard.db.billing import invoices as invoice_rows
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain import months
from podyard.domain.fleet import Fleet
from podyard.domain.invoice import line_id
from podyard.domain.principal import PLATFORM
from podyard.domain.usage import UsageRecord, parts_within
from podyard.http import several_units
from podyard.pricing import commitments, explore
from podyard.pricing.amounts import total
from podyard.pricing.invoicing import PARTS_PER_UNIT
from podyard.pricing.sku import RateCard


def check_month(
    database: Database, card: RateCard, project: str, month: str, *, by_hour: bool = True
) -> InvoiceDocument | None:
    """Fails unless the documents of all formats, explanations and lines of the month agree; its
    invoice, or None when there is nothing to invoice. `by_hour`: exports by the hour, too."""
    document = database.read(lambda uow: _document(uow, card, project, month))
    if document is None:
        return None
    stated = Fraction(document.total)
    for name, data in exported(database, card, project, month, by_hour=by_hour):
        assert sum(_amounts(name.partition(" ")[0], data)) == stated, name
    _check_corrections(database, card, document)
    for line in document.lines:
        explain = partial(bill_lines.explain, card=card, principal=PLATFORM, project=project)
        found = database.read(partial(explain, month=month, line=line.id))
        assert found.amount.parts == int(line.parts), line.id
        assert sum(part.seconds for part in found.parts) == line.seconds, line.id
        assert sum(part.unit_seconds for part in found.parts) == line.unit_seconds, line.id
        per_unit = _per_unit(line.unit)
        # What a pocket calculator gives: quantity times unit price.
        exact = Fraction(line.unit_seconds, per_unit) * Fraction(line.unit_price)
        assert exact == Fraction(int(line.parts), 2_628_000 * 10**9), line.id
        assert abs(Fraction(line.quantity) - Fraction(line.unit_seconds, per_unit)) < Fraction(
            1, 10**11
        )
    return document


def check_uses(database: Database, card: RateCard, projects: Sequence[str]) -> None:
    """Fails unless usage, the explorer by use and by invoice, and all months' documents agree, for
    the account of each of these projects; what all projects use is what all accounts pay for."""
    used, paid = Counter[str](), Counter[str]()
    for project in projects:
        used[project] = database.read(partial(_used, card=card, project=project))
        found = several_units.read_snapshot(database, partial(_paid, card=card, project=project))
        _check_account(database, card, project, found)
        for record in (*found.closed, *found.open):
            paid[found.facts[record.resource_id].project] += total([record]).parts
    assert +used == +paid


def _used(uow: UnitOfWork, card: RateCard, project: str) -> int:
    return usages.usage(uow, card, PLATFORM, project).amount.parts


def _paid(uow: UnitOfWork, card: RateCard, project: str) -> Snapshot:
    return snapshot(uow, card, PLATFORM, project, of_account=True)


def _check_account(database: Database, card: RateCard, project: str, found: Snapshot) -> None:
    months_until = [found.account.first_month]
    while months_until[-1] < found.month:
        months_until.append(months.following(months_until[-1]))
    documents = {
        month: database.read(partial(_document, card=card, project=project, month=month))
        for month in months_until
    }
    year, month_number = map(int, found.month.split("-"))
    last = calendar.monthrange(year, month_number)[1]
    fields = {"from": f"{months_until[0]}-01", "to": f"{found.month}-{last}", "bucket": "month"}
    own = total(
        charge for charge in found.charges if charge.resource_id.startswith(commitments.OWN)
    )
    for group in ("type", "label:team", "user", "node", "sku", "project"):
        question = explorer.to_question(found.account, found.as_of, {**fields, "group": group}, [])
        by_use = database.read(partial(explorer.ask, found=found, asked=question))
        assert by_use.total.gross == (found.total_use + own).parts, (
            f"{group}: {by_use.total.gross}, {found.total_use.parts}, {own.parts}"
        )
        for measure in ("gross", "net"):
            assert sum(getattr(row, measure) for row in by_use.rows) == getattr(
                by_use.total, measure
            ), group
        for month, parts in zip(months_until, by_use.total.after, strict=True):
            _check_use(found, documents, month, parts)
        invoiced = dataclasses.replace(question, by=explorer.BY_INVOICE)
        ask = partial(explorer_invoices.ask_invoiced, card=card, principal=PLATFORM, found=found)
        booked = explore.book(database.read(partial(ask, asked=invoiced)))
        for index, (month, document) in enumerate(documents.items()):
            stated = 0 if document is None else minor_of(document.total, document.decimals)
            assert sum(one.net[index] for one in booked) == stated, (group, month)


def _check_use(
    found: Snapshot, documents: Mapping[str, InvoiceDocument | None], month: str, parts: int
) -> None:
    """The charges of a month are its lines and the items of its corrections. What is too little to
    be corrected, or is paid by credits, is on no invoice."""
    document = documents[month]
    stated = 0 if document is None else sum(int(line.parts) for line in document.lines)
    issued = month < found.account.next_month
    for other in documents.values():
        if issued and other is not None and other.month <= found.account.next_month:
            corrections = [one for one in other.adjustments if one.corrects_month == month]
            stated += sum(int(item.parts) for one in corrections for item in one.items)
    if parts != stated and issued and not found.terms.credits:
        rate, share = found.account.policy.exchange_of(month), 1 + found.account.policy.tax
        missed = (
            Fraction(abs(parts - stated), PARTS_PER_UNIT)
            * rate
            * share
            * 10**found.account.decimals
        )
        assert missed <= 2, (month, parts, stated)
    elif not issued:
        assert parts == stated, month


def _per_unit(unit: str) -> int:
    """Seconds; an operation takes none, and is counted as one."""
    return {"gib_month": 2_628_000, "operation": 1}.get(unit, 3600)


def check_books(database: Database, fleet: Fleet, card: RateCard) -> None:
    """Fails unless fsck finds nothing."""
    found = database.read(lambda uow: fsck.check(uow, fleet, card))
    assert found == [], "; ".join(
        f"{one.invariant} {one.resource}: {one.detail}" for one in found[:5]
    )


def _document(uow: UnitOfWork, card: RateCard, project: str, month: str) -> InvoiceDocument | None:
    account = account_rows.find(uow, project)
    assert account is not None
    if month < account.next_month:
        issued = invoice_rows.find(uow, project, month)
        return None if issued is None else from_json(issued.document)
    return invoices.preview(uow, card, PLATFORM, project, month).document


def _check_corrections(database: Database, card: RateCard, document: InvoiceDocument) -> None:
    """The rows of a correction sum to it; each item is its quantity at the price of its line. In
    the month
    that is closed next, an issued month's records and all items of its corrections are what it is
    rated as now."""
    for one in document.adjustments:
        for item in one.items:
            exact = Fraction(item.unit_seconds, _per_unit(item.unit)) * Fraction(
                item.line.rpartition("@")[2]
            )
            assert exact == Fraction(int(item.parts), PARTS_PER_UNIT), item
    if not document.adjustments:
        return
    (name, data), project = (
        next(iter(exported(database, card, document.project, document.month, ("json",)))),
        document.project,
    )
    for one in document.adjustments:
        rows = [
            row
            for row in json.loads(data)["months"][0]["rows"]
            if row.get("corrects_month") == one.corrects_month
        ]
        assert sum(Fraction(row["amount"]) for row in rows) == Fraction(one.amount), name
        assert len([row for row in rows if "corrects_line" in row]) == len(one.items)
    account = database.read(lambda uow: account_rows.find(uow, project))
    assert account is not None
    if document.month != account.next_month:
        return
    found = several_units.read_snapshot(database, partial(_paid, card=card, project=project))
    documents = [
        *(
            from_json(row.document)
            for row in database.read(lambda uow: invoice_rows.of_project(uow, project))
        ),
        document,
    ]
    for month in (one.corrects_month for one in document.adjustments):
        window = months.seconds_of(month, account.time_zone)
        rest = _sums(parts_within(found.charges, window))
        issued = database.read(partial(invoice_rows.find, project=project, month=month))
        if issued is not None:
            records = database.read(partial(invoice_records.of_issued, card=card, issued=issued))
            rest.subtract(_sums(records.charges))
        items = [
            item
            for other in documents
            for one in other.adjustments
            if one.corrects_month == month
            for item in one.items
        ]
        for item in items:
            for what, number in (
                ("s", item.seconds),
                ("u", item.unit_seconds),
                ("$", int(item.parts)),
            ):
                rest[item.resource, item.line, what] -= number
        assert not any(rest.values()), (
            month,
            {key: number for key, number in rest.items() if number},
        )


def _sums(charges: Iterable[UsageRecord]) -> Counter[tuple[str, str, str]]:
    """Seconds, unit-seconds and parts by resource and line."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for charge in charges:
        key = (charge.resource_id, line_id(charge.sku_id, charge.price.nanos))
        sums[(*key, "s")] += charge.seconds
        sums[(*key, "u")] += charge.unit_seconds
        sums[(*key, "$")] += total([charge]).parts
    return sums


def exported(
    database: Database,
    card: RateCard,
    project: str,
    month: str,
    formats: Sequence[str] = ("csv", "json", "focus", "bigquery"),
    *,
    by_hour: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """(format and granularity, file) of each export of a month."""
    for name in formats:
        for granularity in ("day", "hour") if by_hour and name == "csv" else ("day",):
            request = ExportRequest(name, month, month, granularity)
            source = database.read(
                partial(
                    exports.one_month,
                    card=card,
                    principal=PLATFORM,
                    project=project,
                    request=request,
                )
            )
            yield f"{name} by {granularity}", exports.small_file(source, request)


def _amounts(name: str, data: bytes) -> Iterator[Fraction]:
    if name in ("csv", "focus"):
        column = "amount" if name == "csv" else "BilledCost"
        yield from (
            Fraction(row[column])
            for row in csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)
        )
    elif name == "json":
        for month in json.loads(data)["months"]:
            yield from (Fraction(row["amount"]) for row in month["rows"])
    else:
        for text in data.decode().splitlines():
            row = json.loads(text, parse_float=Fraction)
            yield Fraction(row["cost"])
            yield from (Fraction(credit["amount"]) for credit in row["credits"])
