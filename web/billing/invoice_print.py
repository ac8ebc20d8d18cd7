"""An invoice to print: a separate page for paper, and the same as PDF. Both are made of one
`Sheet`.

The same invoice is the same bytes: a PDF's own date is the invoice's `asOf`, never a clock.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import Code, PodyardError
from podyard.base.money import (
    amount_text,
    money_text,
    nanos_from_decimal_text,
    price_text,
    quantity_text,
)
from podyard.control.billing import accounts, invoices
from podyard.control.billing.invoice_document import DocumentLine, InvoiceDocument, from_json
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.invoice import IssuedInvoice, hosts_text
from podyard.domain.principal import Principal
from podyard.domain.usage import PriceUnit
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.web.billing.invoice_text import facts
from podyard.web.kit.render import ConsoleRoute, fragment

MARGIN_POINTS = 45
_LINK = '<link rel="stylesheet" href="print.css">'
LANGUAGE = "en-GB"
_STYLE_OF_TABLE = (
    ("FONTNAME", (0, 0), (-1, 0), "Helvetica-Bold"),
    ("FONTSIZE", (0, 0), (-1, -1), 8),
    ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ("LINEBELOW", (0, 0), (-1, -1), 0.25, "#999999"),
)
_ONES = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_THOUSANDS = ("", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion")

router = APIRouter(
    prefix="/console/{project}/invoices/{month}", route_class=ConsoleRoute, include_in_schema=False
)


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """`numbers`: columns from this one on are numbers, and stand at the right."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: int


@dataclasses.dataclass(frozen=True, slots=True)
class Sheet:
    """The printed sheet, in its order."""

    title: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    total: str
    words: str
    notes: Sequence[str]
    as_of: str


@router.get("/print")
def print_page(request: Request, project: str, month: str) -> Response:
    """The invoice as a page without a frame. `?style=inline`: with its style in it, for a file; a
    browser that is here does not take such a style."""
    html = str(
        fragment("invoice_print.html", sheet=_sheet(request, project, month), language=LANGUAGE)
    )
    if request.query_params.get("style") == "inline":
        html = html.replace(_LINK, f"<style>\n{fragment('invoice_print.css')}\n</style>")
    return Response(html, media_type="text/html", headers={"Cache-Control": "no-store"})


@router.get("/print.css")
def style(project: str, month: str) -> Response:
    """The page's own style: the console's is for screens."""
    del project, month
    return Response(fragment("invoice_print.css"), media_type="text/css")


@router.get("/pdf")
def pdf(request: Request, project: str, month: str) -> Response:
    data = pdf_of(_sheet(request, project, month))
    headers = {
        "Content-Disposition": f'attachment; filename="{project}-{month}.pdf"',
        "Cache-Control": "no-store",
    }
    return Response(data, media_type="application/pdf", headers=headers)


def _sheet(request: Request, project: str, month: str) -> Sheet:
    caller = context.principal(request)
    document, issued = context.read(request, lambda uow: document_of(uow, caller, project, month))
    return sheet_of(document, issued)


def document_of(
    uow: UnitOfWork, caller: Principal, project: str, month: str
) -> tuple[InvoiceDocument, IssuedInvoice | None]:
    """The invoice's document and, once it is issued, what was. Raises NOT_FOUND where there is
    nothing to invoice."""
    try:
        issued = invoices.get(uow, caller, project, month)
    except PodyardError as error:
        if (
            error.code is not Code.NOT_FOUND
            or month < accounts.get(uow, caller, project).next_month
        ):
            raise
        found = invoices.preview(uow, default_rate_card(), caller, project, month)
        if found.document is None:
            raise
        return found.document, None
    return from_json(issued.document), issued


def sheet_of(document: InvoiceDocument, issued: IssuedInvoice | None) -> Sheet:
    """`issued` None: it is not issued yet."""
    proof = "draft: not issued yet" if issued is None else f"SHA-256 {issued.sha256}"
    lines = Table(
        "What was used",
        ("SKU", "Quantity", "Unit price", "Amount"),
        [_line(line, document, issued is None) for line in document.lines],
        1,
    )
    kind = "Draft of an invoice" if issued is None else "Invoice"
    return Sheet(
        title=f"{kind} {document.number}",
        facts=[*facts(document, issued), ("Document", proof)],
        tables=[
            lines,
            Table("Sum", ("Item", "Amount"), _sums(document), 1),
            *_corrections(document),
        ],
        total=amount_text(document.total, document.currency),
        words=f"{in_words(document.total)} {document.currency}",
        notes=_notes(document, issued is None),
        as_of=document.as_of,
    )


def _line(line: DocumentLine, document: InvoiceDocument, is_draft: bool) -> tuple[str, ...]:
    marks = ("*" if line.estimated and is_draft else "") + ("" if line.verified else "†")
    quantity = quantity_text(line.quantity, PriceUnit(line.unit).noun)
    hosts = hosts_text(line.hosts_included, line.quantity, PriceUnit(line.unit))
    quantity += f", {hosts}" if hosts else ""
    return (
        line.sku + marks,
        quantity,
        price_text(nanos_from_decimal_text(line.unit_price)),
        amount_text(line.amount, document.currency),
    )


