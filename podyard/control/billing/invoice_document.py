"""An invoice as a document: canonical JSON, so that the same invoice is the same bytes, and its
digest proves it.

In JSON its fields are spelt `unitPrice`; amounts, prices and quantities are decimal numbers in
texts. A document holds facts and no prose, so that rewording a message changes no document.
Documents of form 1 say less of a line, and why something is held; those of form 2 say of a
correction how much it is, and not of what. They are read and never written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.money import PARTS_PER_NANO, Amount, minor_text, nanos_from_decimal_text
from podyard.base.spelling import camel_case
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.invoice import Adjustment, CorrectedUse, Invoice, InvoiceLine, line_id
from podyard.domain.usage import PriceUnit, Suspense

FORM = 3  # of the documents that are written now
EXACT_DECIMALS = 12  # as the worked cases print exact amounts; `parts` has the amount itself
_UPPER = re.compile("[A-Z]")


class DocumentLine(NamedTuple):
    """`unit_seconds` times `unit_price` is the exact amount, per hour or month as `unit` says.
    `quantity` is the same
    in that unit, rounded to 12 decimals. `price_version` is the first of `price_versions`.
    `hosts_included`: how
    much of the quantity is of nodes whose price includes their hosts; None, and left out, while the
    card charges none.
    """

    id: str
    sku: str
    unit: str
    unit_price: str
    price_version: str
    price_versions: Sequence[str]
    verified: bool
    quantity: str
    unit_seconds: int
    seconds: int
    amount: str
    estimated: bool
    exact_usd: str
    parts: str
    hosts_included: str | None = None


class DocumentCredit(NamedTuple):
    credit: str
    amount: str
    exact_usd: str
    parts: str


class DocumentItem(NamedTuple):
    """The amount that a correction adds to one line of the corrected invoice for one resource,
    exact and in US dollars."""

    resource: str
    name: str
    line: str
    unit: str
    quantity: str
    unit_seconds: int
    seconds: int
    exact_usd: str
    parts: str


class DocumentAdjustment(NamedTuple):
    """`amount` is rounded once; what its items, at `exchange_rate`, miss of it is tax, credits and
    rounding."""

    corrects_month: str
    amount: str
    exchange_rate: str = "1"
    items: Sequence[DocumentItem] = ()


class HeldUse(NamedTuple):
    """Use without a price: seconds of a resource from `start` on."""

    resource: str
    name: str
    start: str
    seconds: int


class InvoiceDocument(NamedTuple):
    form: int
    number: str
    project: str
    month: str
    period_start: str
    period_end: str
    time_zone: str
    currency: str
    decimals: int
    exchange_rate: str
    tax_share: str
    as_of: str
    lines: Sequence[DocumentLine]
    credits: Sequence[DocumentCredit]
    rounding_error: str
    subtotal: str
    tax: str
    adjustments: Sequence[DocumentAdjustment]
    total: str
    held: Sequence[HeldUse]


def number_of(project: str, month: str) -> str:
    """The invoice's number follows from what it is for."""
    return f"{project}-{month}"


def document(
    account: Account,
    invoice: Invoice,
    as_of: PlatformTime,
    held: Sequence[Suspense],
    names: Mapping[str, str],
    hosts_included: Mapping[str, int],
    *,
    issued: bool,
) -> InvoiceDocument:
    """`names`: of resources, by id; `hosts_included`: unit-seconds, by lines. Of an issued one
    nothing is an estimate any more: its month is over."""
    period = months.seconds_of(invoice.month, account.time_zone)

    def text_of(minor: int) -> str:
        return minor_text(minor, invoice.decimals)

    return InvoiceDocument(
        form=FORM,
        number=number_of(account.project, invoice.month),
        project=account.project,
        month=invoice.month,
        period_start=_second(period.start),
        period_end=_second(period.stop),
        time_zone=account.time_zone,
        currency=invoice.currency,
        decimals=invoice.decimals,
        exchange_rate=str(invoice.exchange),
        tax_share=account.tax,
        as_of=as_of.rfc3339(),
        lines=[
            _line(
                line,
                text_of(line.shown),
                hosts_included.get(line.line_id),
                estimated=line.estimated and not issued,
            )
            for line in invoice.lines
        ],
        credits=[
            DocumentCredit(line.credit_id, text_of(line.shown), *_exact(line.amount))
            for line in invoice.credits
        ],
        rounding_error=text_of(invoice.rounding_error),
        subtotal=text_of(invoice.subtotal),
        tax=text_of(invoice.tax),
        adjustments=[_adjustment(one, text_of(one.minor), names) for one in invoice.adjustments],
        total=text_of(invoice.total),
        held=[
            HeldUse(
                one.resource_id,
                names.get(one.resource_id, one.resource_id),
                _second(one.start_second),
                one.seconds,
            )
            for one in held
        ],
    )


