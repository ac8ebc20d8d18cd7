"""The explorer by invoice month: each charge in the month of the invoice that carries it, down to
the invoice's total.

An issued invoice is what it was when it was issued. Where the month is rated the same today, its
groups are those of the snapshot; where usage has come late, they are those of the records that are
kept with the invoice. What came late is on a later invoice, as a correction of the month.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from podyard.base.errors import invalid
from podyard.control.billing import invoice_records, invoices
from podyard.control.billing.explorer import Groups, Question, check_dimensions
from podyard.control.billing.invoice_document import InvoiceDocument, from_json, parts_by_line
from podyard.control.billing.snapshots import Snapshot, snapshot
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.invoice import line_id
from podyard.domain.principal import Principal
from podyard.domain.usage import UsageRecord
from podyard.pricing import commitments, explore
from podyard.pricing.explore import BUCKETS_MAX, CostBucket, Exact, Invoiced
from podyard.pricing.invoicing import PARTS_PER_UNIT
from podyard.pricing.sku import RateCard

TAX = "(tax)"
OTHER = "(other)"  # what an invoice has charged and no charge of today explains


def months_asked(asked: Question) -> list[str]:
    """The months of these days. Raises INVALID_ARGUMENT for days in the wrong order, for too many
    and for an unknown dimension."""
    check_dimensions(asked)
    if asked.last < asked.first:
        raise invalid(f"the last day {asked.last} is before the first day {asked.first}", "to")
    count = (asked.last.year - asked.first.year) * 12 + asked.last.month - asked.first.month + 1
    if count > BUCKETS_MAX[CostBucket.MONTH]:
        raise invalid(
            f"the period has {count} months: the maximum is {BUCKETS_MAX[CostBucket.MONTH]}", "from"
        )
    found = [f"{asked.first:%Y-%m}"]
    while len(found) < count:
        found.append(months.following(found[-1]))
    return found


def ask_invoiced(
    uow: UnitOfWork, card: RateCard, principal: Principal, found: Snapshot, asked: Question
) -> list[Invoiced]:
    """Return what the invoices of the months charge, by group: as they were issued, or as they
    would be now. A month without an invoice has none of it. Raises what `months_asked` does, and
    FAILED_PRECONDITION without an exchange rate."""
    account, wanted = found.account, months_asked(asked)
    if not account.pays_itself:
        found = snapshot(uow, card, principal, found.project, of_account=True)
    groups = Groups(uow, found, asked)
    now = _Rated(groups, wanted, account.time_zone, found.charges, [*found.closed, *found.open])
    rows = {
        invoice.month: invoice for invoice in invoices.list_invoices(uow, principal, found.project)
    }
    made = []
    for index, month in enumerate(wanted):
        rated = now.month(index)
        document: InvoiceDocument | None = None
        if month in rows:
            document = from_json(rows[month].document)
            if rated.lines != _stated_lines(document):
                charges = invoice_records.of_issued(uow, card, rows[month]).charges
                used = [
                    _whole(charge)
                    for charge in charges
                    if not charge.resource_id.startswith(commitments.OWN)
                ]
                rated = _Rated(groups, [month], account.time_zone, charges, used).month(0)
        elif account.next_month <= month <= found.month:
            document = invoices.preview(uow, card, principal, found.project, month).document
        made.append(
            Invoiced(month, _unit(account.decimals), {}, 0, ())
            if document is None
            else _to_invoiced(asked, document, rated)
        )
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class _Month:
    """Parts of one month: by line, and by group before and after commitments."""

    lines: Mapping[str, int]
    before: Mapping[str, int]
    after: Mapping[str, int]


class _Rated:
    """Charges and records by month: each is looked at once, however many months there are."""

    def __init__(
        self,
        groups: Groups,
        wanted: Sequence[str],
        zone: str,
        charges: Sequence[UsageRecord],
        records: Sequence[UsageRecord],
    ) -> None:
        seconds = [months.seconds_of(month, zone) for month in wanted]
        spans = [*(one.start for one in seconds), seconds[-1].stop]
        own = (charge for charge in charges if charge.resource_id.startswith(commitments.OWN))
        self._lines = explore.cells(
            ((line_id(c.sku_id, c.price.nanos), c) for c in charges), spans
        ).groups
        self._before = explore.cells(groups.of(itertools.chain(own, records)), spans).groups
        self._after = explore.cells(groups.of(charges), spans).groups

    def month(self, index: int) -> _Month:
        return _Month(*(_column(one, index) for one in (self._lines, self._before, self._after)))


def _whole(charge: UsageRecord) -> UsageRecord:
    """The use that a charge is what is left of."""
    return (
        dataclasses.replace(charge, quantity=charge.units, covered=()) if charge.covered else charge
    )


def _column(cells: Mapping[str, Sequence[int]], index: int) -> dict[str, int]:
    return {name: row[index] for name, row in cells.items() if row[index]}


def _stated_lines(document: InvoiceDocument) -> dict[str, int]:
    return {key: parts for key, parts in parts_by_line(document).items() if parts}


def _to_invoiced(asked: Question, document: InvoiceDocument, rated: _Month) -> Invoiced:
    rate, left, unit = (
        Fraction(document.exchange_rate),
        1 - _paid_share(document),
        _unit(document.decimals),
    )
    names = dict.fromkeys((*rated.before, *rated.after))
    cells: dict[str, tuple[Exact, Exact]] = {
        name: (rated.before.get(name, 0) * rate, rated.after.get(name, 0) * left * rate)
        for name in names
    }
    if asked.where:
        return Invoiced(document.month, unit, cells, None, ())
    if other := sum(_stated_lines(document).values()) - sum(rated.lines.values()):
        cells[OTHER] = (other * rate, other * left * rate)
    others = [
        (f"(correction of {one.corrects_month})", _minor(one.amount))
        for one in document.adjustments
    ]
    if tax := _minor(document.tax):
        others.insert(0, (TAX, tax))
    return Invoiced(document.month, unit, cells, _minor(document.subtotal), others)


def _paid_share(document: InvoiceDocument) -> Fraction:
    """Return which share of the charges the account's credits pay."""
    charged = sum(int(line.parts) for line in document.lines)
    credited = sum(int(line.parts) for line in document.credits)
    return Fraction(-credited, charged) if credited else Fraction(0)


def _unit(decimals: int) -> int:
    found: int = PARTS_PER_UNIT // 10**decimals
    return found


def _minor(text: str) -> int:
    """A decimal text in its last place: `12.34` is 1234."""
    return int(text.replace(".", ""))
