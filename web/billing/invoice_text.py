"""Invoices for readers: its times in the zone of its account, who issues it and when it is due.

The document itself has none of this: its times are UTC, its amounts plain decimal text.
"""

from __future__ import annotations

import calendar
from datetime import datetime, timedelta

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import rate_text
from podyard.control.billing.invoice_document import InvoiceDocument
from podyard.domain.invoice import IssuedInvoice
from podyard.pricing import explore

ISSUER = "Podyard"
PAYMENT_TERM_DAYS = 30  # from the day of issue until an invoice is due


def facts(document: InvoiceDocument, issued: IssuedInvoice | None) -> list[tuple[str, str]]:
    """Return what stands above the lines; `issued` None: it is a draft."""
    zone = document.time_zone
    first, stop = (
        _local(PlatformTime.from_rfc3339(at), zone)
        for at in (document.period_start, document.period_end)
    )
    found = [
        ("Number", document.number),
        ("Issuer", ISSUER),
        ("Customer", f"Project {document.project}"),
        ("Period", f"{_day(first)} to {_day(stop - timedelta(seconds=1))}, {zone}"),
    ]
    if issued is None:
        found.append(("As of", local_moment(PlatformTime.from_rfc3339(document.as_of), zone)))
    else:
        day = _local(issued.issued_at, zone)
        found.append(("Issued", local_moment(issued.issued_at, zone)))
        found.append(
            (
                "Due",
                (
                    f"{_day(day + timedelta(days=PAYMENT_TERM_DAYS))}, {PAYMENT_TERM_DAYS} days "
                    "after its issue"
                ),
            )
        )
    if document.currency != "USD":
        found.append(
            ("Exchange rate", rate_text(document.exchange_rate, document.currency, document.month))
        )
    return found


def local_moment(value: PlatformTime, zone: str) -> str:
    """`2026-04-01 01:00:00 UTC-07:00`: what the zone's clocks show."""
    text = _local(value, zone).isoformat(" ", "seconds")
    return f"{text[:19]} UTC{text[19:]}".removesuffix("+00:00")


def _local(value: PlatformTime, zone: str) -> datetime:
    return explore.local(value.nanos // NANOS_PER_SECOND, zone)


def _day(moment: datetime) -> str:
    return f"{moment.day} {calendar.month_name[moment.month]} {moment.year}"
