"""An invoice as a document: canonical JSON, so that the same invoice is the same bytes, and its digest proves it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount, minor_text
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.invoice import Invoice, InvoiceLine

EXACT_DECIMALS = 12  # as the worked cases print exact amounts; `parts` has the amount itself
Held = tuple[str, int, int, str]  # resource, first second, seconds, reason


def number_of(project: str, month: str) -> str:
    """The invoice's number follows from what it is for."""
    return f"{project}-{month}"


def document(
    account: Account,
    invoice: Invoice,
    as_of: PlatformTime,
    held: Sequence[Held],
    names: Mapping[str, str],
    *,
    issued: bool,
) -> dict[str, Any]:
    """`names`: of resources, by id. Of an issued one nothing is an estimate any more: its month is over."""
    period = months.seconds_of(invoice.month, account.time_zone)

    def shown(minor: int) -> str:
        return minor_text(minor, invoice.decimals)

    return {
        "number": number_of(account.project, invoice.month),
        "project": account.project,
        "month": invoice.month,
        "periodStart": _second(period.start),
        "periodEnd": _second(period.stop),
        "timeZone": account.time_zone,
        "currency": invoice.currency,
        "decimals": invoice.decimals,
        "exchangeRate": str(invoice.exchange),
        "taxShare": account.tax,
        "asOf": as_of.rfc3339(),
        "lines": [_line(line, shown(line.shown), estimated=line.estimated and not issued) for line in invoice.lines],
        "credits": [
            {"credit": line.credit_id, "amount": shown(line.shown), **_exact(line.amount)} for line in invoice.credits
        ],
        "roundingError": shown(invoice.rounding_error),
        "subtotal": shown(invoice.subtotal),
        "tax": shown(invoice.tax),
        "adjustments": [
            {"correctsMonth": one.corrects_month, "amount": shown(one.minor)} for one in invoice.adjustments
        ],
        "total": shown(invoice.total),
        "held": [
            {
                "resource": resource,
                "name": names.get(resource, resource),
                "start": _second(start),
                "seconds": seconds,
                "reason": reason,
            }
            for resource, start, seconds, reason in held
        ],
    }


def canonical(found: Mapping[str, Any]) -> bytes:
    """UTF-8 JSON without spaces, keys in order."""
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _line(line: InvoiceLine, amount: str, *, estimated: bool) -> dict[str, Any]:
    return {
        "sku": line.sku_id,
        "unit": str(line.unit),
        "unitPrice": minor_text(line.price.nanos, 9),
        "priceVersion": line.price.version_id,
        "verified": line.price.verified,
        "seconds": line.seconds,
        "amount": amount,
        "estimated": estimated,
        **_exact(line.amount),
    }


def _exact(amount: Amount) -> dict[str, str]:
    return {"exactUsd": amount.text(EXACT_DECIMALS), "parts": str(amount.parts)}


def _second(second: int) -> str:
    return PlatformTime(second * NANOS_PER_SECOND).rfc3339()