def canonical(found: InvoiceDocument) -> bytes:
    """UTF-8 JSON without spaces, keys in order."""
    return json.dumps(
        to_json(found), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()


def to_json(found: InvoiceDocument) -> dict[str, Any]:
    spelt = _spelt(found)
    spelt |= {name: [_spelt(one) for one in spelt[name]] for name in _PARTS}
    for adjustment in spelt["adjustments"]:
        adjustment["items"] = [_spelt(item) for item in adjustment["items"]]
    return spelt


def from_json(data: bytes) -> InvoiceDocument:
    """The document that `canonical` made `data` of; one of form 1 with what it left out."""
    found = _read(json.loads(data))
    rows = {name: [_read(one) for one in found[name]] for name in _PARTS}
    for row in rows["adjustments"]:
        row["items"] = [DocumentItem(**_read(item)) for item in row.get("items", ())]
    if "form" not in found:
        found["form"] = 1
        rows["lines"] = [_complete_line(line) for line in rows["lines"]]
        for held in rows["held"]:
            del held["reason"]
    parts = {name: [make(**one) for one in rows[name]] for name, make in _PARTS.items()}
    return InvoiceDocument(**{**found, **parts})


def _complete_line(line: dict[str, Any]) -> dict[str, Any]:
    """A line of form 1. How many units it charges follows from its exact amount, but for a price of
    0."""
    unit, nanos = PriceUnit(line["unit"]), nanos_from_decimal_text(line["unit_price"])
    parts_per_unit_second = nanos * (PARTS_PER_NANO // unit.seconds)
    unit_seconds = int(line["parts"]) // parts_per_unit_second if nanos else line["seconds"]
    return {
        **line,
        "id": line_id(line["sku"], nanos),
        "price_versions": [line["price_version"]],
        "quantity": quantity_of(unit_seconds, unit),
        "unit_seconds": unit_seconds,
    }


def parts_by_line(found: InvoiceDocument) -> dict[str, int]:
    """The exact amount of each line in parts, by its id."""
    return {line.id: int(line.parts) for line in found.lines}


def same_facts(issued: bytes, computed: InvoiceDocument) -> bool:
    """Return whether an issued document says what it would say if it was written now: to the byte,
    or, for one of an earlier form, in everything that the form has. Where held seconds that touch
    are cut, it may be either: those of a SKU that had no price yet are cut where the node's last
    period begins, those without a SKU are not."""
    if canonical(computed) == issued:
        return True
    try:
        then = from_json(issued)
        then = then._replace(held=_join(then.held))
    except (PodyardError, ValueError, TypeError, KeyError, AttributeError):
        return False  # it is damaged
    computed = computed._replace(held=_join(computed.held))
    if then.form == FORM:
        return then == computed
    if then.form not in (1, 2) or len(then.lines) != len(computed.lines):
        return False
    lines = computed.lines
    if then.form == 1:
        lines = [
            new._replace(
                price_versions=old.price_versions,
                unit_seconds=old.unit_seconds,
                quantity=old.quantity,
            )
            for old, new in zip(then.lines, lines, strict=True)
        ]
    amounts = [DocumentAdjustment(one.corrects_month, one.amount) for one in computed.adjustments]
    return then == computed._replace(form=then.form, lines=lines, adjustments=amounts)


def _join(held: Sequence[HeldUse]) -> list[HeldUse]:
    """With those that touch as one."""
    found: list[HeldUse] = []
    for one in held:
        last = found[-1] if found else one
        start, after = (PlatformTime.from_rfc3339(other.start) for other in (last, one))
        if found and last.resource == one.resource and start.plus_seconds(last.seconds) == after:
            found[-1] = last._replace(seconds=last.seconds + one.seconds)
        else:
            found.append(one)
    return found


_PARTS: Mapping[str, Any] = {
    "lines": DocumentLine,
    "credits": DocumentCredit,
    "adjustments": DocumentAdjustment,
    "held": HeldUse,
}


def _spelt(found: Any) -> dict[str, Any]:
    return {camel_case(name): value for name, value in found._asdict().items() if value is not None}


def _read(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        _UPPER.sub(lambda match: "_" + match[0].lower(), name): value
        for name, value in data.items()
    }


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _adjustment(found: Adjustment, amount: str, names: Mapping[str, str]) -> DocumentAdjustment:
    items = []
    for item in found.items:
        exact_usd, parts = _exact(item.amount)
        items.append(
            DocumentItem(
                resource=item.resource_id,
                name=names.get(item.resource_id, item.resource_id),
                line=item.line_id,
                unit=str(item.unit),
                quantity=quantity_of(item.unit_seconds, item.unit),
                unit_seconds=item.unit_seconds,
                seconds=item.seconds,
                exact_usd=exact_usd,
                parts=parts,
            )
        )
    items.sort(key=lambda item: (item.name, item.resource, item.line))
    return DocumentAdjustment(found.corrects_month, amount, str(found.exchange), items)


def adjustments_of(document: InvoiceDocument) -> list[Adjustment]:
    """The corrections that a document states."""
    return [
        Adjustment(
            corrects_month=one.corrects_month,
            booked_in_month=document.month,
            minor=minor_of(one.amount, document.decimals),
            items=[
                CorrectedUse(
                    i.resource,
                    i.line,
                    PriceUnit(i.unit),
                    i.seconds,
                    i.unit_seconds,
                    Amount(int(i.parts)),
                )
                for i in one.items
            ],
            exchange=Fraction(one.exchange_rate),
        )
        for one in document.adjustments
    ]


def minor_of(text: str, decimals: int) -> int:
    """An amount of the document in minor units."""
    return int(Decimal(text) * 10**decimals)


def _line(
    line: InvoiceLine, amount: str, hosts_included: int | None, *, estimated: bool
) -> DocumentLine:
    exact_usd, parts = _exact(line.amount)
    return DocumentLine(
        id=line.line_id,
        sku=line.sku_id,
        unit=str(line.unit),
        unit_price=minor_text(line.price.nanos, 9),
        price_version=line.price.version_id,
        price_versions=[version.version_id for version in line.versions],
        verified=line.price.verified,
        quantity=quantity_of(line.unit_seconds, line.unit),
        unit_seconds=line.unit_seconds,
        seconds=line.seconds,
        amount=amount,
        estimated=estimated,
        exact_usd=exact_usd,
        parts=parts,
        hosts_included=None if hosts_included is None else quantity_of(hosts_included, line.unit),
    )


def quantity_of(unit_seconds: int, unit: PriceUnit) -> str:
    """Decimal text, with 12 decimals: 743.5 chip-hours are 2,676,600 unit-seconds."""
    return minor_text(unit.quantity(unit_seconds, EXACT_DECIMALS), EXACT_DECIMALS)


def _exact(amount: Amount) -> tuple[str, str]:
    return amount.text(EXACT_DECIMALS), str(amount.parts)


def _second(second: int) -> str:
    return PlatformTime(second * NANOS_PER_SECOND).rfc3339()