def _corrections(document: InvoiceDocument) -> list[Table]:
    """Return what each correction is made of."""
    columns = ("Node and line", "Quantity", "Amount")
    return [
        Table(
            f"Adjustment of {one.corrects_month}, before tax, credits and rounding",
            columns,
            [
                (
                    f"{item.name.rpartition('/')[2]}: {item.line}",
                    quantity_text(item.quantity, PriceUnit(item.unit).noun),
                    money_text(item.exact_usd),
                )
                for item in one.items
            ],
            1,
        )
        for one in document.adjustments
        if one.items
    ]


def _sums(document: InvoiceDocument) -> list[tuple[str, str]]:
    rows = [
        *((f"Credit {credit.credit}", credit.amount) for credit in document.credits),
        ("Rounding error", document.rounding_error),
        ("Subtotal", document.subtotal),
        (f"Tax ({document.tax_share} of the subtotal)", document.tax),
        *((f"Adjustment of {one.corrects_month}", one.amount) for one in document.adjustments),
        ("Total", document.total),
    ]
    return [(name, amount_text(amount, document.currency)) for name, amount in rows]


def _notes(document: InvoiceDocument, is_draft: bool) -> list[str]:
    notes = []
    if is_draft and any(line.estimated for line in document.lines):
        notes.append("* An estimate: some of it was still in use.")
    if not all(line.verified for line in document.lines):
        notes.append(
            "† The price is unverified: nobody has checked it against a document of its seller."
        )
    if document.lines:
        notes.append(
            "Lines are rounded to be shown; the rounding error is what they miss of the exact sum."
        )
    notes += [
        f"Not in it: {held.seconds} s of {held.name}, which have no price yet"
        for held in document.held
    ]
    return notes


def in_words(amount: str) -> str:
    """`-1234.50` is "minus one thousand two hundred and thirty-four and 50/100"."""
    whole, _, rest = amount.removeprefix("-").partition(".")
    words = _whole(int(whole))
    fraction = f" and {rest}/{10 ** len(rest)}" if rest else ""
    return ("minus " if amount.startswith("-") else "") + words + fraction


def _whole(value: int) -> str:
    if value == 0:
        return _ONES[0]
    groups, parts = [], []
    while value:
        value, group = divmod(value, 1000)
        groups.append(group)
    for place in range(len(groups) - 1, -1, -1):
        if groups[place]:
            parts.append(_hundreds(groups[place]) + _THOUSANDS[place])
    return " ".join(parts)


def _hundreds(value: int) -> str:
    hundreds, rest = divmod(value, 100)
    small = (
        _ONES[rest]
        if rest < 20
        else _TENS[rest // 10] + (f"-{_ONES[rest % 10]}" if rest % 10 else "")
    )
    if not hundreds:
        return small
    return f"{_ONES[hundreds]} hundred" + (f" and {small}" if rest else "")


def pdf_of(sheet: Sheet) -> bytes:
    """A4, with a title, a language and text that can be read. Raises FAILED_PRECONDITION without
    the PDF library."""
    try:
        from reportlab.lib.pagesizes import A4
        from reportlab.lib.styles import getSampleStyleSheet
        from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer
    except ImportError:
        raise PodyardError(
            Code.FAILED_PRECONDITION, "PDF needs an extra: pip install 'podyard[pdf]'"
        ) from None
    from xml.sax.saxutils import escape

    styles, data = getSampleStyleSheet(), io.BytesIO()
    story: list[Any] = [Paragraph(escape(sheet.title), styles["Title"])]
    story += [
        Paragraph(f"<b>{escape(name)}:</b> {escape(text)}", styles["Normal"])
        for name, text in sheet.facts
    ]
    for table in sheet.tables:
        story += [Paragraph(escape(table.caption), styles["Heading2"]), _pdf_table(table)]
    story += [Spacer(1, 12), Paragraph(f"<b>Total: {escape(sheet.total)}</b>", styles["Heading3"])]
    story += [Paragraph(escape(text), styles["Normal"]) for text in (sheet.words, *sheet.notes)]
    margins = dict.fromkeys(
        ("leftMargin", "rightMargin", "topMargin", "bottomMargin"), MARGIN_POINTS
    )
    template = SimpleDocTemplate(
        data,
        pagesize=A4,
        title=sheet.title,
        author="Podyard",
        lang=LANGUAGE,
        invariant=1,
        **margins,
    )
    date = "".join(character for character in sheet.as_of[:19] if character.isdigit())

    def set_date(canvas: Any, _template: Any) -> None:
        canvas.setDateFormatter(lambda *_: f"D:{date}Z")

    template.build(story, onFirstPage=set_date)
    return data.getvalue()


def _pdf_table(table: Table) -> Any:
    from reportlab.platypus import Table as PdfTable

    found = PdfTable([list(table.head), *map(list, table.rows)], repeatRows=1, hAlign="LEFT")
    found.setStyle([*_STYLE_OF_TABLE, ("ALIGN", (table.numbers, 0), (-1, -1), "RIGHT")])
    return found
