"""An invoice as a document: canonical JSON, so that the same invoice is the same bytes, and its digest proves it.

In JSON its fields are spelt `unitPrice`; amounts and prices are decimal numbers in texts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount, minor_text
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.invoice import Invoice, InvoiceLine
from podyard.domain.usage import Suspense

EXACT_DECIMALS = 12  # as the worked cases print exact amounts; `parts` has the amount itself
_UPPER = re.compile("[A-Z]")
_LOWER_AFTER = re.compile("_([a-z])")


class DocumentLine(NamedTuple):
    sku: str
    unit: str
    unit_price: str
    price_version: str
    verified: bool
    seconds: int
    amount: str
    estimated: bool
    exact_usd: str
    parts: str


class DocumentCredit(NamedTuple):
    credit: str
    amount: str
    exact_usd: str
    parts: str


class DocumentAdjustment(NamedTuple):
    corrects_month: str
    amount: str


class HeldUse(NamedTuple):
    """What has no price: seconds of a resource from `start` on."""

    resource: str
    name: str
    start: str
    seconds: int
    reason: str


class InvoiceDocument(NamedTuple):
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
    *,
    issued: bool,
) -> InvoiceDocument:
    """`names`: of resources, by id. Of an issued one nothing is an estimate any more: its month is over."""
    period = months.seconds_of(invoice.month, account.time_zone)

    def text_of(minor: int) -> str:
        return minor_text(minor, invoice.decimals)

    return InvoiceDocument(
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
        lines=[_line(line, text_of(line.shown), estimated=line.estimated and not issued) for line in invoice.lines],
        credits=[DocumentCredit(line.credit_id, text_of(line.shown), *_exact(line.amount)) for line in invoice.credits],
        rounding_error=text_of(invoice.rounding_error),
        subtotal=text_of(invoice.subtotal),
        tax=text_of(invoice.tax),
        adjustments=[DocumentAdjustment(one.corrects_month, text_of(one.minor)) for one in invoice.adjustments],
        total=text_of(invoice.total),
        held=[
            HeldUse(
                one.resource_id,
                names.get(one.resource_id, one.resource_id),
                _second(one.start_second),
                one.seconds,
                one.reason,
            )
            for one in held
        ],
    )


def canonical(found: InvoiceDocument) -> bytes:
    """UTF-8 JSON without spaces, keys in order."""
    return json.dumps(to_json(found), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def to_json(found: InvoiceDocument) -> dict[str, Any]:
    spelt = _spelt(found)
    return spelt | {name: [_spelt(one) for one in spelt[name]] for name in _PARTS}


def from_json(data: bytes) -> InvoiceDocument:
    """The document that `canonical` made `data` of."""
    found = _read(json.loads(data))
    parts = {name: [make(**_read(one)) for one in found[name]] for name, make in _PARTS.items()}
    return InvoiceDocument(**{**found, **parts})


_PARTS: Mapping[str, Any] = {
    "lines": DocumentLine,
    "credits": DocumentCredit,
    "adjustments": DocumentAdjustment,
    "held": HeldUse,
}


def _spelt(found: Any) -> dict[str, Any]:
    fields = found._asdict().items()
    return {_LOWER_AFTER.sub(lambda match: match[1].upper(), name): value for name, value in fields}


def _read(data: Mapping[str, Any]) -> dict[str, Any]:
    return {_UPPER.sub(lambda match: "_" + match[0].lower(), name): value for name, value in data.items()}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _line(line: InvoiceLine, amount: str, *, estimated: bool) -> DocumentLine:
    return DocumentLine(
        line.sku_id,
        str(line.unit),
        minor_text(line.price.nanos, 9),
        line.price.version_id,
        line.price.verified,
        line.seconds,
        amount,
        estimated,
        *_exact(line.amount),
    )


def _exact(amount: Amount) -> tuple[str, str]:
    return amount.text(EXACT_DECIMALS), str(amount.parts)


def _second(second: int) -> str:
    return PlatformTime(second * NANOS_PER_SECOND).rfc3339()
