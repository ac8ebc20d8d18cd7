"""Invoices, the open one as a draft, and each line down to the seconds and events that it is made
of."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import amount_text, minor_text, price_text, quantity_text
from podyard.control.billing import accounts, bill_lines, credit_notes, invoices
from podyard.control.billing.bill_lines import Explained
from podyard.control.billing.invoice_document import (
    DocumentItem,
    DocumentLine,
    InvoiceDocument,
    from_json,
    quantity_of,
)
from podyard.control.billing.invoices import Computed
from podyard.control.billing.snapshots import Snapshot
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.credit_note import CreditNote
from podyard.domain.invoice import IssuedInvoice, hosts_text, line_id
from podyard.domain.usage import PriceUnit, UsageEvent, UsageRecord
from podyard.http import context
from podyard.pricing.amounts import amount_of
from podyard.pricing.commitments import OWN
from podyard.pricing.current_card import default_rate_card
from podyard.web.billing.common import frame, make_once, pages, read, read_again
from podyard.web.billing.invoice_text import facts, local_moment
from podyard.web.billing.stream import stream
from podyard.web.kit.commands import Command
from podyard.web.kit.render import ConsoleRoute, page, project_url

EXPORTS = ("csv", "json", "focus", "bigquery")  # what the API writes of a month
ITEMS_SHOWN_MAX = 50  # of a correction: the page stays small
PARTS_SHOWN = 25  # of a line, each with its events

router = APIRouter(prefix="/invoices", route_class=ConsoleRoute)


@router.get("")
def show_all(request: Request, project: str) -> Response:
    caller = context.principal(request)

    def body(uow: UnitOfWork) -> tuple[list[IssuedInvoice], Account, str]:
        account = accounts.get(uow, caller, project)
        return invoices.list_invoices(uow, caller, project), account, account.month_of(uow.now)

    found, account, month = context.read(request, body)
    drafts = [] if account.next_month > month else [account.next_month, month]
    shown, numbers = pages(request, list(reversed(found)))
    return page(
        request,
        "billing_invoices.html",
        **frame(project, "invoices"),
        account=account,
        drafts=[(one, _url(project, one)) for one in reversed(list(dict.fromkeys(drafts)))],
        rows=[_summary(row, project, account.time_zone) for row in shown],
        pages=numbers,
        commands=[Command("podyard", f"podyard bill invoice --project={project}")],
    )


def _summary(invoice: IssuedInvoice, project: str, zone: str) -> dict[str, Any]:
    total = amount_text(minor_text(invoice.total, invoice.decimals), invoice.currency)
    issued = local_moment(invoice.issued_at, zone)
    return {
        "invoice": invoice,
        "url": _url(project, invoice.month),
        "shown": total,
        "issued": issued,
    }


def _url(project: str, month: str) -> str:
    return project_url(project, "billing", "invoices", month)


def _there(uow: UnitOfWork, request: Request, project: str, month: str) -> int:
    """A closed month has an invoice or none."""
    if accounts.check_month(month) < accounts.of(uow, project).next_month:
        invoices.get(uow, context.principal(request), project, month)
    return 200


class _Shown(NamedTuple):
    document: InvoiceDocument | None
    issued: IssuedInvoice | None
    held: Sequence[str]
    notes: Sequence[CreditNote]


@router.get("/{month}")
@stream("invoices", "Invoice {month}", _there)
def show(request: Request, project: str, month: str) -> Response:
    caller = context.principal(request)

    def body(uow: UnitOfWork, found: Snapshot) -> _Shown:
        account, card = found.account, default_rate_card()
        if accounts.check_month(month) < account.next_month:
            issued = invoices.get(uow, caller, project, month)
            notes = [
                note
                for note in credit_notes.list_notes(uow, caller, project)
                if note.subject_id == month
            ]
            return _Shown(from_json(issued.document), issued, (), notes)
        _, draft = make_once(
            found,
            ("draft", month),
            lambda: _draft(invoices.preview(uow, card, caller, project, month)),
        )
        return _Shown(draft[0], None, draft[1], ())

    document, issued, held, notes = read(request, project, body)
    return page(
        request,
        "billing_invoice.html",
        **frame(project, "invoices", f"Invoice {month}"),
        month=month,
        document=document,
        issued=issued,
        held=held,
        facts=[] if document is None else facts(document, issued),
        shown=(lambda text: amount_text(text, "USD" if document is None else document.currency)),
        notes=[_note(note, document) for note in notes if document is not None],
        lines=[] if document is None else [_line(project, month, line) for line in document.lines],
        items={} if document is None else _items(project, document),
        files=[(name, _file(project, month, name)) for name in EXPORTS],
        printed=project_url(project, "invoices", month, "print"),
        pdf=project_url(project, "invoices", month, "pdf") if _has_pdf() else "",
        commands=[Command("podyard", f"podyard bill invoice {month} --project={project}")],
    )


def _note(note: CreditNote, document: InvoiceDocument) -> tuple[CreditNote, str, str]:
    amount = amount_text(minor_text(note.minor, note.decimals), note.currency)
    return note, amount, local_moment(note.created, document.time_zone)


def _draft(found: Computed) -> tuple[InvoiceDocument | None, Sequence[str]]:
    """Return what is kept of it: its document, and what has no price."""
    return found.document, found.held


def _has_pdf() -> bool:
    """Return whether the extra is there that PDF needs."""
    return importlib.util.find_spec("reportlab") is not None


def _file(project: str, month: str, name: str) -> str:
    return f"/podyard/v1/projects/{quote(project, safe='')}/invoices/{month}:export?format={name}"


def _line(project: str, month: str, line: DocumentLine | DocumentItem) -> dict[str, Any]:
    query = urlencode({"id": line.id if isinstance(line, DocumentLine) else line.line})
    quantity = quantity_text(line.quantity, PriceUnit(line.unit).noun)
    included = line.hosts_included if isinstance(line, DocumentLine) else None
    hosts = hosts_text(included, line.quantity, PriceUnit(line.unit))
    return {
        **line._asdict(),
        "url": f"{_url(project, month)}/line?{query}",
        "shown_quantity": quantity,
        "hosts": hosts,
    }


def _items(project: str, document: InvoiceDocument) -> dict[str, list[dict[str, Any]]]:
    """Return what each correction is made of: the first items of it, by corrected month."""
    return {
        found.corrects_month: [
            _line(project, found.corrects_month, item) for item in found.items[:ITEMS_SHOWN_MAX]
        ]
        for found in document.adjustments
    }


def _has_line(uow: UnitOfWork, request: Request, project: str, month: str) -> int:
    """A line of an issued invoice is in its document, one of a draft at least sold."""
    line = request.query_params.get("id", "")
    if accounts.check_month(month) < accounts.of(uow, project).next_month:
        lines = from_json(
            invoices.get(uow, context.principal(request), project, month).document
        ).lines
        known = any(one.id == line for one in lines)
    else:
        sku_id, _, _ = line.rpartition("@")
        found = default_rate_card().skus.get(sku_id)
        versions = found.versions if found else ()
        known = sku_id.startswith(OWN) or any(
            line_id(sku_id, one.nanos) == line for one in versions
        )
    if not known:
        raise bill_lines.no_line(month, line)
    return 200


@router.get("/{month}/line")
@stream("invoices", "Explain a line", _has_line)
def line(request: Request, project: str, month: str) -> Response:
    """The page of a line: price versions, resources, seconds and the events behind them."""
    caller, line_name = context.principal(request), request.query_params.get("id", "")

    def body(uow: UnitOfWork) -> tuple[Explained, Any, Any, list[UsageEvent], str]:
        found = bill_lines.explain(uow, default_rate_card(), caller, project, month, line_name)
        shown, numbers = pages(request, found.parts, PARTS_SHOWN)
        keys = list(dict.fromkeys(part.resource_id for part in shown))
        return (
            found,
            shown,
            numbers,
            bill_lines.events_of(uow, project, keys),
            accounts.of(uow, project).time_zone,
        )

    found, shown, numbers, events, zone = read_again(request, body)
    return page(
        request,
        "billing_line.html",
        **frame(project, "invoices", "Explain a line"),
        found=found,
        back=_url(project, month),
        quantity=quantity_text(quantity_of(found.unit_seconds, found.unit), found.unit.noun),
        unit=found.unit.replace("_", " "),
        unit_price=price_text(found.price.nanos),
        versions=list({part.price.version_id: part.price for part in found.parts}.values()),
        zone=zone,
        parts=[_part(part, found, zone) for part in shown],
        pages=numbers,
        events=[
            (
                event,
                found.names.get(event.resource_id, event.resource_id).rsplit("/", 1)[-1],
                local_moment(event.at, zone),
            )
            for event in events
        ],
        events_max=bill_lines.EVENTS_SHOWN_MAX,
    )


def _part(part: UsageRecord, found: Explained, zone: str) -> dict[str, Any]:
    return {
        "name": found.names.get(part.resource_id, part.resource_id).rsplit("/", 1)[-1],
        "start": _second(part.start_second, zone),
        "stop": _second(part.start_second + part.seconds, zone),
        "seconds": part.seconds,
        "quantity": part.quantity,
        "amount": amount_of(part),
        "estimated": part.estimated and not found.issued,
    }


def _second(second: int, zone: str) -> str:
    return local_moment(PlatformTime(second * NANOS_PER_SECOND), zone)
